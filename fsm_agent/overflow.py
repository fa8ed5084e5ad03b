"""Whether a server refused a prompt because it was too large for the model's context, and what it says of the sizes. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["Overflow", "read_overflow"]

_REFUSALS: Final = frozenset({None, 400, 413, 422, 500})
"""None: some clients, as the one of Bedrock, and an error in the midst of a stream tell no status."""
_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
# OpenAI and vLLM; llama.cpp, in its newer and older words; Anthropic; Gemini; Ollama.
_WORDS: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|exceeds? (?:the )?(?:available |model'?s? )?context|"
    r"context (?:length|size|window) (?:is )?exceeded|prompt is too long|input is too long|"
    r"input token count.{0,40}exceeds|(?:prompt|input) (?:length )?exceeds.{0,20}context",
    re.IGNORECASE | re.DOTALL,
)
_LIMIT: Final = re.compile(
    r"maximum context length (?:is|of) (\d+)|n_ctx\D{1,4}(\d+)|context size \((\d+)|(?:>|maximum(?: of)?|allowed \(?) ?(\d+)",
    re.IGNORECASE,
)
_SENT: Final = re.compile(
    r"n_prompt_tokens\D{1,4}(\d+)|resulted in (\d+)|requested (\d+)|request \((\d+)|token count \(?(\d+)|(\d+) tokens? >|"
    r"contains (?:at least )?(\d+)",
    re.IGNORECASE,
)


class Overflow(NamedTuple):
    """A prompt of `sent` tokens where `limit` fit; None for what the server does not say."""

    limit: int | None
    sent: int | None


def read_overflow(status: int | None, code: object, words: str, *, named: bool = False) -> Overflow | None:
    """What a refusal with this HTTP status, code and text says of the context; None when it is about something else.

    `named`: the exception is one that says so by its class.
    """
    if not named and (status not in _REFUSALS or not (code in _CODES or _WORDS.search(words))):
        return None
    limit, sent = _number(_LIMIT, words), _number(_SENT, words)
    plausible = limit is not None and sent is not None and 0 < limit < sent
    return Overflow(limit, sent) if plausible else Overflow(limit, None)


def _number(pattern: re.Pattern[str], words: str) -> int | None:
    found = pattern.search(words)
    return None if found is None else int(next(group for group in found.groups() if group is not None)[:12])
