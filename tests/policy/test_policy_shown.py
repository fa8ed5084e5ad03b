"""A policy drawn, and proved: the machine that its rules are, in every format and in the certificate."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from hypothesis import given

from fsm_agent import Agent, Limits
from fsm_agent.diagrams.policy import policy_diagram
from fsm_agent.errors import DefinitionError
from fsm_agent.observe import silent_logger
from fsm_agent.policy import AtMost, NeverAfter, OneOf, Order, Stages, ToolPolicy
from fsm_agent.policy.machine import MOST_DRAWN, machines
from fsm_agent.testing import ScriptedModel
from fsm_agent.verify import Certificate, verify
from fsm_agent.verify.policy import examined
from tests.policy.kit import policies

SHOP = ToolPolicy(Order("query_order", "discount", "pay"), AtMost("pay"))
FEW = Limits(max_steps=4, abort_after=2, degrade_after=2, no_progress_steps=1, max_nudges=0, max_degradations=0)
NAMES = ("query_order", "discount", "pay")


def agent(policy: ToolPolicy | None = SHOP, *names: str, limits: Limits = FEW) -> Agent:
    """An agent whose tools have these names."""
    tools = [_named(name) for name in names or NAMES]
    return Agent(ScriptedModel([]), tools, policy=policy, limits=limits, logger=silent_logger())


def _named(name: str) -> Any:
    def run() -> str:
        return name

    run.__name__, run.__doc__ = name, f"Do {name}."
    return run


def proved(policy: ToolPolicy, limits: Limits = FEW, tools: list[str] | None = None) -> Certificate:
    """The certificate of the loop with this policy."""
    return verify(limits, policy=policy, tools=tools)


# ---------------------------------------------------------------- drawn


def test_the_positions_and_calls_of_a_policy() -> None:
    """A chain with a bound is as many boxes as it has steps, each with what may be called there."""
    (machine,) = machines(SHOP.rules)
    assert machine.names == ("start", "query_order succeeded", "discount succeeded", "discount succeeded; pay used up")
    assert machine.free == (
        ("query_order",),
        ("query_order", "discount"),
        ("query_order", "discount", "pay"),
        ("query_order", "discount"),
    )
    assert [(one.source, one.target, one.label) for one in machine.moves] == [
        (0, 1, "query_order succeeded"),
        (1, 2, "discount succeeded"),
        (2, 3, "pay"),
    ]


def test_rules_that_share_no_tool_are_machines_beside_each_other() -> None:
    """Each has a start of its own; a bound above one is told as its last call."""
    policy = ToolPolicy(AtMost("search", 5), Order("a", "b"), AtMost("b", 2))
    assert [one.names[0] for one in machines(policy.rules)] == ["start", "start"]
    text = policy_diagram(policy)
    assert "start(( )) --> s_0_0" in text
    assert "start1(( )) --> s_1_0" in text
    assert "search, the last of 5" in text
    assert policy_diagram(policy, "dot").count("shape=circle") == 2


def test_a_policy_that_is_too_large_to_read_is_drawn_rule_by_rule() -> None:
    """Twenty independent checks before one tool are twenty small machines, not a million boxes."""
    policy = ToolPolicy(*(Order(f"check_{number}", "pay") for number in range(20)))
    found = machines(policy.rules)
    assert len(found) == 20
    assert sum(len(one.names) for one in found) == 40


@given(policies(("a", "b", "c", "d")))
def test_the_drawn_machine_says_what_the_policy_allows(policy: ToolPolicy) -> None:
    """In every machine, a tool that may be called somewhere is shown there, and no move leaves by one that may not."""
    for machine in machines(policy.rules):
        assert (
            len(machine.names)
            == len(machine.free)
            <= max(MOST_DRAWN, len(machine.names) if len(machine.rules) == 1 else 0)
        )
        assert all(move.tool in machine.free[move.source] for move in machine.moves)
        assert {tool for free in machine.free for tool in free} == {
            tool for rule in machine.rules for tool in rule.tools
        }


def test_an_agent_draws_its_policy_in_every_format() -> None:
    """Mermaid, DOT, Markdown and CSV come without a program; the agent's own Markdown has the policy below its table."""
    one = agent()
    assert one.policy_diagram().startswith("flowchart TD")
    assert one.policy_diagram("dot").startswith("digraph machine")
    assert "- pay at most once" in one.policy_diagram("markdown")
    assert "- pay at most once" in one.diagram("markdown")
    assert one.diagram() == agent(None).diagram()
    rows = list(csv.reader(one.policy_diagram("csv").splitlines()))
    assert rows[0] == ["where", "may be called", "call", "leads to"]
    assert rows[-1] == ["discount succeeded; pay used up", "query_order, discount", "", ""]


def test_what_cannot_be_drawn_is_said() -> None:
    """An agent without a policy, and a format that there is not, are refused in words."""
    with pytest.raises(DefinitionError, match="no tool policy to draw"):
        agent(None).policy_diagram()
    wrong: Any = "gif"
    with pytest.raises(DefinitionError, match="no diagram format 'gif'"):
        agent().policy_diagram(wrong)


# ---------------------------------------------------------------- proved


def test_the_certificate_says_what_was_proved_of_the_policy() -> None:
    """Its rules are among the sentences, its size and how soon each tool can come stand beside, in print and as JSON."""
    found = agent().verify()
    assert found.ok
    assert found.policy is not None
    assert (found.policy.positions, found.policy.moves) == (4, 3)
    assert found.policy.soonest == {"query_order": (1, 1), "discount": (2, 2), "pay": (3, 3)}
    assert "in every run: pay at most once" in found.proved
    assert "each tool of the policy can be called in some run" in found.proved
    assert "2 rules, 4 positions, 3 moves" in str(found)
    assert json.loads(found.to_json())["policy"]["soonest"]["pay"] == [3, 3]
    assert agent(None).verify().policy is None


def test_the_policy_takes_nothing_from_the_proof_of_the_loop() -> None:
    """What is proved of the loop with a policy is what is proved without one, and more."""
    plain, held = verify(FEW), proved(SHOP)
    assert set(plain.proved) < set(held.proved)
    assert (plain.configurations, plain.transitions, plain.worst) == (held.configurations, held.transitions, held.worst)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_steps": 2}, "pay can never be called: it is due in step 3 at the earliest, and max_steps is 2"),
        ({"max_tool_calls": 2}, "pay can never be called: it is call 3 at the earliest, and max_tool_calls is 2"),
    ],
)
def test_a_tool_that_can_never_run_in_this_loop_is_a_fault(limits: dict[str, Any], said: str) -> None:
    """Limits that end every run before a tool's turn are told with the rule that makes it wait."""
    found = proved(SHOP, FEW.replace(**limits))
    assert [fault.kind for fault in found.faults] == ["uncallable"]
    assert (
        found.faults[0].sentence
        == f"{said} (rule: discount only after query_order has succeeded; pay only after discount has succeeded)"
    )
    assert not any("some run" in sentence for sentence in found.proved)


def test_a_tool_that_was_taken_away_is_a_fault() -> None:
    """A policy whose tools are not all there is not proved; the rule is named."""
    one = agent()
    one.tools.unregister("discount")
    (fault,) = one.verify().faults
    assert (fault.kind, "'discount'" in fault.sentence, "discount only after query_order" in fault.sentence) == (
        "uncallable",
        True,
        True,
    )


BROKEN = {
    "order": (Order, Order("a", "b")),
    "at most": (AtMost, AtMost("a", 2)),
    "never after": (NeverAfter, NeverAfter("a", after="b")),
    "one of": (OneOf, OneOf("a", "b")),
    "stages": (Stages, Stages(("0", "a", "1"), ("1", "b", "2"))),
}


@pytest.mark.parametrize(("kind", "rule"), BROKEN.values(), ids=BROKEN)
def test_a_rule_that_lets_through_what_it_forbids_is_found(
    kind: Any, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof turns the real rule: with a rule that refuses nothing, it fails and says what can be executed."""
    policy = ToolPolicy(rule)
    assert proved(policy).ok
    monkeypatch.setattr(kind, "refusal", lambda *_: "")
    found = proved(policy)
    assert "policy" in {fault.kind for fault in found.faults}
    assert rule.sentence() in str(found)
    assert f"in every run: {rule.sentence()}" not in found.proved


def test_a_rule_that_forgets_its_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs at the same time is part of the proof."""
    right = NeverAfter.refusal
    monkeypatch.setattr(
        NeverAfter, "refusal", lambda self, mark, tool, running, language: right(self, mark, tool, (), language)
    )
    found = proved(ToolPolicy(NeverAfter("a", after="b")))
    assert any("can be executed" in fault.sentence for fault in found.faults)


@given(policies(("a", "b", "c", "d")))
def test_every_policy_that_can_be_made_is_proved(policy: ToolPolicy) -> None:
    """No policy that passes its own checks has a rule that can be broken."""
    proof, faults = examined(policy, Limits(max_steps=99))
    assert faults == ()
    assert set(proof.soonest) == set(policy.tools)
