"""What a server may refuse of a request and can be asked without: read from its refusal, and left out of the next request. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from fsm_agent.effects import CallModel, ModelFailed, Omittable
from fsm_agent.history import THOUGHTS, minted_id

__all__ = ["known_omissions", "messages_without", "refused_parts"]

_REFUSED: Final = frozenset({400, 422})
_FORMAT_WORDS: Final = ("response_format", "json_schema", "grammar", "schema")
_ORDER_WORDS: Final = ("after role 'tool'", "roles must alternate", "message_order")
_BRIDGE: Final = "OK."
_MISTRALS: Final = "stral"
_MISTRALS_ID: Final = re.compile("[a-zA-Z0-9]{9}")


def known_omissions(model: object) -> frozenset[Omittable]:
    """What is left out from the first request on: Mistral's models are known by their names, which saves the refusal."""
    name = str(getattr(model, "model_name", None) or getattr(model, "model", None) or "")
    return frozenset({"order"} if _MISTRALS in name.lower() else ())


def refused_parts(effect: CallModel, outcome: ModelFailed, *, streamed: bool) -> frozenset[Omittable]:
    """The parts of the request that `outcome` says the server refused. `streamed`: it was asked for a stream, and for its usage."""
    return frozenset(_refused_parts(effect, outcome, streamed=streamed))


def _refused_parts(effect: CallModel, outcome: ModelFailed, *, streamed: bool) -> Iterator[Omittable]:
    said, refused = outcome.message, outcome.status in _REFUSED
    if effect.response_format is not None and refused and any(word in said for word in _FORMAT_WORDS):
        # It cannot constrain its replies.
        yield "response_format"
    if effect.temperature is not None and (refused or outcome.error == "TypeError") and "temperature" in said:
        # The model takes no temperature, or not this one.
        yield "temperature"
    if streamed and refused and "stream_options" in said:
        # It does not report what a stream cost, which is estimated then.
        yield "stream_usage"
    if refused and THOUGHTS in said and any(THOUGHTS in one.additional_kwargs for one in effect.messages):
        # It gives what its model thought, and does not want it back.
        yield "thoughts"
    ordered = any(word in said for word in _ORDER_WORDS)
    if ordered and len(_bridged(effect.messages)) > len(effect.messages):
        # It takes no user's message right after a result, as Mistral's.
        yield "order"


def messages_without(parts: frozenset[Omittable], messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """`messages` as they are sent to a server that refuses `parts`."""
    sent = list(messages)
    if "order" in parts:
        sent = [_short_ids(one) for one in _bridged(sent)]
    return [_without_thoughts(one) for one in sent] if "thoughts" in parts else sent


def _without_thoughts(message: AnyMessage) -> AnyMessage:
    if THOUGHTS not in message.additional_kwargs:
        return message
    kept = {name: one for name, one in message.additional_kwargs.items() if name != THOUGHTS}
    return message.model_copy(update={"additional_kwargs": kept})


def _short_ids(message: AnyMessage) -> AnyMessage:
    """`message` with ids as Mistral's servers and templates want them, also for calls that another server gave others."""
    if isinstance(message, ToolMessage):
        return message.model_copy(update={"tool_call_id": _short_id(message.tool_call_id)})
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [{**one, "id": _short_id(one["id"] or "")} for one in message.tool_calls]
        return message.model_copy(update={"tool_calls": calls})
    return message


def _short_id(call_id: str) -> str:
    return call_id if _MISTRALS_ID.fullmatch(call_id) else minted_id(call_id)


def _bridged(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """`messages` with a word of the assistant's wherever the user speaks right after a result."""
    bridged: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, HumanMessage) and bridged and isinstance(bridged[-1], ToolMessage):
            bridged.append(AIMessage(_BRIDGE))
        bridged.append(message)
    return bridged
