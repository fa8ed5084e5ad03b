"""What an agent is given, checked when it is made: kinds, names that exist, and the parts of the ladder that belong together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from inspect import getattr_static, signature
from typing import Any, Final

from pydantic import BaseModel

from fsm_agent.errors import DefinitionError
from fsm_agent.ladder import LADDER, Rung
from fsm_agent.limits import ALIKE, CALLED_ELSEWHERE, Limits
from fsm_agent.memory.views import Memory, Window, is_memory
from fsm_agent.reflection import Reflect
from fsm_agent.rows import Row
from fsm_agent.temperature import Cooling, Temperature, check_temperature
from fsm_agent.tools.injection import is_async
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool

__all__ = [
    "check_keywords",
    "check_types",
    "checked_names",
    "limits_of",
    "memory_of",
    "reflect_of",
    "rungs_of",
    "simpler_of",
    "temperature_of",
]

Fits = Callable[[Any], bool]


def _is(*kinds: type) -> Fits:
    return lambda given: isinstance(given, kinds)


def _has(*names: str) -> Fits:
    """An object with these attributes, looked at without running any of its code: a logger may bind itself when it is first asked.

    A `__getattr__` may give them, but for that of a pydantic model, which gives no methods.
    """

    def fits(given: Any) -> bool:
        missing = [name for name in names if getattr_static(given, name, None) is None]
        gives = hasattr(type(given), "__getattr__") and not isinstance(given, BaseModel)
        return not isinstance(given, type) and (not missing or gives)

    return fits


def _logger(given: Any) -> bool:
    """Those of the standard library take no fields, and would lose every event."""
    return not isinstance(given, logging.Logger | logging.LoggerAdapter) and _has("info")(given)


def _several(given: Any) -> bool:
    """Not a tool or a toolkit of LangChain: as pydantic models they give their fields, one after the other."""
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | BaseModel)


def _rows(given: Any) -> bool:
    return isinstance(given, Sequence) and all(isinstance(row, Row) for row in given)


_KINDS: Final[Mapping[str, tuple[Fits, str]]] = {
    "agent": (_has("setup", "machine", "invoke"), "an Agent"),
    "approve": (callable, "a function of a call that says True, False or a decision"),
    "base_url": (_is(str), "the address of a server, as text"),
    "chain": (_has("seal", "holds"), "a chain of fsm_agent.trail, like HmacChain(key)"),
    "cipher": (_has("encrypt", "decrypt"), "a cipher of fsm_agent.trail, like FernetCipher([key])"),
    "clock": (_has("monotonic", "time", "sleep", "asleep"), "a Clock, like SystemClock() or FakeClock()"),
    "conversations": (
        _has("open", "close"),
        "a store of conversations, like SQLiteConversations(FILE) or HistoryConversations(lambda thread_id: ...)",
    ),
    "ladder": (_several, 'names of rungs, as in ["fallback", "answer"]'),
    "limits": (_is(Limits, Mapping), "Limits(max_steps=5), or a mapping of limits by name"),
    "logger": (
        _logger,
        "a structlog logger (structlog.wrap_logger(yours) makes one of it), or one like silent_logger()",
    ),
    "name": (_is(str), "the name of the agent, as text"),
    "observers": (_is(Collection), "a list of functions of a transition, none of them async"),
    "origin": (_is(Mapping), "a mapping of JSON data"),
    "cut_marker": (_is(str), "a text"),
    "recall": (_has("recall", "arecall"), "Recall(store)"),
    "simpler": (_several, "a list of tools or of their names"),
    "system": (_is(str), "the system text"),
    "table": (_rows, "a table, made by fsm_agent.table.extend"),
    "task": (_is(str), "the task, as text"),
    "tools": (_several, "a list of tools (those of a toolkit are get_tools()), or a Registry"),
    "withhold": (_is(bool), "True or False"),
}
"""By argument: what fits there, and what to give."""


def check_types(**given: Any) -> None:
    """Raises `DefinitionError` for the first argument of another kind than is meant. None is for one that was left out."""
    for name, value in given.items():
        fits, wanted = _KINDS[name]
        if value is not None and not fits(value):
            raise DefinitionError(f"{name} is of the kind {type(value).__name__}: give {wanted}")
    for one in given.get("observers") or ():
        _check_observer(one)


def _check_observer(given: Any) -> None:
    called = getattr(given, "__name__", type(given).__name__)
    if not callable(given):
        raise DefinitionError(f"one of the observers is of the kind {called}: give functions of a transition")
    if is_async(given):
        raise DefinitionError(
            f"{called} of the observers is async, and nobody would await it: give a function that is not"
        )


def checked_names(what: str, given: Iterable[str], every: Iterable[str]) -> tuple[str, ...]:
    """The names in `given`, each once, in order. Raises `DefinitionError` for one that is not among `every`."""
    names, there = tuple(dict.fromkeys(given)), tuple(every)
    for name in names:
        if name not in there:
            raise DefinitionError(f"{what} {name!r} does not exist; there are {', '.join(there)}")
    return names


_MEANT: Final[Mapping[str, str]] = {
    "checkpointer": "store",
    "instructions": "system",
    "llm": "model",
    "prompt": "system",
    "system_message": "system",
    "system_prompt": "system",
}
"""What is called otherwise elsewhere, by its name there."""
_BEHIND: Final = "an answer is text: behind the run write model.with_structured_output(...).invoke(result.answer)"
_ASKS: Final = "a tool says whether it waits for a person: tool(theirs, requires_approval=True)"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "callbacks": 'they are of a run: agent.invoke(task, {"callbacks": [...]})',
    "handoffs": "another agent is asked by a tool: a function that returns other.invoke(task)",
    "interrupt_on": _ASKS,
    "max_tokens": "it is a setting of the model, as in ChatOpenAI(model=..., max_tokens=...)",
    "needs_approval": _ASKS,
    "output_type": _BEHIND,
    "response_format": _BEHIND,
}
"""What is done in another place here, by its name elsewhere."""


def check_keywords(given: Mapping[str, Any], cls: type) -> None:
    """Raises `DefinitionError` for the first keyword in `given` that the class of agents does not take, with what was meant by it."""
    names = _keywords(cls)
    if names is None:
        return
    for name, value in given.items():
        if name not in names:
            near = get_close_matches(name, [*names, *Limits.model_fields], n=1, cutoff=ALIKE)
            meant = _MEANT.get(name) or CALLED_ELSEWHERE.get(name) or "".join(near)
            if name in _ELSEWHERE:
                says = _ELSEWHERE[name]
            elif meant in Limits.model_fields:
                shown = repr(value) if type(value) in (int, float) else "..."
                says = f"{meant} is a limit: write Agent(..., limits=Limits({meant}={shown}))"
            else:
                says = f"did you mean {meant}=?" if meant in names else f"there are {', '.join(names)}"
            raise DefinitionError(f"an agent has no keyword {name!r}; {says}")


@lru_cache(maxsize=16)
def _keywords(cls: type) -> tuple[str, ...] | None:
    """What `cls` takes; None where that is anything. Reading it costs half as much as making an agent."""
    taken = signature(cls).parameters
    return None if any(one.kind is one.VAR_KEYWORD for one in taken.values()) else tuple(taken)


def rungs_of(ladder: Iterable[str] | None, simpler: tuple[str, ...], *, withhold: bool = False) -> tuple[str, ...]:
    """The rungs in their order, by default `LADDER`. Raises `DefinitionError` for an unknown one, and for a rung or setting alone."""
    if ladder is None:
        return LADDER
    rungs = checked_names("rung of the ladder", ladder, Rung)
    if Rung.SIMPLER in rungs and not simpler:
        raise DefinitionError(
            'the ladder has the rung "simpler", and no tools for it: name them, as in simpler=["calculator"]'
        )
    if simpler and Rung.SIMPLER not in rungs:
        raise DefinitionError('simpler tools are named, and the ladder lacks their rung: put "simpler" into it')
    if withhold and Rung.STRATEGY not in rungs:
        raise DefinitionError(
            'withhold=True is for the rung "strategy", and the ladder lacks it: put "strategy" into it'
        )
    return rungs


def simpler_of(simpler: Iterable[str | Tool], tools: Registry) -> tuple[str, ...]:
    """The names of the simpler tools. Raises `DefinitionError` for one that is not among the agent's tools."""
    return checked_names("simpler tool", [one.name if isinstance(one, Tool) else one for one in simpler], tools.names())


def temperature_of(given: Temperature) -> Temperature:
    """A temperature as it is kept. Raises `DefinitionError` for what is none."""
    return given if given is None or isinstance(given, Cooling) else check_temperature(given)


def limits_of(given: Any) -> Limits:
    """The limits, by default those of the environment. Raises `DefinitionError` for what are none."""
    if given is None:
        return Limits.from_env()
    if not isinstance(given, Limits):
        raise DefinitionError(f"limits={given!r} are no Limits: write Limits(max_steps=5)")
    return given


def memory_of(given: Any) -> Memory:
    """The memory, by default `Window()`. Raises `DefinitionError` for what has no `view`."""
    if given is None:
        return Window()
    if not is_memory(given):
        raise DefinitionError(f"memory={given!r} is no memory: write one like Window(rounds=5), of fsm_agent.memory")
    found: Memory = given
    return found


def reflect_of(given: Any) -> Reflect | None:
    """How often the model is asked to reflect, None for never. Raises `DefinitionError` for what does not say that."""
    if given is not None and not isinstance(given, Reflect):
        raise DefinitionError(f"reflect={given!r} is no Reflect: write Reflect(every=3, most=2)")
    return given
