"""Python code that is made of data: nothing in the data can become code of its own."""

from __future__ import annotations

from typing import Any

from fsm_agent.errors import RunError

__all__ = ["Code", "call_of", "literal"]


class Code(str):
    """Text that is Python code already."""

    __slots__ = ()


def literal(value: Any) -> Code:
    """The code of JSON data; what is `Code` stands as it is. Raises `RunError` for anything else."""
    if isinstance(value, Code):
        return value
    if value is None or isinstance(value, bool | int | float | str):
        return Code(repr(value))
    if isinstance(value, list | tuple):
        items = ", ".join(literal(one) for one in value)
        if isinstance(value, list):
            return Code(f"[{items}]")
        return Code(f"({items},)" if len(value) == 1 else f"({items})")
    if isinstance(value, dict):
        return Code("{" + ", ".join(f"{literal(name)}: {literal(one)}" for name, one in value.items()) + "}")
    raise RunError(f"a {type(value).__name__} is no JSON data, so no code can be made of it")


def call_of(name: str, /, *args: Any, **kwargs: Any) -> Code:
    """A call of `name` with these arguments. Raises `RunError` for a name that is none."""
    for one in (name, *kwargs):
        if not one.isidentifier():
            raise RunError(f"{one!r} is no name, so no code can be made of it")
    given = [literal(one) for one in args] + [Code(f"{key}={literal(one)}") for key, one in kwargs.items()]
    return Code(f"{name}({', '.join(given)})")
