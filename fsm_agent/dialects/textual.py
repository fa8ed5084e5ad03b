"""What the text dialects share: tools described in words, what is known so far, and rounds kept as plain exchanges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AnyMessage, HumanMessage

from fsm_agent.dialects.base import Prompt
from fsm_agent.effects import Result
from fsm_agent.language import Texts
from fsm_agent.tools.spec import Tool

__all__ = ["call_text", "describe", "known_so_far", "observation", "observations", "shortened", "without_examples"]

_KNOWN_LINES: Final = 8
_KNOWN_CHARS: Final = 300
_TASK_CHARS: Final = 1_000


def describe(tool: Tool) -> str:
    """A tool as a line: name, arguments with their types, what it is for; then what each argument means, where that is said."""
    schema = tool.parameters()
    fields = schema.get("properties", {})
    required = frozenset(schema.get("required", ()))
    arguments = ", ".join(f"{name}{'' if name in required else '?'}: {_kind(field)}" for name, field in fields.items())
    meanings = "".join(
        f"\n  {name}: {field['description']}" for name, field in fields.items() if field.get("description")
    )
    return f"- {tool.name}({arguments}): {tool.full_description}{meanings}"


def _kind(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in field["enum"])
    if isinstance(field.get("type"), str):
        return str(field["type"])
    return json.dumps(without_examples({key: value for key, value in field.items() if key != "description"}))


def without_examples(schema: Any) -> Any:
    """The schema without example values, which small models copy into their calls."""
    if isinstance(schema, Mapping):
        # A property may itself be called "examples"; only a list of values is left out.
        return {
            key: without_examples(value)
            for key, value in schema.items()
            if key != "examples" or isinstance(value, Mapping)
        }
    return [without_examples(value) for value in schema] if isinstance(schema, list) else schema


def known_so_far(prompt: Prompt, finish: str) -> tuple[AnyMessage, ...]:
    """What the executed calls gave, after the history: small models lose the thread of earlier results and repeat calls."""
    if not prompt.done or prompt.purpose == "answer":
        return ()
    lines = [
        f"- {call_text(one.call.tool, one.call.arguments)} = {one.result.text[:_KNOWN_CHARS]}"
        for one in prompt.done[-_KNOWN_LINES:]
    ]
    told = prompt.texts.ledger.format(known="\n".join(lines), task=shortened(prompt.task), finish=finish)
    return (HumanMessage(told),)


def shortened(text: str, chars: int = _TASK_CHARS) -> str:
    """`text` of at most `chars` characters (as a task is repeated below the history, where it stands whole), else without its middle."""
    half = chars // 2
    return text if len(text) <= chars else f"{text[:half]} [...] {text[-half:]}"


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call as it stands in a text: name(argument=value)."""
    given = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{tool}({given})"


def observations(results: Sequence[Result], texts: Texts) -> HumanMessage:
    """What came of the calls, as the user's message."""
    return HumanMessage("\n".join(observation(one, texts) for one in results))


def observation(result: Result, texts: Texts) -> str:
    """A result as it stands in such a message."""
    return texts.observation.format(tool=result.tool, text=result.text or "(empty)")
