"""Quick constructors mean what the usual ones mean."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from fsm_agent.context import Seen
from fsm_agent.dialects.base import Calls, Prompt, Requested
from fsm_agent.effects import Call, CallModel, CallTools, RawCall, Replied, Result, Returned, Usage
from fsm_agent.frozen import fast_init
from fsm_agent.history import Block
from fsm_agent.tools.call import CallInfo
from fsm_agent.tools.registry import ToolStats
from fsm_agent.tools.results import Rendered
from fsm_agent.tools.validation import Valid

QUICK = [
    Call,
    CallModel,
    CallTools,
    RawCall,
    Replied,
    Result,
    Returned,
    Usage,
    Calls,
    Prompt,
    Requested,
    Block,
    CallInfo,
    Rendered,
    Seen,
    ToolStats,
    Valid,
]


@fast_init
@dataclass(frozen=True, slots=True)
class _Point:
    x: int
    y: int = 2
    words: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True)
class _Placed(_Point):
    name: str = "here"


@fast_init
@dataclass(frozen=True, slots=True)
class _Checked:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("below zero")


def test_the_constructor_takes_what_the_usual_one_takes() -> None:
    """Positions, names, defaults, and a new container for each value; nothing else."""
    assert (_Point(1).y, _Point(1, 3).y, _Point(y=4, x=1).y) == (2, 3, 4)
    assert _Point(1).words == {}
    assert _Point(1).words is not _Point(1).words
    for wrong in ({}, {"x": 1, "z": 2}):
        with pytest.raises(TypeError):
            _Point(**wrong)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError):
        _Point(1, 2, {})  # type: ignore[call-arg]  # that is the point


def test_a_value_is_of_its_class_and_frozen() -> None:
    """Nobody ever holds one that can be changed."""
    point = _Point(1)
    assert type(point) is _Point
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]  # that is the point
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert (point, hash(_Checked(1)), repr(_Checked(1))) == (_Point(1, 2, words={}), hash(_Checked(1)), "_Checked(x=1)")


def test_copies_are_equal() -> None:
    """`replace`, `copy`, `deepcopy` and `pickle` work as for any dataclass."""
    point = _Point(1, 3, words={"a": [1]})
    assert replace(point, x=2) == _Point(2, 3, words={"a": [1]})
    for twin in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):  # noqa: S301 - our own bytes
        assert twin == point
        assert type(twin) is _Point


def test_checks_after_the_construction_and_subclasses_work() -> None:
    """A subclass has its own fields, and `__post_init__` is called."""
    assert (_Placed(1, 2, "there").name, _Placed(1).name) == ("there", "here")
    with pytest.raises(ValueError, match="below zero"):
        _Checked(-1)


@pytest.mark.parametrize("kind", QUICK, ids=lambda kind: kind.__name__)
def test_every_quick_class_has_the_signature_of_its_fields(kind: Any) -> None:
    """Each field in its place, with its default."""
    taken = list(inspect.signature(kind).parameters.values())
    assert [one.name for one in sorted(fields(kind), key=lambda one: one.kw_only is True)] == [
        one.name for one in taken
    ]
    values = {one.name: object() for one in taken}
    made = kind(**values)
    assert {name: getattr(made, name) for name in values} == values
    assert type(made) is kind


def test_a_class_that_cannot_be_quick_is_refused() -> None:
    """Without slots there is nothing to gain in this way."""

    @dataclass(frozen=True)
    class Loose:
        """No slots."""

        x: int

    with pytest.raises(TypeError, match="Loose"):
        fast_init(Loose)
