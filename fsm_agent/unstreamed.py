"""A whole reply where a stream was asked for, as some servers and proxies send it, handed on as a stream of one chunk.

The client finds no event in it, and the reply that was paid for would be lost. If the client is built otherwise than expected, nothing
is changed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

__all__ = ["aeither", "either"]

_JSON: Final = "application/json"


def either(completions: Any) -> Any:
    """The completions of an OpenAI client, which take a whole reply for a stream too."""
    create = completions.create

    def created(*args: Any, **kwargs: Any) -> Any:
        answer = create(*args, **kwargs)
        response = _whole(answer, kwargs)
        return answer if response is None else _chunked(answer, response.read())

    completions.create = created
    return completions


def aeither(completions: Any) -> Any:
    """`either` for those of a client on the event loop."""
    create = completions.create

    async def created(*args: Any, **kwargs: Any) -> Any:
        answer = await create(*args, **kwargs)
        response = _whole(answer, kwargs)
        return answer if response is None else _chunked(answer, await response.aread())

    completions.create = created
    return completions


def _whole(answer: Any, asked: Mapping[str, Any]) -> Any:
    """The response behind `answer` where a stream was asked for and JSON came, which is not read yet; else None."""
    response = getattr(answer, "response", None) if asked.get("stream") else None
    kind = str(getattr(response, "headers", {}).get("content-type", ""))
    return response if kind.partition(";")[0].strip().lower() == _JSON else None


def _chunked(answer: Any, content: bytes) -> Any:
    """The reply in `content` as a stream, or `answer`, which can still be read, where there is none. Raises what the server says failed."""
    try:
        body = json.loads(content)
        failure = body.get("error")
        choices = [] if failure else [_as_chunk(one) for one in body.get("choices") or ()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return answer
    if failure:
        raise ValueError(failure)  # as LangChain does for a whole reply
    return _Once({**body, "choices": choices}) if choices else answer


def _as_chunk(choice: Mapping[str, Any]) -> dict[str, Any]:
    said = choice["message"]
    calls = [{"index": at, **call} for at, call in enumerate(said.get("tool_calls") or ())]
    # A stream without a label is one that was cut; this one is whole.
    finish = choice.get("finish_reason") or "stop"
    return {**choice, "delta": {**said, "tool_calls": calls or None}, "finish_reason": finish}


@dataclass(frozen=True, slots=True)
class _Once:
    """A stream of one chunk, for a client that waits and one that does not."""

    chunk: Mapping[str, Any]

    def __enter__(self) -> Iterator[Mapping[str, Any]]:
        return iter([self.chunk])

    def __exit__(self, *raised: object) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Nothing is open."""

    async def __aiter__(self) -> AsyncIterator[Mapping[str, Any]]:
        yield self.chunk
