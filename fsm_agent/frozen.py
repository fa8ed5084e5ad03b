"""Frozen dataclasses that are as quick to make as ordinary ones.

The constructor of a frozen dataclass sets each field through `object.__setattr__`, because its own way is closed. A step of a run makes
some thirty values with more than a hundred fields.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar, Final, Protocol, TypeVar

__all__ = ["fast_init"]

_LEFT_OUT: Final = object()


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=_Dataclass)


def fast_init(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a constructor that means the same: as quick for two fields, twice as quick from six on.

    While it is filled, the new value is of a class with the same slots that is not frozen; nobody else has seen it yet. Raises `TypeError`
    for a class without slots, or with a field that its constructor does not take.
    """
    every = fields(kind)
    names = tuple(one.name for one in every)
    if kind.__dict__.get("__slots__") != names or not all(one.init for one in every):
        raise TypeError(f"{kind.__name__} is not a dataclass with slots whose constructor takes every field")
    open_ = type(f"_Open{kind.__name__}", (), {"__slots__": names})
    known = {
        "_fill": object.__setattr__,
        "_open": open_,
        "_kind": kind,
        "_usual": kind.__init__,
        "_left_out": _LEFT_OUT,
    }
    source = _source(every, known, after=hasattr(kind, "__post_init__"))
    exec(source, known)  # noqa: S102 - as the standard library makes constructors; the text holds names of fields and nothing else
    init: Any = known["__init__"]
    init.__qualname__, init.__annotations__ = f"{kind.__qualname__}.__init__", kind.__init__.__annotations__
    init.__module__ = kind.__module__
    setattr(kind, "__init__", init)  # noqa: B010 - mypy refuses an assignment to it
    return kind


def _source(every: tuple[Field[Any], ...], known: dict[str, Any], *, after: bool) -> str:
    positional = [one for one in every if not one.kw_only]
    named = [one for one in every if one.kw_only]
    taken = [*map(_taken, positional), *(["*"] if named else []), *map(_taken, named)]
    passed = [*(one.name for one in positional), *(f"{one.name}={one.name}" for one in named)]
    lines = [f"def __init__(self, {', '.join(taken)}):"]
    for one in every:
        if one.default_factory is not MISSING:
            known[f"_made_{one.name}"], known[f"_default_{one.name}"] = one.default_factory, _LEFT_OUT
            lines.append(f"    if {one.name} is _left_out: {one.name} = _made_{one.name}()")
        elif one.default is not MISSING:
            known[f"_default_{one.name}"] = one.default
    lines += [
        f"    if self.__class__ is not _kind: return _usual(self, {', '.join(passed)})",  # a subclass may have more fields
        "    _fill(self, '__class__', _open)",
        *(f"    self.{one.name} = {one.name}" for one in every),
        "    self.__class__ = _kind",
    ]
    if after:
        lines.append("    self.__post_init__()")
    return "\n".join(lines)


def _taken(one: Field[Any]) -> str:
    optional = one.default is not MISSING or one.default_factory is not MISSING
    return f"{one.name}=_default_{one.name}" if optional else one.name
