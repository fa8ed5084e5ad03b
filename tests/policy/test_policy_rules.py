"""The rules of a policy by themselves: what they allow, what they say, and which policies are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import PolicyError
from fsm_agent.policy import AtMost, NeverAfter, OneOf, Order, Stages, ToolPolicy
from fsm_agent.policy.reach import Reach, reach
from tests.policy.kit import policies

SHOP = ToolPolicy(Order("query_order", "discount", "pay"), AtMost("pay"))
TOOLS = ("query_order", "discount", "pay", "search")
BROWSE = Stages(("open", "search", "open"), ("open", "choose", "chosen"), ("chosen", "pay", "paid"))


def wrong(value: Any) -> Any:
    """A value that no type checker would let through."""
    return value


def played(policy: ToolPolicy, *calls: str) -> Any:
    """The position after calls one by one; "!" before a name: it failed."""
    position = policy.start
    for name in calls:
        tool = name.removeprefix("!")
        assert policy.allows(position, tool), name
        position = policy.began(position, tool)
        if name == tool:
            position = policy.succeeded(position, tool)
    return position


def free(policy: ToolPolicy, position: Any, *running: str, tools: tuple[str, ...] = TOOLS) -> list[str]:
    """What may be called there, beside what runs."""
    return [one for one in tools if policy.allows(position, one, running)]


def test_a_tool_waits_for_the_success_of_the_one_before() -> None:
    """In an order a failure opens nothing, a success opens the next, and what was open stays so."""
    assert free(SHOP, SHOP.start) == ["query_order", "search"]
    assert free(SHOP, played(SHOP, "!query_order")) == ["query_order", "search"]
    assert free(SHOP, played(SHOP, "query_order")) == ["query_order", "discount", "search"]
    assert free(SHOP, played(SHOP, "query_order", "discount")) == ["query_order", "discount", "pay", "search"]


def test_calls_of_one_reply_do_not_wait_for_each_other() -> None:
    """Of what runs at the same time nothing has succeeded, and what is bounded is used."""
    assert free(SHOP, SHOP.start, "query_order") == ["query_order", "search"]
    ready = played(SHOP, "query_order", "discount")
    assert "pay" not in free(SHOP, ready, "pay")
    late = ToolPolicy(NeverAfter("cancel", after="pay"))
    assert free(late, late.start, "cancel", tools=("pay", "cancel")) == ["cancel"]
    assert free(late, late.start, "pay", tools=("pay", "cancel")) == ["pay"]


@pytest.mark.parametrize("call", ["pay", "!pay"])
def test_what_may_have_had_its_effect_counts(call: str) -> None:
    """A call that failed uses up what is bounded, forbids what may not follow, and chooses one of several."""
    policy = ToolPolicy(AtMost("pay"), NeverAfter("cancel", after="pay"), OneOf("pay", "invoice"))
    assert free(policy, played(policy, call), tools=("pay", "cancel", "invoice", "search")) == ["search"]


def test_a_bound_of_several_counts_them() -> None:
    """At most three are three, failed ones too."""
    policy = ToolPolicy(AtMost("search", 3))
    assert free(policy, played(policy, "search", "!search")) == list(TOOLS)
    assert "search" not in free(policy, played(policy, "search", "!search"), "search")
    assert "search" not in free(policy, played(policy, "search", "!search", "search"))


def test_stages_are_a_machine_of_their_own() -> None:
    """A success moves along the row, a failure stays, and a call that moves is the only one of them in its reply."""
    policy, tools = ToolPolicy(BROWSE), ("search", "choose", "pay", "other")
    assert free(policy, policy.start, tools=tools) == ["search", "choose", "other"]
    assert free(policy, policy.start, "search", tools=tools) == ["search", "other"]
    assert free(policy, policy.start, "choose", tools=tools) == ["other"]
    assert free(policy, played(policy, "!choose"), tools=tools) == ["search", "choose", "other"]
    assert free(policy, played(policy, "search", "choose"), tools=tools) == ["pay", "other"]
    assert free(policy, played(policy, "choose", "pay"), tools=tools) == ["other"]


def test_the_success_of_a_fallback_stands_for_what_was_asked() -> None:
    """A rule takes a fallback that it does not name for the tool that the model called."""
    begun = SHOP.began(SHOP.start, "query_order")
    after = SHOP.succeeded(SHOP.began(begun, "archive"), "archive", "query_order")
    assert "discount" in free(SHOP, after)
    own = ToolPolicy(Order("archive", "pay"))
    assert own.allows(own.succeeded(own.began(own.start, "archive"), "archive", "query_order"), "pay")


def test_a_refusal_says_what_is_missing_and_what_may_be_called_now() -> None:
    """The model reads what has to come first and which tools are open, in its language."""
    assert SHOP.refusal(SHOP.start, "pay", names=TOOLS) == (
        "Refused by the tool policy: pay may be called only after discount has succeeded; missing, in this order: "
        "query_order, discount. Tools that may be called now: query_order, search."
    )
    assert SHOP.refusal(SHOP.start, "discount", ["query_order"], names=("query_order", "discount"), language="zh") == (
        "工具规则拒绝了此调用：query_order 成功之后才能调用 discount，而这次回复同时调用了它；请在之后的回复中再调用 discount。"
        "现在可以调用的工具：query_order。"
    )
    used = ToolPolicy(AtMost("pay"))
    assert used.refusal(played(used, "pay"), "pay", names=("pay",)).endswith(
        "No tool may be called now: give the final answer."
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_refusal_and_rule_is_in_both_languages(language: Any) -> None:
    """Each rule says itself and each of its refusals, with the names in it."""
    rules = (Order("a", "b", "c"), AtMost("a", 2), NeverAfter("a", after="b"), OneOf("a", "b"), BROWSE)
    for rule in rules:
        assert all(tool in rule.sentence(language) for tool in rule.tools)
    refusals = [
        Order("a", "b").refusal(0, "b", (), language),
        Order("a", "b").refusal(0, "b", ("a",), language),
        AtMost("a", 2).refusal(2, "a", (), language),
        NeverAfter("a", after="b").refusal(1, "a", (), language),
        NeverAfter("a", after="b").refusal(0, "b", ("a",), language),
        OneOf("a", "b").refusal("b", "a", (), language),
        BROWSE.refusal("open", "pay", (), language),
        BROWSE.refusal("paid", "pay", (), language),
        BROWSE.refusal("open", "choose", ("search",), language),
    ]
    assert all(refusals)
    assert len(set(refusals)) == len(refusals)
    assert all((max(text) > "\u4e00") is (language == "zh") for text in refusals)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (ToolPolicy, "at least one rule"),
        (lambda: ToolPolicy(wrong("pay once")), "is no rule"),
        (lambda: Order("a"), "at least 2 tools"),
        (lambda: Order("a", "b", "a"), "names a twice"),
        (lambda: Order("a", ""), "no name of a tool"),
        (lambda: AtMost("pay", 0), "give 1 or more"),
        (lambda: AtMost("pay", True), "give 1 or more"),
        (lambda: AtMost(wrong(3)), "no name of a tool"),
        (lambda: NeverAfter("a", after="a"), "AtMost"),
        (lambda: OneOf("a"), "at least 2 tools"),
        (Stages, "at least one row"),
        (lambda: Stages("abc"), "is no row"),
        (lambda: Stages(("a", "t")), "is no row"),
        (lambda: Stages(("a", "t", "b"), ("a", "t", "c")), "two rows for t in a"),
        (lambda: Stages(("a", "t", "b"), ("c", "u", "b")), "no row leads to the stage c"),
        (lambda: ToolPolicy(AtMost("a", 1), AtMost("a", 2)), "say the same"),
        (lambda: ToolPolicy(Order("a", "b"), Order("a", "b")), "say the same"),
        (
            lambda: ToolPolicy(Order("a", "b"), Order("b", "a")),
            r"a could never be called .*a only after b has succeeded",
        ),
        (lambda: ToolPolicy(Order("a", "b"), Order("b", "c"), Order("c", "a")), r"could never .*a only after c"),
        (lambda: ToolPolicy(Order("a", "b"), OneOf("a", "b")), r"b could never be called .*only one of a, b"),
        (lambda: ToolPolicy(Order("a", "b"), NeverAfter("b", after="a")), r"b could never be called .*b never once a"),
        (lambda: ToolPolicy(BROWSE, Order("pay", "choose")), r"could never be called .*choose only after pay"),
        (
            lambda: ToolPolicy(Stages(("0", "a", "1"), ("1", "a", "2"), ("2", "b", "2")), AtMost("a")),
            r"b could never be called .*a at most once",
        ),
    ],
)
def test_a_wrong_policy_is_refused_when_it_is_made(make: Callable[[], object], said: str) -> None:
    """A contradiction, a circle, a bound of nothing and a tool that could never run are told with the rule."""
    with pytest.raises(PolicyError, match=said):
        make()


def test_a_policy_that_names_a_tool_that_there_is_not_says_so() -> None:
    """The error has the tool, the tools that there are, and the rule."""
    with pytest.raises(PolicyError, match=r"'pay'.*it has query_order, discount") as caught:
        SHOP.check_names(["query_order", "discount"])
    assert caught.value.rule == "discount only after query_order has succeeded; pay only after discount has succeeded"


@given(policies(("a", "b", "c", "d")))
def test_a_policy_is_data(policy: ToolPolicy) -> None:
    """Through JSON it comes back equal, and equal policies are one value."""
    again = ToolPolicy.of(json.loads(json.dumps(policy.to_data())))
    assert again == policy
    assert hash(again) == hash(policy)


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], {}, {"rules": {}}, {"rules": [], "more": 1}, {"rules": ["pay"]}, {"rules": [{}]}),
        {"rules": [{"rule": "os.system", "tools": ["ls"]}]},
        {"rules": [{"rule": "order", "tools": "ab"}]},
        {"rules": [{"rule": "order", "tools": ["a", 1]}]},
        {"rules": [{"rule": "at_most", "tool": "a", "times": "1"}]},
        {"rules": [{"rule": "at_most", "tool": "a", "most": 1}]},
        {"rules": [{"rule": "never_after", "tool": "a"}]},
        {"rules": [{"rule": "stages", "rows": [["a", "b"]]}]},
        {"rules": [{"rule": ["order"]}]},
    ],
)
def test_data_that_is_no_policy_is_refused(data: Any) -> None:
    """Whatever stands in a file or a trail, it is a policy or an error that says what is wrong."""
    with pytest.raises(PolicyError):
        ToolPolicy.of(data)


def test_how_soon_a_tool_can_be_called() -> None:
    """A step for each success that is waited for, calls for all of them; of what has no order, none."""
    wide = ToolPolicy(*(Order(f"check_{number}", "pay") for number in range(30)))
    assert reach(SHOP.rules, "pay") == Reach(3, 3)
    assert reach(SHOP.rules, "query_order") == Reach(1, 1)
    assert reach(wide.rules, "pay") == Reach(2, 31)
    assert reach([BROWSE], "pay") == Reach(2, 2)
    assert reach([Order("a", "b"), NeverAfter("a", after="c"), Order("c", "b")], "b") == Reach(3, 3)
    assert reach([BROWSE, Order("search", "choose")], "pay") == Reach(2, 3)


@given(policies(("a", "b", "c"), most=3), st.data())
def test_reach_agrees_with_trying_everything(policy: ToolPolicy, data: st.DataObject) -> None:
    """The fewest calls until a tool is open are those that a search through all positions finds."""
    tool = data.draw(st.sampled_from(policy.tools))
    found, waiting = {policy.start: 1}, [policy.start]
    for position in waiting:
        for name in policy.tools:
            if policy.allows(position, name):
                failed = policy.began(position, name)
                for after in (failed, policy.succeeded(failed, name)):
                    if after not in found:
                        found[after] = found[position] + 1
                        waiting.append(after)
    fewest = min(calls for position, calls in found.items() if policy.allows(position, tool))
    known = reach(policy.rules, tool)
    assert known is not None
    assert known.calls == fewest
    assert known.steps <= known.calls
