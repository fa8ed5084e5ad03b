"""What the OpenAI client of LangChain loses between the wire and the message, kept on our copy of the model.

Read in a whole reply: the raw text of each call's arguments (the client turns `[]`, `0` and `null` into `{}` without a word) and the order of
the calls. Sent: a message with calls and no text goes out with `""`, because some servers refuse a null and others drop the message.
If the client is built otherwise than expected, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["RAW_CALLS", "attach"]

RAW_CALLS: Final = "fsm_agent_raw_calls"
"""The key in `additional_kwargs` under which a message carries its calls as (id, name, arguments text)."""


def attach(model: Any) -> None:
    """Let this copy of a ChatOpenAI-like `model` keep what its client loses."""
    create, payload = getattr(model, "_create_chat_result", None), getattr(model, "_get_request_payload", None)
    if callable(create):
        model.__dict__["_create_chat_result"] = _keeping(create)
    if callable(payload):
        model.__dict__["_get_request_payload"] = _filling(payload)


def _keeping(create: Callable[..., Any]) -> Callable[..., Any]:
    def kept(response: Any, *args: Any, **kwargs: Any) -> Any:
        result = create(response, *args, **kwargs)
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
