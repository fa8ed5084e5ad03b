"""Bounded reflection: when a run asks the model whether to go on."""

from __future__ import annotations

from dataclasses import dataclass

from fsm_agent.errors import DefinitionError

__all__ = ["Reflect"]


@dataclass(frozen=True, slots=True)
class Reflect:
    """After each `every` steps, `most` times a run at most, the model is asked whether to go on, and with which tool.

    It may say nothing else. The call is a transition of its own (`reflected`), takes no step, and counts in tokens and model calls. "Do
    not go on" leads to an answer from what is known, or stops the run; a tool is passed on as a hint. A reply of another form, and a
    call that fails, are recorded (`reflection_failed`), and the run goes on without.

    Raises `fsm_agent.errors.DefinitionError` for a number below 1.
    """

    every: int = 3
    most: int = 2

    def __post_init__(self) -> None:
        for name, value in (("every", self.every), ("most", self.most)):
            _check(name, value)


def _check(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DefinitionError(f"Reflect: {name} must be 1 or more, not {value!r}; leave reflect out to ask for none")
