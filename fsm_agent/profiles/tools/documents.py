"""`search_documents`: text files of a directory, or the reference of this package, searched by their words. No network."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.limits import Limits
from fsm_agent.tools.call import ToolRefusal
from fsm_agent.tools.confined import Root
from fsm_agent.tools.results import SHORT_MARKER, ToolResult, cut
from fsm_agent.tools.spec import Tool, tool
from fsm_agent.words import telling_words

__all__ = ["read_documents", "search_documents"]

_SUFFIXES: Final = (".md", ".txt", ".rst")
_MAX_FILES: Final = 1_000
_MAX_BYTES: Final = 200_000
_MAX_TOTAL: Final = 10_000_000
_MAX_DEPTH: Final = 16
_SHOWN: Final = 300


def search_documents(folder: Path | None = None) -> Tool:
    """The tool, over the text files below `folder`; None for the reference of this package (its limits, by name).

    Links are not followed. What was found says how well it fits (`confidence_score`, the share of the words asked for).
    Raises `ToolDefinitionError` when there is no such directory, or no text file in it.
    """
    texts = _reference() if folder is None else read_documents(folder)
    words = {name: Counter(telling_words(f"{name} {text}")) for name, text in texts.items()}
    spread = Counter(word for counts in words.values() for word in counts)

    @tool("search_documents", idempotent=True, not_for="arithmetic, or what is not in these documents")
    def search(
        query: Annotated[str, Field(min_length=1, max_length=200)], limit: Annotated[int, Field(ge=1, le=10)] = 3
    ) -> ToolResult:
        """Search the documents at hand by words. Gives the best passages, each with the name of its document.

        Args:
            query: The words to look for.
            limit: Passages at most.
        """
        wanted = set(telling_words(query))
        if not wanted:
            raise ToolRefusal("the query has no word that could be looked for; name what the text is about")
        scores = {
            name: sum(_weight(spread[word], len(texts)) for word in wanted & counts.keys())
            for name, counts in words.items()
        }
        best = sorted((name for name, score in scores.items() if score), key=lambda name: -scores[name])[:limit]
        found = max((len(wanted & words[name].keys()) for name in best), default=0)
        shown = [f"{name}: {_passage(texts[name], wanted)}" for name in best]
        said = "\n".join(shown) or f"Nothing found. There are {len(texts)} documents; try other words."
        return ToolResult(content=said, metadata={"confidence_score": round(found / len(wanted), 2)})

    return search


def read_documents(folder: Path) -> Mapping[str, str]:
    """The text files (Markdown, reStructuredText, plain) below a directory by their path in it: the first 200 KB of each.

    What cannot be read, or has a name that no path may have, is left out.

    Raises `ToolDefinitionError` when there is no such directory, no text file in it, or more than 1,000 of them or 10 MB.
    """
    place = Root(folder, max_bytes=_MAX_BYTES)
    texts: dict[str, str] = {}
    total = 0
    for path in _paths(place):
        try:
            texts[path] = place.read(path)[0].decode("utf-8", "replace")
        except (ToolRefusal, OSError):
            continue
        total += len(texts[path])
        if len(texts) > _MAX_FILES or total > _MAX_TOTAL:
            raise ToolDefinitionError(
                f"there are more than {_MAX_FILES:,} text files or {_MAX_TOTAL // 1_000_000} MB below {str(folder)!r}; name a "
                "smaller directory",
                tool="search_documents",
            )
    if not texts:
        raise ToolDefinitionError(
            f"there is no text file ({', '.join(_SUFFIXES)}) below {str(folder)!r}, so nothing could be found",
            tool="search_documents",
        )
    return texts


def _paths(place: Root, path: str = "") -> Iterator[str]:
    try:
        entries = place.entries(path)
    except (ToolRefusal, OSError):
        return
    for one in entries:
        inner = f"{path}/{one.name}" if path else one.name
        if one.name.startswith("."):
            continue
        if one.kind == "directory" and inner.count("/") < _MAX_DEPTH:
            yield from _paths(place, inner)
        elif one.kind == "file" and one.name.lower().endswith(_SUFFIXES):
            yield inner


def _reference() -> dict[str, str]:
    fields: Mapping[str, Any] = Limits.model_fields
    return {
        name: f"{field.description} The default of {name} is {'none' if field.default is None else field.default}."
        for name, field in fields.items()
    }


def _weight(documents: int, of: int) -> float:
    """A word that few documents hold says more."""
    return math.log(1 + of / documents)


def _passage(text: str, wanted: set[str]) -> str:
    """The paragraph that holds most of the words, the longer one of two, cut to some lines."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    best = max(paragraphs, key=lambda part: (len(wanted & set(telling_words(part))), len(part)), default="")
    return cut(best, _SHOWN, SHORT_MARKER)
