"""The temperature of a run: one number, or one that falls while calls succeed and is restored by a failure. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fsm_agent.errors import DefinitionError

__all__ = ["Cooling", "Temperature", "check_temperature", "temperature_after"]

_HIGHEST: Final = 2.0


@dataclass(frozen=True, slots=True)
class Cooling:
    """`start` (None: the model's own) until `after` steps in a row have succeeded, then `temperature`; a failure restores `start`.

    An empty reply restores it too; a thought, or a call that a person refused, changes nothing. Raises
    `fsm_agent.errors.DefinitionError` for `after` below 1 or a temperature outside of 0 to 2.
    """

    start: float | None = None
    after: int = 3
    temperature: float = 0.1

    def __post_init__(self) -> None:
        _check_count(self.after)
        for value in (self.start, self.temperature):
            if value is not None:
                check_temperature(value)


Temperature = float | Cooling | None
"""What `Agent(temperature=...)` takes; None leaves it to the model."""


def check_temperature(value: object) -> float:
    """`value` as a temperature. Raises `DefinitionError` for what is no number from 0 to 2."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _HIGHEST:
        raise DefinitionError(f"temperature is a number from 0 to {_HIGHEST:g}, or Cooling(...), not {value!r}")
    return float(value)


def _check_count(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DefinitionError(f"Cooling: after is a number of successes in a row, 1 or more, not {value!r}")


def temperature_after(temperature: Temperature, successes: int) -> float | None:
    """What the next model call is made with after `successes` in a row; None for the model's own."""
    if not isinstance(temperature, Cooling):
        return temperature
    return temperature.temperature if successes >= temperature.after else temperature.start
