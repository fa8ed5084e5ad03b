"""What a person may change in a run that is paused. Pure, so that a replay makes the same change at the same place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fsm_agent import memory as memories
from fsm_agent.context import Context
from fsm_agent.effects import Call
from fsm_agent.errors import DefinitionError, RunError
from fsm_agent.limits import Limits
from fsm_agent.memory import Memory
from fsm_agent.memory.views import is_memory
from fsm_agent.tools.problems import render
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.signature import signature
from fsm_agent.tools.spec import Invalid
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.header import describe, rebuilt

__all__ = ["Change", "apply_change", "newest_limits", "with_tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values for a paused run; what is left out stays.

    `limits` are single ones by name. `memory` is another strategy. `arguments` are the whole new arguments of calls that are about to be
    executed, by call id; what a person must approve is changed by `Edit` alone, in review. Raises `DefinitionError` for a part of another
    kind.
    """

    limits: Mapping[str, Any] = field(default_factory=dict)
    memory: Memory | None = None
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mappings = {"limits": self.limits, "arguments": self.arguments}
        if isinstance(self.arguments, Mapping):
            mappings |= {f"arguments of {call_id}": one for call_id, one in self.arguments.items()}
        for name, given in mappings.items():
            if not isinstance(given, Mapping):
                raise DefinitionError(f"{name} in Change is a {type(given).__name__}; give a mapping")
        if self.memory is not None and not is_memory(self.memory):
            raise DefinitionError(f"memory={self.memory!r} is no memory: change it to one of fsm_agent.memory")

    def data(self) -> dict[str, Any]:
        """The change as JSON data."""
        return {
            "limits": dict(self.limits),
            "memory": None if self.memory is None else describe(self.memory),
            "arguments": {call_id: dict(one) for call_id, one in self.arguments.items()},
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The change that `data` gave. Raises `TrailError` for a memory that is not one of this package's."""
        memory = None if data["memory"] is None else rebuilt(data["memory"], memories)
        return cls(limits=data["limits"], memory=memory, arguments=data["arguments"])

    def __bool__(self) -> bool:
        return bool(self.limits or self.memory or self.arguments)


def apply_change(ctx: Context, change: Change) -> Context:
    """The context with `change` made; the arguments are validated like the model's own.

    Raises `DefinitionError` for a limit that is none, `RunError` for arguments that do not fit and for calls that are not about to run.
    """
    setup = ctx.setup
    if change.limits or change.memory is not None:
        setup = replace(
            setup,
            limits=setup.limits.replace(**change.limits),
            memory=setup.memory if change.memory is None else change.memory,
            memo={},
        )
    waiting = {call.id for call in ctx.calls if not call.refusal}
    unknown = sorted(set(change.arguments) - waiting)
    if unknown:
        raise RunError(
            f"no call {', '.join(unknown)} is about to be executed; there are {', '.join(sorted(waiting)) or 'none'}"
        )
    calls = tuple(
        _edited(ctx, call, change.arguments[call.id]) if call.id in change.arguments else call for call in ctx.calls
    )
    return ctx.change(setup=setup, calls=calls)


def newest_limits(entries: Sequence[Entry]) -> Limits:
    """The limits that a run is under now: those that it began with, and what was changed since. Raises as `Limits`."""
    limits = Limits(**entries[0].body["setup"]["limits"])
    for entry in entries:
        if entry.kind == "changed" and entry.body.get("limits"):
            limits = limits.replace(**entry.body["limits"])
    return limits


def with_tools(ctx: Context, tools: Registry) -> Context:
    """The context with `tools` in place of those that the run knew."""
    return ctx.change(setup=replace(ctx.setup, tools=tools, memo={}))


def _edited(ctx: Context, call: Call, arguments: Mapping[str, Any]) -> Call:
    tool = ctx.setup.tools.resolve(call.tool)
    if tool is None:
        raise RunError(f"the tool {call.tool} is not registered any more")
    checked = tool.validate(arguments)
    if isinstance(checked, Invalid):
        raise RunError(f"the new arguments of {call.id} do not fit: {render(checked.problems, tool, 'en')}")
    mark = signature(tool.name, checked.arguments, tool.volatile)
    return replace(call, arguments=checked.arguments, signature=mark, approved=True, repairs=(*call.repairs, "edited"))
