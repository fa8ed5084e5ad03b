"""All families at once: for any behaviour of model, tools and people, and any limits, what must always hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import SystemMessage

from fsm_agent import Answer, Approve, Deny, Edit, Event, Full, Status, Window, tool
from fsm_agent.memory import InMemoryConversations
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call, reply
from tests.faults.kit import WAYS, Ledger, assert_sendable, consistent, faults_of, make, run

FENCE = "```"
REPLIES: list[Any] = [
    "an answer",
    "",
    "  ",
    "<think>hm</think>",
    reply("half an ans", finish_reason="length"),
    reply("", finish_reason="tool_calls"),
    reply("", refusal="I would rather not."),
    reply("Let me see.", call("work", n=1)),
    call("work", n=1),
    call("work", n=2),
    call("work", n=3),
    call("work", n="1"),
    call("work", n=1, dry_run=True),
    call("flaky", n=1),
    call("pay", amount=1),
    call("pay", amount=2),
    [call("pay", amount=4), call("pay", amount=5), call("work", n=4)],
    call("missing"),
    [call("work", n=1), call("flaky", n=2), call("missing")],
    [Call("work", {"n": 1}, id="c"), Call("work", {"n": 2}, id="c"), Call("pay", {"amount": 3}, id=None)],
    [call("work", n=1), call("work", n=1)],
    Call("purge", '{"scope": "tm'),
    Call("purge", "scope"),
    Call("purge", f"{FENCE}json\n[1]\n{FENCE}"),
    Call("work", f'{FENCE}json\n{{"n": 4}}\n{FENCE}'),
    Call("functions.work", {"n": 5}),
    Call("multi_tool_use.parallel", {"tool_uses": [{"recipient_name": "work", "parameters": {"n": 6}}]}),
    '<tool_call>{"name": "work", "arguments": {"n": 7}}</tool_call>',
    '<tool_call>{"name": "purge", "arguments": {"sco',
    reply("", call("work", n=8), usage=None),
    reply("", call("work", n=9), usage=(4000, 100)),
    ConnectionError("down"),
    ValueError("odd"),
    TimeoutError(),
]
DECISIONS: list[Any] = [
    True,
    False,
    Approve(),
    Deny("no"),
    Deny("stop", stop=True),
    Edit({"amount": 9}),
    Edit({"amount": "x"}),
    Answer("paid in cash"),
    Answer(""),
]
LIMITS = st.fixed_dictionaries(
    {
        "max_steps": st.integers(1, 8),
        "max_tool_calls": st.integers(0, 12),
        "token_budget": st.sampled_from([None, 50, 400, 3000, 100_000]),
        "deadline": st.sampled_from([None, 0.5, 5.0, 60.0]),
        "degrade_after": st.integers(1, 3),
        "abort_after": st.integers(3, 5),
        "repeat_threshold": st.integers(1, 3),
        "no_progress_steps": st.integers(1, 4),
        "max_retries": st.integers(0, 2),
        "max_nudges": st.integers(0, 2),
        "max_degradations": st.integers(0, 3),
        "on_limit": st.sampled_from(["answer", "stop"]),
    }
)


class World:
    """Tools and people that behave as drawn, and count what they did."""

    def __init__(self, moods: list[int], clock: FakeClock) -> None:
        self.ledger, self.clock = Ledger(), clock
        self.moods, self.turn = moods, 0
        self.denied: set[int] = set()

    def mood(self) -> int:
        """The next drawn number."""
        self.turn += 1
        return self.moods[self.turn % len(self.moods)]

    def tools(self) -> list[Any]:
        """One that works, one that may fail and has a fallback, one that asks, one that must never run by accident."""

        def work(n: int) -> str:
            """Work."""
            self.ledger.note(tool="work", n=n)
            self.clock.advance(0.1)
            return f"worked {n % 3}"

        def spare(n: int) -> str:
            """The spare of flaky."""
            self.ledger.note(tool="spare", n=n)
            if self.mood() % 3 == 0:
                raise OSError("spare down")
            return "spare"

        @tool(fallback=tool(spare))
        def flaky(n: int) -> str:
            """Work, or not."""
            self.ledger.note(tool="flaky", n=n)
            errors: list[Any] = [ConnectionError("down"), TypeError("typo"), ValueError(), None]
            error = errors[self.mood() % len(errors)]
            if error is not None:
                raise error
            return f"flaky {self.turn}"

        @tool(requires_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.ledger.note(tool="pay", amount=amount)
            return f"paid {amount}"

        def purge(scope: str = "all") -> str:
            """Delete."""
            self.ledger.note(tool="purge", scope=scope)
            return "purged"

        return [work, flaky, pay, purge]

    def approve(self, one: Any) -> Any:
        """Decide as drawn, and remember what was denied."""
        decision = DECISIONS[self.mood() % len(DECISIONS)]
        if decision is False or isinstance(decision, Deny):
            self.denied.add(one.arguments["amount"])
        elif decision is True or isinstance(decision, Approve):
            self.denied.discard(one.arguments["amount"])
        return decision


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(
    said=st.lists(st.integers(0, len(REPLIES) - 1), min_size=1, max_size=8),
    moods=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    limits=LIMITS,
    window=st.sampled_from([0, 1, 3]),
)
def test_whatever_happens_a_run_ends_and_its_books_agree(
    way: str, said: list[int], moods: list[int], limits: dict[str, Any], window: int
) -> None:
    """It ends typed, its records are one chain, its prompts are valid, and what ran is what was counted and allowed."""
    clock = FakeClock()
    world = World(moods, clock)
    model = ScriptedModel(lambda request: REPLIES[said[request.number % len(said)]])
    memory = Window(window) if window else Full()
    kept: dict[str, Any] = {"memory": memory, "store": InMemoryConversations()}
    agent = make(model, world.tools(), clock=clock, limits=limits, approve=world.approve, **kept)
    result = run(agent, "do it", way, {"configurable": {"thread_id": "t"}})

    assert result.status in (Status.COMPLETED, Status.PARTIAL, Status.FAILED)
    assert (result.answer is not None) is (result.status in (Status.COMPLETED, Status.PARTIAL))
    assert result.answer is None or result.answer.strip()
    assert result.reason is not None
    assert result.detail
    assert result.reason != "internal_error", result.detail
    assert consistent(result.transitions)
    assert_sendable(model.requests)
    assert faults_of([SystemMessage("s"), *result.messages], alternate=False) == []

    executed = [entry["tool"] for entry in world.ledger.entries]
    assert len(executed) == result.tool_calls <= limits["max_tool_calls"]
    assert model.count == result.model_calls
    assert result.steps <= limits["max_steps"]
    assert "purge" not in executed
    assert sum(not request.tools for request in model.requests) <= 1 + limits["max_retries"]
    events = [record.event for record in result.transitions]
    assert events.count(Event.ANSWER_FORCED) <= 1
    assert events.count(Event.REPLIED) + events.count(Event.MODEL_FAILED) == result.model_calls
    degraded = events.count(Event.FALLBACK_CHOSEN) + events.count(Event.STRATEGY_CHANGED)
    assert degraded <= limits["max_degradations"]
    tokens = [record.tokens for record in result.transitions]
    assert tokens == sorted(tokens)
    assert tokens[-1] == result.usage.total == result.usage.input + result.usage.output

    after = ScriptedModel(["the next answer"])
    again = run(
        make(after, world.tools(), **kept),
        "go on",
        way,
        {"configurable": {"thread_id": "t"}},
    )
    assert again.answer == "the next answer"
    assert_sendable(after.requests)
