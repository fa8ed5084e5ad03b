"""What the OpenAI client of LangChain loses between the wire and the message, kept on our copy of the model.

Read in a whole reply: the raw text of each call's arguments (the client turns `[]`, `0` and `null` into `{}` without a word) and the
order of the calls. Read in a stream: a refusal. Read in both, and sent back with the calls: what the model thought, which servers of
thinking models (DeepSeek, Kimi) ask for. Sent: a message with calls and no text goes out with `""`, because some servers refuse a null
and others drop the message. What the client would raise over, so that the reply would be lost to it, is put otherwise or taken out:
arguments that a server sends as an object, ids that are numbers, odd usage reports. If the client is built otherwise than expected,
nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import ValidationError

from fsm_agent.history import THOUGHTS

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
        readable = _readable(response)
        try:
            result = create(readable, *args, **kwargs)
        except ValidationError:
            # Its calls, or that it has no role, are what it cannot take; the calls are read from the body, below.
            result = create(_without_arguments(_body(readable)), *args, **kwargs)
        body = _body(response)
        for generation, choice in zip(result.generations, body.get("choices") or (), strict=False):
            said = choice.get("message") or {}
            _keep_thoughts(generation.message, said)
            calls = said.get("tool_calls") or ()
            raw = [_raw(call) for call in calls if isinstance(call, Mapping)]
            if raw:
                generation.message.additional_kwargs[RAW_CALLS] = raw
        return result

    return kept


def _body(response: Any) -> Mapping[str, Any]:
    body: Mapping[str, Any] = response if isinstance(response, Mapping) else response.model_dump(warnings=False)
    return body


def _without_arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a reply that is the assistant's, whose calls have a name, and an id that is a text."""
    choices = [_changed(choice, "message", _bare) for choice in body["choices"]]
    for choice in choices:
        choice["message"]["role"] = choice["message"].get("role") or "assistant"
    return {**body, "choices": choices}


def _changed(choice: Mapping[str, Any], part: str, change: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    """`choice` with each call in its message, or its part of one, changed."""
    said = choice[part]
    return {**choice, part: {**said, "tool_calls": [change(call) for call in said.get("tool_calls") or ()]}}


def _bare(call: Mapping[str, Any]) -> dict[str, Any]:
    call_id, name, _ = _raw(call)
    return {**call, "id": call_id, "function": {"name": name, "arguments": ""}}


def _written(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """A piece of a call with its id and arguments as texts, where a server sends them as a number and an object."""
    call_id, function = call.get("id"), call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        # An empty object may be all that a reply had before it was cut: it says no more than no text does.
        function = {**function, "arguments": "" if arguments == {} else json.dumps(arguments, ensure_ascii=False)}
    return {**call, "id": call_id if call_id is None else str(call_id), "function": function}


def _keep_thoughts(message: BaseMessage, said: Mapping[str, Any]) -> None:
    thoughts = said.get(THOUGHTS)
    if isinstance(thoughts, str) and thoughts:
        message.additional_kwargs[THOUGHTS] = thoughts


def _raw(call: Mapping[str, Any]) -> tuple[str, str, Any]:
    function = call.get("function") or {}
    return str(call.get("id") or ""), str(function.get("name") or ""), function.get("arguments")


def _filling(payload: Callable[..., Any]) -> Callable[..., Any]:
    def filled(given: Any, *args: Any, **kwargs: Any) -> Any:
        made = payload(given, *args, **kwargs)
        messages = made.get("messages") or ()
        for message in messages:
            if message.get("role") == "assistant" and message.get("content", "") is None:
                message["content"] = ""
        if isinstance(given, list) and len(given) == len(messages):
            for message, source in zip(messages, given, strict=True):
                if isinstance(source, AIMessage) and THOUGHTS in source.additional_kwargs:
                    message[THOUGHTS] = source.additional_kwargs[THOUGHTS]
        return made

    return filled


def _sparing(convert: Callable[..., Any]) -> Callable[..., Any]:
    def converted(chunk: Any, *args: Any, **kwargs: Any) -> Any:
        choices = chunk.get("choices")
        delta = (choices[0].get("delta") if choices else None) or {}
        if delta.get("tool_calls"):
            chunk = {**chunk, "choices": [_changed(choices[0], "delta", _written), *choices[1:]]}
        made = convert(_readable(chunk), *args, **kwargs)
        if made is not None and delta.get("refusal"):
            made.message.additional_kwargs["refusal"] = delta["refusal"]
        if made is not None:
            _keep_thoughts(made.message, delta)
        return made

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
