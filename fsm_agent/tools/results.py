"""What a tool returned -> the text that the model sees, cut where it must be, and all of it for everybody else."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from fsm_agent.frozen import fast_init
from fsm_agent.language import Language
from fsm_agent.tools.plain import plain, well_formed

__all__ = ["SHORT_MARKER", "Rendered", "ToolResult", "cut", "render_result", "with_artifact"]

SHORT_MARKER: Final = "..."
_MARKERS: Final[dict[Language, str]] = {
    "en": "\n[cut: the first {end} of {size} characters]",
    "zh": "\n[已截断：共 {size} 个字符，这里是前 {end} 个]",
}
_BACK: Final = 32
"""At most this many characters are given up to keep a combined character whole."""
_BLOCK_TYPES: Final = frozenset(
    ["text", "image", "image_url", "audio", "video", "file", "json", "document", "search_result"]
)
_LONG_INT: Final = 1 << 64
_METADATA_TEXT: Final = 1_000
_METADATA_CHARS: Final = 8_000
"""Of all metadata of one result, as JSON."""
_LEFT_OUT: Final = "left_out"
_NAME_CHARS: Final = 32
_MOST_NAMES: Final = 32


@dataclass(frozen=True)
class ToolResult:
    """What a tool may return when its plain value does not say everything.

    `content` is for the model (text or data). `metadata` are small facts about the call that guards and states of one's own read
    (`retry_count`, `confidence_score`, ...): made plain JSON data, texts cut to 1,000 characters, and what does not fit into 8,000
    characters left out, its names in `left_out`. They are kept in `Result.metadata` and in the trail, and never shown to the model.
    `artifact` stays here; of a LangChain tool, one that is a mapping is the metadata, any other is in it as `artifact`. `failed` makes it a
    failure although nothing was raised.
    """

    content: Any
    _: KW_ONLY
    metadata: Mapping[str, Any] = field(default_factory=dict)
    artifact: Any = None
    failed: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A tool result as text.

    `text` is what the model sees, `full` is all of it. `metadata` is plain JSON data.
    """

    text: str
    full: str
    truncated: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    artifact: Any = None
    failed: bool = False


def render_result(
    value: object, *, max_chars: int | None = None, marker: str | None = None, language: Language = "en"
) -> Rendered:
    """Render what a tool returned. Never raises, never consumes an iterator.

    Text stays as it is (lone surrogates replaced); everything else becomes JSON (see `plain`). `ToolResult`, a
    LangChain `ToolMessage` and a list of LangChain content blocks are opened; blocks that are no text are named. At
    most `max_chars` characters of it (None = all) are kept, then `marker` follows: the default one tells the original
    size, `"..."` gives exactly `text[:max_chars] + "..."`. A combined character is never cut in half.
    """
    if type(value) is str or type(value) is int:
        # What most tools return, for which the rest of this would find nothing to do.
        full = _text(value)
        text = full if max_chars is None else cut(full, max_chars, marker, language)
        return Rendered(text=text, full=full, truncated=text is not full)
    result = _opened(value)
    full = _text(result.content)
    text = full if max_chars is None else cut(full, max_chars, marker, language)
    return Rendered(
        text=text,
        full=full,
        truncated=text is not full,
        metadata=_metadata(result.metadata),
        artifact=result.artifact,
        failed=result.failed,
    )


def with_artifact(content: object, artifact: object, *, failed: bool = False) -> ToolResult:
    """What a LangChain tool gave: an artifact that is a mapping is its metadata, any other is in it by that name."""
    named = {} if artifact is None else {"artifact": artifact}
    metadata = artifact if isinstance(artifact, Mapping) else named
    return ToolResult(content, metadata=metadata, artifact=artifact, failed=failed)


def cut(text: str, max_chars: int, marker: str | None = None, language: Language = "en") -> str:
    """`text` itself when it has at most `max_chars` characters, else its beginning followed by the marker."""
    if len(text) <= max_chars:
        return text
    end = _boundary(text, max(0, max_chars))
    shown = _MARKERS[language].format(end=end, size=len(text)) if marker is None else marker
    return f"{text[:end]}{shown}"


def _boundary(text: str, end: int) -> int:
    """The largest position up to `end` (and at most `_BACK` before it) at which no combined character is split."""
    for position in range(end, max(0, end - _BACK), -1):
        if not _joined(text, position):
            return position
    return end


def _joined(text: str, position: int) -> bool:
    """Do the characters on both sides of `position` belong to one visible character?"""
    before, after = text[position - 1], text[position]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    if before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or "\ud800" <= before <= "\udbff":
        return True
    if _is_flag_letter(before) and _is_flag_letter(after):
        run = 0
        while run < position and _is_flag_letter(text[position - 1 - run]):
            run += 1
        return run % 2 == 1
    return False


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _opened(value: object) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if type(value).__module__ == "langchain_core.messages.tool" and hasattr(value, "content"):
        failed = getattr(value, "status", "success") == "error"
        return with_artifact(value.content, getattr(value, "artifact", None), failed=failed)
    if type(value).__module__ == "fsm_agent.records" and hasattr(value, "answer") and hasattr(value, "detail"):
        # An agent used as a tool: its answer, not the record of its run.
        answered = value.answer is not None
        return ToolResult(content=value.answer if answered else f"no answer: {value.detail}", failed=not answered)
    return ToolResult(content=value)


def _text(content: object) -> str:
    if isinstance(content, str):
        return well_formed(content)
    if type(content) is int and -_LONG_INT < content < _LONG_INT:
        return str(content)
    if isinstance(content, list) and _is_blocks(content):
        return "\n".join(_block(block) for block in content)
    data = plain(content)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _is_blocks(content: list[Any]) -> bool:
    """A list of content blocks, not a list of data that happens to have a `type`."""
    blocks = [item for item in content if isinstance(item, dict)]
    return (
        bool(blocks)
        and all(isinstance(item, (str, dict)) for item in content)
        and all(isinstance(kind := block.get("type"), str) and kind in _BLOCK_TYPES for block in blocks)
        and all(block["type"] != "text" or isinstance(block.get("text"), str) for block in blocks)
    )


def _block(block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return well_formed(block)
    kind = block["type"]
    if kind == "text":
        return well_formed(block["text"])
    if kind in ("json", "document", "search_result"):
        return json.dumps(plain({key: item for key, item in block.items() if key != "type"}), ensure_ascii=False)
    mime = block.get("mime_type")
    return f"[{kind} {mime}]" if isinstance(mime, str) else f"[{kind}]"


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    data = plain(metadata) if metadata else {}
    if not isinstance(data, dict):
        data = {"value": data}
    kept: dict[str, Any] = {}
    left_out, room = [], _METADATA_CHARS
    for key, item in data.items():
        short = cut(item, _METADATA_TEXT) if isinstance(item, str) else item
        size = len(key) + len(json.dumps(short, ensure_ascii=False))
        if size > room:
            left_out.append(cut(key, _NAME_CHARS))
            continue
        room -= size
        kept[key] = short
    return {**kept, _LEFT_OUT: left_out[:_MOST_NAMES]} if left_out else kept
