"""What an agent is given, checked when it is made: names that exist, and the parts of the ladder that belong together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fsm_agent.errors import DefinitionError
from fsm_agent.ladder import LADDER, Rung
from fsm_agent.limits import Limits
from fsm_agent.memory.views import Memory, Window
from fsm_agent.reflection import Reflect
from fsm_agent.temperature import Cooling, Temperature, check_temperature
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool

__all__ = ["known", "limits_of", "memory_of", "reflect_of", "rungs_of", "simpler_of", "temperature_of"]


def known(what: str, given: Iterable[str], every: Iterable[str]) -> tuple[str, ...]:
    """The names in `given`, each once, in order. Raises `DefinitionError` for one that is not among `every`."""
    names, there = tuple(dict.fromkeys(given)), tuple(every)
    for name in names:
        if name not in there:
            raise DefinitionError(f"{what} {name!r} does not exist; there are {', '.join(there)}")
    return names


def rungs_of(ladder: Iterable[str] | None, simpler: tuple[str, ...], *, withhold: bool = False) -> tuple[str, ...]:
    """The rungs in their order, by default `LADDER`. Raises `DefinitionError` for an unknown one, and for a rung or setting alone."""
    if ladder is None:
        return LADDER
    rungs = known("rung of the ladder", ladder, Rung)
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
    return known("simpler tool", [one.name if isinstance(one, Tool) else one for one in simpler], tools.names())


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
    if isinstance(given, type) or not callable(getattr(given, "view", None)):
        raise DefinitionError(f"memory={given!r} is no memory: write one like Window(rounds=5), of fsm_agent.memory")
    found: Memory = given
    return found


def reflect_of(given: Any) -> Reflect | None:
    """How often the model is asked to reflect, None for never. Raises `DefinitionError` for what does not say that."""
    if given is not None and not isinstance(given, Reflect):
        raise DefinitionError(f"reflect={given!r} is no Reflect: write Reflect(every=3, most=2)")
    return given
