"""Who counts tokens: the model's own counter where it has one that needs no network, tiktoken for OpenAI's models, else an estimate.

States and guards always go by the estimate of `fsm_agent.history`, so that a trail says the same on every machine. What is counted here,
at the edge, corrects it: it calibrates the estimate when a run begins, and stands in for a count that the server did not send.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableBinding

from fsm_agent.effects import Replied, Usage
from fsm_agent.history import correction_factor, estimate_text, estimate_tokens

__all__ = ["ESTIMATE", "TokenCounter", "counter_for", "fitted"]

_LONGEST: Final = 100_000
"""Characters of one text beyond which it is estimated: a tokenizer may take long over a text without spaces."""


@dataclass(frozen=True)
class TokenCounter:
    """Counts the tokens of a text. `name` says who does: "model", "tiktoken:o200k_base", or "estimate"."""

    name: str
    counts: Callable[[str], int] = field(repr=False, compare=False)

    def count(self, text: str) -> int:
        """Tokens of `text`; its estimate where the counter fails, or the text is very long."""
        if len(text) > _LONGEST:
            return estimate_text(text)
        try:
            counted = self.counts(text)
        except Exception:  # noqa: BLE001 - a tokenizer is somebody else's code, and a count is never worth a run
            return estimate_text(text)
        return max(counted, 0)

    def count_messages(self, messages: Iterable[AnyMessage]) -> int:
        """Tokens of `messages` as a prompt, with the overhead of each as in `estimate_tokens`."""
        return estimate_tokens(messages, self.count)

    def factor(self, texts: Callable[[], Sequence[str]]) -> float:
        """What the estimate of these texts must be multiplied by to be this count, between 0.5 and 4; 1.0 when nothing is known."""
        if self is ESTIMATE:
            return 1.0
        sample = texts()
        estimated = sum(estimate_text(text) for text in sample)
        return correction_factor(sum(self.count(text) for text in sample), estimated) if estimated else 1.0

    def completed(self, reply: Replied, messages: Iterable[AnyMessage], schemas: Iterable[str]) -> Replied:
        """`reply` with this count for the tokens that the server did not report. They stay marked as estimated."""
        if self is ESTIMATE or reply.prompt_tokens is not None:
            return reply
        sent = self.count_messages(messages) + sum(self.count(schema) for schema in schemas)
        written = self.count(reply.text) + sum(
            self.count(call.name)
            + self.count(call.arguments if isinstance(call.arguments, str) else _json(call.arguments))
            for call in reply.calls
        )
        return replace(reply, usage=Usage(sent, written, sent + written, sent + written), prompt_tokens=sent)


ESTIMATE: Final = TokenCounter("estimate", estimate_text)


def counter_for(model: Any) -> TokenCounter:
    """The counter for a LangChain chat model. It never uses the network: encodings are taken from tiktoken's cache, or not at all."""
    inner = _unbound(model)
    own = getattr(inner, "custom_get_token_ids", None)
    if callable(own):
        return _cached("model", lambda text: len(own(text)))
    if _counts_itself(inner):
        return _cached("model", lambda text: int(inner.get_num_tokens(text)))
    encoding = _openai_encoding(inner)
    if encoding is not None and _is_cached(encoding):
        return _cached(f"tiktoken:{encoding}", _tiktoken(encoding))
    return ESTIMATE


def fitted(memory: Any, model: Any) -> Any:
    """`memory` for the context of `model`, where it depends on that (`DualBuffer`) and the model's LangChain profile says its size."""
    sized = getattr(memory, "for_context", None)
    profile = getattr(_unbound(model), "profile", None)
    tokens = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return sized(tokens) if callable(sized) and type(tokens) is int and tokens > 0 else memory


def _unbound(model: Any) -> Any:
    """The chat model beneath `bind`."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    return model


def _cached(name: str, counts: Callable[[str], int]) -> TokenCounter:
    """Most texts of a prompt are those of the prompt before."""
    return TokenCounter(name, functools.lru_cache(maxsize=1_024)(counts))


def _counts_itself(model: object) -> bool:
    """True for a model class of the user's own that has its own counter.

    Those of LangChain's packages are not asked: they ask their provider, or download a tokenizer. Nor is our scripted model, which
    counts nothing that the estimate does not.
    """
    for kind in type(model).__mro__:
        if {"get_num_tokens", "get_token_ids"} & kind.__dict__.keys():
            return not kind.__module__.partition(".")[0].startswith(("langchain", "fsm_agent"))
    return False


# ---------------------------------------------------------------- tiktoken

# The name under which tiktoken keeps an encoding in its cache, and the SHA-256 that it demands of the file. It downloads what is not there.
_ENCODINGS: Final = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}


def _openai_encoding(model: object) -> str | None:
    """The encoding of a model that OpenAI serves; None for others, and for servers that only speak its protocol."""
    if not any(base.__name__ == "BaseChatOpenAI" for base in type(model).__mro__):
        return None
    named = getattr(model, "tiktoken_model_name", None)
    host = urlsplit(str(getattr(model, "openai_api_base", None) or "")).hostname
    azure = bool(getattr(model, "azure_endpoint", None))
    if not named and host is not None and host != "api.openai.com" and not azure:
        return None
    try:
        from tiktoken.model import encoding_name_for_model  # noqa: PLC0415 - optional, and heavy

        return encoding_name_for_model(str(named or getattr(model, "model_name", "")))
    except (ImportError, KeyError):
        return None


def _is_cached(encoding: str) -> bool:
    """Whether the file of `encoding` is in tiktoken's cache, as tiktoken wants it: anything else it would download."""
    key, wanted = _ENCODINGS.get(encoding, ("", ""))
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if not key or folder == "":
        return False
    path = Path(folder) / key if folder is not None else Path(tempfile.gettempdir()) / "data-gym-cache" / key
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == wanted
    except OSError:
        return False


def _tiktoken(name: str) -> Callable[[str], int]:
    @functools.cache
    def encoding() -> Any:
        from tiktoken import get_encoding  # noqa: PLC0415 - optional, and heavy

        return get_encoding(name)

    return lambda text: len(encoding().encode(text, disallowed_special=()))


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
