"""What the OpenAI client of LangChain loses between the wire and the message, kept on our copy of the model.

Read in a whole reply: the raw text of each call's arguments (the client turns `[]`, `0` and `null` into `{}` without a word) and the
order of the calls. Sent: a message with calls and no text goes out with `""`, because some servers refuse a null and others drop the
message. A usage report that the client would raise over is taken out, so that the reply is not lost to it. If the client is built
otherwise than expected, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["RAW_CALLS", "attach"]

RAW_CALLS: Final = "fsm_agent_raw_calls"
"""The key in `additional_kwargs` under which a message carries its calls as (id, name, arguments text)."""


def attach(model: Any) -> None:
    """Let this copy of a ChatOpenAI-like `model` keep what its client loses."""
    for name, wrap in _WRAPPERS.items():
        method = getattr(model, name, None)
        if callable(method):
            model.__dict__[name] = wrap(method)


def _keeping(create: Callable[..., Any]) -> Callable[..., Any]:
    def kept(response: Any, *args: Any, **kwargs: Any) -> Any:
        result = create(_readable(response), *args, **kwargs)
        body = response if isinstance(response, Mapping) else response.model_dump()
        for generation, choice in zip(result.generations, body.get("choices") or (), strict=False):
            calls = (choice.get("message") or {}).get("tool_calls") or ()
            raw = [_raw(call) for call in calls if isinstance(call, Mapping)]
            if raw:
                generation.message.additional_kwargs[RAW_CALLS] = raw
        return result

    return kept


def _raw(call: Mapping[str, Any]) -> tuple[str, str, Any]:
    function = call.get("function") or {}
    return str(call.get("id") or ""), str(function.get("name") or ""), function.get("arguments")


def _filling(payload: Callable[..., Any]) -> Callable[..., Any]:
    def filled(*args: Any, **kwargs: Any) -> Any:
        made = payload(*args, **kwargs)
        for message in made.get("messages") or ():
            if message.get("role") == "assistant" and message.get("content", "") is None:
                message["content"] = ""
        return made

    return filled


def _sparing(convert: Callable[..., Any]) -> Callable[..., Any]:
    def converted(chunk: Any, *args: Any, **kwargs: Any) -> Any:
        return convert(_readable(chunk), *args, **kwargs)

    return converted


def _readable(body: Any) -> Any:
    """The response or chunk, without a usage report that the client would fail over; the reply must not be lost to it."""
    usage = body.get("usage") if isinstance(body, Mapping) else getattr(body, "usage", None)
    if usage is None or _is_usage(usage if isinstance(usage, Mapping) else getattr(usage, "__dict__", None)):
        return body
    return {**body, "usage": None} if isinstance(body, Mapping) else body.model_copy(update={"usage": None})


def _is_usage(usage: Any) -> bool:
    if not isinstance(usage, Mapping):
        return False
    counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")]
    details = [usage.get(key) for key in ("prompt_tokens_details", "completion_tokens_details")]
    whole = all(count is None or type(count) is int for count in counts)
    return whole and not any(isinstance(one, str | int | list) for one in details)


_WRAPPERS: Final[Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "_create_chat_result": _keeping,
    "_get_request_payload": _filling,
    "_convert_chunk_to_generation_chunk": _sparing,
}
