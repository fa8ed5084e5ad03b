"""What an agent is given, checked when it is made: names that exist, and the parts of the ladder that belong together."""

from __future__ import annotations

from collections.abc import Iterable

from fsm_agent.errors import DefinitionError
from fsm_agent.ladder import LADDER, Rung
from fsm_agent.temperature import Cooling, Temperature, check_temperature
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool

__all__ = ["known", "rungs_of", "simpler_of", "temperature_of"]


def known(what: str, given: Iterable[str], every: Iterable[str]) -> tuple[str, ...]:
    """The names in `given`, each once, in order. Raises `DefinitionError` for one that is not among `every`."""
    names, there = tuple(dict.fromkeys(given)), tuple(every)
    for name in names:
        if name not in there:
            raise DefinitionError(f"{what} {name!r} does not exist; there are {', '.join(there)}")
    return names


def rungs_of(ladder: Iterable[str] | None, simpler: tuple[str, ...]) -> tuple[str, ...]:
    """The rungs in their order, by default `LADDER`. Raises `DefinitionError` for an unknown one, or for simpler tools that are none."""
    if ladder is None:
        return LADDER
    rungs = known("rung of the ladder", ladder, Rung)
    if Rung.SIMPLER in rungs and not simpler:
        raise DefinitionError(
            'the ladder has the rung "simpler", and no tools for it: name them, as in simpler=["calculator"]'
        )
    return rungs


def simpler_of(simpler: Iterable[str | Tool], tools: Registry) -> tuple[str, ...]:
    """The names of the simpler tools. Raises `DefinitionError` for one that is not among the agent's tools."""
    return known("simpler tool", [one.name if isinstance(one, Tool) else one for one in simpler], tools.names())


def temperature_of(given: Temperature) -> Temperature:
    """A temperature as it is kept. Raises `DefinitionError` for what is none."""
    return given if given is None or isinstance(given, Cooling) else check_temperature(given)
