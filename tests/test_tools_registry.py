"""The registry: changed while others read it, with fallbacks that lead somewhere and counts that add up."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools import Registry, Tool, ToolStats


class _Nothing(BaseModel):
    pass


def named(name: str, **options: Any) -> Tool:
    """A tool of this name that does nothing."""
    return Tool(name=name, description=name, args_model=_Nothing, func=lambda: None, **options)


def lookup(q: str) -> str:
    """Look up."""
    return q


def test_registers_functions_and_tools_in_order() -> None:
    """Names come in the order of registration; a plain function becomes a tool; the version grows with each change."""
    registry = Registry([named("b"), lookup, named("a")])
    assert registry.names() == ("b", "lookup", "a")
    assert [one.name for one in registry] == ["b", "lookup", "a"]
    before = registry.version
    (added,) = registry.register(named("c"))
    assert registry.get("c") is added
    assert registry.version > before
    assert registry.unregister("lookup").name == "lookup"
    assert (registry.names(), len(registry), "lookup" in registry) == (("b", "a", "c"), 3, False)
    registry.register()
    assert registry.version == before + 2


def test_a_name_is_taken_once_and_all_or_none_are_added() -> None:
    """A duplicate name is refused, and nothing of that registration is kept."""
    registry = Registry([named("a")])
    with pytest.raises(ToolDefinitionError, match='"a" is registered already'):
        registry.register(named("b"), named("a"))
    assert registry.names() == ("a",)
    with pytest.raises(ToolDefinitionError, match='no tool named "z"; tools: a'):
        registry.unregister("z")


def test_a_hidden_fallback_is_not_callable_by_name() -> None:
    """A fallback that is not registered is found by the engine and not by the model."""
    backup = named("backup")
    registry = Registry([named("main", fallback=backup)])
    assert registry.get("backup") is None
    assert "backup" not in registry.names()
    assert registry.resolve("backup") is backup
    assert registry.fallback_of("main") is backup
    assert registry.fallback_of("backup") is None
    assert registry.fallback_of("nobody") is None
    registry.register(backup)
    assert registry.get("backup") is backup


def test_a_chain_of_fallbacks_by_name_and_by_tool() -> None:
    """Fallbacks may be chained and mixed, in any order of one registration."""
    registry = Registry([named("a", fallback="b"), named("b", fallback=named("c", fallback="d")), named("d")])
    chain = ["a"]
    while (following := registry.fallback_of(chain[-1])) is not None:
        chain.append(following.name)
    assert chain == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([named("a", fallback="a")], "circle: a -> a"),
        ([named("a", fallback="b"), named("b", fallback="a")], "circle: a -> b -> a"),
        ([named("a", fallback=named("b", fallback="a"))], "circle: a -> b -> a"),
        ([named("a", fallback="nobody")], '"nobody" of tool "a" is not registered'),
        ([named("a", fallback=named("b", fallback="nobody"))], '"nobody" of tool "b" is not registered'),
        ([named("a", fallback=named("b")), named("b")], 'two different tools are named "."'),
        ([named("a", fallback=named("x")), named("b", fallback=named("x"))], 'two different tools are named "."'),
    ],
)
def test_fallbacks_that_lead_nowhere_are_refused(tools: list[Tool], said: str) -> None:
    """A circle, an unknown name and two tools of one name are refused before anything is registered."""
    registry = Registry()
    with pytest.raises(ToolDefinitionError, match=f"{said}($|;|,)"):
        registry.register(*tools)
    assert registry.version == 0


def test_a_circle_closed_later_is_refused() -> None:
    """A new tool cannot close a circle through an old one, nor can a tool that comes back."""
    registry = Registry([named("b"), named("a", fallback="b")])
    registry.unregister("b")
    assert registry.fallback_of("a") is None
    with pytest.raises(ToolDefinitionError, match="circle"):
        registry.register(named("b", fallback="a"))
    registry.register(named("b"))
    assert registry.fallback_of("a") is not None


def test_unregistering_takes_a_fallback_away_too() -> None:
    """A tool that was taken away is not called any more, not even as the fallback of another."""
    backup = named("backup")
    registry = Registry([backup, named("main", fallback=backup)])
    registry.unregister("backup")
    assert registry.fallback_of("main") is None
    assert registry.resolve("backup") is None
    registry.register(backup)
    assert registry.fallback_of("main") is backup


def test_counts() -> None:
    """Usage, failures, the newest error and latencies are kept per tool; a success leaves the last error."""
    registry = Registry([named("a")])
    assert registry.stats("a") == ToolStats()
    registry.record("a", True, "", 0.5)
    registry.record("a", False, "boom\ud800" * 1000, 1.5)
    registry.record("a", True, "", 1.0)
    stats = registry.stats("a")
    assert (stats.usage_count, stats.failures, stats.last_latency, stats.total_latency) == (3, 1, 1.0, 3.0)
    assert stats.last_error.startswith("boom\ufffd")
    assert len(stats.last_error) == 500
    registry.unregister("a")
    registry.record("a", True, "", 1.0)
    assert registry.stats("a").usage_count == 4
    registry.register(named("a"))
    assert registry.stats("a") == ToolStats()


def test_an_iteration_sees_one_state() -> None:
    """Changing the registry while it is iterated neither raises nor changes what this iteration gives."""
    registry = Registry([named("a"), named("b")])
    seen = []
    for one in registry:
        registry.register(named(f"{one.name}-new"))
        registry.unregister(one.name)
        seen.append(one.name)
    assert seen == ["a", "b"]
    assert registry.names() == ("a-new", "b-new")


def test_threads_register_and_record_without_loss() -> None:
    """Eight threads that register, read, record and unregister lose nothing and never see a torn state."""
    registry = Registry([named("shared")])
    start = threading.Barrier(8)
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            start.wait()
            for turn in range(50):
                registry.register(named(f"t{number}-{turn}"))
                assert "shared" in registry.names()
                assert len(list(registry)) >= 1
                registry.record("shared", turn % 2 == 0, "x", 1.0)
                registry.unregister(f"t{number}-{turn}")
        except BaseException as fault:  # told to the test below
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not faults
    assert registry.names() == ("shared",)
    stats = registry.stats("shared")
    assert (stats.usage_count, stats.failures, stats.total_latency) == (400, 200, 400.0)
    assert registry.version == 1 + 8 * 50 * 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["none", "a", "b", "c"]))))
def test_every_chain_of_fallbacks_ends(steps: list[tuple[str, str]]) -> None:
    """Whatever is registered and taken away, in any order: following fallbacks ends within the number of tools."""
    registry = Registry()
    for name, backup in steps:
        try:
            if name in registry:
                registry.unregister(name)
            else:
                registry.register(named(name, fallback=None if backup == "none" else backup))
        except ToolDefinitionError:
            continue
    for one in registry:
        hops = 0
        following: Tool | None = one
        while following is not None:
            following = registry.fallback_of(following.name)
            hops += 1
            assert hops <= len(registry)
