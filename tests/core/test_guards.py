"""The guards: both outcomes of each with the values that it says it compared, and its boundary to the last unit."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fsm_agent.alphabet import State
from fsm_agent.context import Context, Failure
from fsm_agent.dialects.base import Purpose
from fsm_agent.effects import Call, Usage
from fsm_agent.guards import GUARDS
from fsm_agent.ladder import backoff
from fsm_agent.limits import Limits
from fsm_agent.prompt import estimate_prompt
from fsm_agent.table import TABLE
from fsm_agent.tools import tool
from tests.core.builders import TOOLS, at, frozen, make_setup, result_of

FRESH = Call(id="a", name="add", tool="add", signature="s1")
REPEATED = Call(id="b", name="add", tool="add", signature="s2", refusal="again", refusal_kind="repeated", repeated=True)
INVALID = Call(id="c", name="add", tool="add", refusal="no", refusal_kind="invalid")
WAITING = Call(id="d", name="pay", tool="pay", signature="s3", needs_approval=True)
APPROVED = Call(id="e", name="pay", tool="pay", signature="s4", needs_approval=True, approved=True)
DENIED = Call(id="f", name="pay", tool="pay", signature="s5", needs_approval=True, refusal="no", refusal_kind="denied")

MODEL = Failure("model", "model", "503", retryable=True)
BROKEN = Failure("model", "model", "401", retryable=False)
TOOL = Failure("tool", "add", "boom", retryable=True)
REPLY = Failure("reply", "malformed", "not JSON")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A guard asked about a context: what it says, and the values it compared."""

    guard: str
    holds: bool
    ctx: Callable[[], Context]
    values: dict[str, Any] | Callable[[Context], dict[str, Any]]
    name: str

    def __str__(self) -> str:
        return f"{self.guard} {self.name}: {'yes' if self.holds else 'no'}"


CASES: list[Case] = []


def case(
    guard: str, name: str, holds: bool, values: dict[str, Any] | Callable[[Context], dict[str, Any]], **given: Any
) -> None:
    """Write a case down. `given` are the limits that differ, by their names, and fields of the context."""
    limits = {key: value for key, value in given.items() if key in Limits.model_fields}
    setup = {key: given[key] for key in ("tools", "ladder", "system", "simpler") if key in given}
    fields = {key: value for key, value in given.items() if key not in limits and key not in setup}

    def ctx() -> Context:
        made = at(State.DECIDE).change(setup=make_setup(limits=limits, **setup))
        return made.change(**{key: value(made) if callable(value) else value for key, value in fields.items()})

    CASES.append(Case(guard=guard, holds=holds, ctx=ctx, values=values, name=name))


# ---------------------------------------------------------------- calls


def repeats(fresh: int, repeated: int, **more: Any) -> dict[str, Any]:
    """What `repeated_action` compares."""
    return {"fresh_calls": fresh, "repeated_calls": repeated, "repeat_threshold": 2, **more}


case("repeated_action", "without a call", False, repeats(0, 0), calls=())
case("repeated_action", "a fresh call", False, repeats(1, 0), calls=(FRESH,))
case("repeated_action", "a call refused for something else", False, repeats(0, 0), calls=(INVALID,))
case("repeated_action", "a repeated call", True, repeats(0, 1, signature="s2"), calls=(REPEATED,))
case("repeated_action", "beside a refused one", True, repeats(0, 1, signature="s2"), calls=(INVALID, REPEATED))
case("repeated_action", "beside a fresh one", False, repeats(1, 1, signature="s2"), calls=(REPEATED, FRESH))


def spent(used: int, asked: int, limit: int) -> dict[str, Any]:
    """What `tool_calls_spent` compares."""
    return {"tool_calls": used, "asked": asked, "max_tool_calls": limit}


TWO = (FRESH, WAITING)
case("tool_calls_spent", "the last one allowed", False, spent(5, 1, 6), max_tool_calls=6, tool_calls=5, calls=(FRESH,))
case("tool_calls_spent", "one too many", True, spent(6, 1, 6), max_tool_calls=6, tool_calls=6, calls=(FRESH,))
case("tool_calls_spent", "a batch that just fits", False, spent(4, 2, 6), max_tool_calls=6, tool_calls=4, calls=TWO)
case("tool_calls_spent", "a batch that would pass", True, spent(5, 2, 6), max_tool_calls=6, tool_calls=5, calls=TWO)
case("tool_calls_spent", "none allowed", True, spent(0, 1, 0), max_tool_calls=0, tool_calls=0, calls=(FRESH,))
case(
    "tool_calls_spent",
    "refused calls do not count",
    False,
    spent(6, 0, 6),
    max_tool_calls=6,
    tool_calls=6,
    calls=(INVALID, REPEATED, DENIED),
)

case("approval_required", "a call that needs none", False, {"calls_waiting": 0}, calls=(FRESH,))
case("approval_required", "a call that has it", False, {"calls_waiting": 0}, calls=(APPROVED,))
case("approval_required", "a call that was refused", False, {"calls_waiting": 0}, calls=(DENIED,))
case("approval_required", "a call that lacks it", True, {"calls_waiting": 1}, calls=(FRESH, WAITING, APPROVED))
case("approval_required", "two", True, {"calls_waiting": 2}, calls=(WAITING, WAITING))

case("person_settles_doubt", "a person is asked", True, {"in_doubt": "review"}, in_doubt="review")
case("person_settles_doubt", "the model is told", False, {"in_doubt": "tell"}, in_doubt="tell")

case("stop_requested", "not asked for", False, {"stop_requested": False}, stop_requested=False)
case("stop_requested", "asked for", True, {"stop_requested": True}, stop_requested=True)

# ---------------------------------------------------------------- failures


def answered(forced: bool, again: bool) -> dict[str, Any]:
    """What `answer_failed` compares."""
    return {"forced": forced, "retry_available": again}


case("answer_failed", "no answer was forced", False, answered(False, False), forced=False)
case("answer_failed", "nor with a failure", False, answered(False, False), forced=False, failure=MODEL)
case("answer_failed", "the reply was no answer", True, answered(True, False), forced=True, failure=REPLY)
case("answer_failed", "nothing came", True, answered(True, False), forced=True, failure=None)
case("answer_failed", "a retry is left", False, answered(True, True), forced=True, failure=MODEL)
case("answer_failed", "no retry is left", True, answered(True, False), forced=True, failure=MODEL, attempt=2)
case(
    "answer_failed",
    "no time is left",
    True,
    answered(True, False),
    forced=True,
    failure=MODEL,
    deadline=9.0,
    at=9.0,
)

ONE = {"abort_after": 1, "degrade_after": 1}
case("circuit_open", "one below", False, {"failures": 2, "abort_after": 3}, failures=2)
case("circuit_open", "reached", True, {"failures": 3, "abort_after": 3}, failures=3)
case(
    "circuit_open",
    "a limit of one",
    True,
    {"failures": 1, "abort_after": 1},
    abort_after=1,
    degrade_after=1,
    failures=1,
)
case("failures_reached", "one below", False, {"failures": 1, "degrade_after": 2}, failures=1)
case("failures_reached", "reached", True, {"failures": 2, "degrade_after": 2}, failures=2)

for of in ("model_failing", "retrying_model"):
    case(of, "no failure", False, {"failure": ""}, failure=None)
    case(of, "a tool's", False, {"failure": "tool"}, failure=TOOL)
    case(of, "a reply's", False, {"failure": "reply"}, failure=REPLY)
    case(of, "the model's", True, {"failure": "model"}, failure=MODEL)

case("model_unusable", "no failure", False, {"failure": ""}, failure=None)
case("model_unusable", "a tool's failure", False, {"failure": "tool"}, failure=TOOL)
case(
    "model_unusable",
    "a retry is left",
    False,
    lambda ctx: {"failure": "model", "error": "503", "attempt": 1, "max_retries": 1, **waiting(ctx)},
    failure=MODEL,
)
case(
    "model_unusable",
    "a retry cannot help",
    True,
    {"failure": "model", "error": "401", "retryable": False},
    failure=BROKEN,
)
case(
    "model_unusable",
    "no retry is left",
    True,
    {"failure": "model", "error": "503", "attempt": 2, "max_retries": 1},
    failure=MODEL,
    attempt=2,
)

# ---------------------------------------------------------------- retries


def waiting(ctx: Context) -> dict[str, Any]:
    """What a retry compares at the end: how long it would wait."""
    return {"wait": round(backoff(ctx), 3), "backoff_max": ctx.limits.backoff_max}


def due(attempt: int, retries: int) -> Callable[[Context], dict[str, Any]]:
    """What `retry_available` compares for a retry that is due."""
    return lambda ctx: {"attempt": attempt, "max_retries": retries, **waiting(ctx)}


def wished(seconds: float) -> Failure:
    """A model failure with the server's own wish."""
    return Failure("model", "model", "429", retryable=True, retry_after=seconds)


ADD_CALL = Call(id="a", name="add", tool="add", signature="s")
BOOM = result_of("a", "add", "boom", ok=False, retryable=True)
ONE_BAD: dict[str, Any] = {"failure": TOOL, "calls": (ADD_CALL,), "results": (BOOM,)}

case("retry_available", "no failure", False, {"retryable": False}, failure=None)
case("retry_available", "a retry cannot help", False, {"retryable": False}, failure=BROKEN)
case("retry_available", "the first", True, due(1, 1), failure=MODEL)
case("retry_available", "one too many", False, {"attempt": 2, "max_retries": 1}, failure=MODEL, attempt=2)
case("retry_available", "the last of two", True, due(2, 2), failure=MODEL, attempt=2, max_retries=2)
case("retry_available", "none allowed", False, {"attempt": 1, "max_retries": 0}, failure=MODEL, max_retries=0)
case("retry_available", "the longest wait", True, due(1, 1), failure=wished(30.0))
case("retry_available", "a longer wait", False, due(1, 1), failure=wished(30.001))
case("retry_available", "a wait beyond the deadline", False, due(1, 1), failure=wished(5.0), deadline=9.0, at=4.0)
case("retry_available", "a wait within the deadline", True, due(1, 1), failure=wished(4.999), deadline=9.0, at=4.0)
case("retry_available", "a tool call", True, due(1, 1), **ONE_BAD)
case("retry_available", "a tool call again", False, {"attempt": 2, "max_retries": 1}, attempt=2, **ONE_BAD)
case(
    "retry_available",
    "the last tool call allowed",
    True,
    due(1, 1),
    max_tool_calls=2,
    tool_calls=1,
    **ONE_BAD,
)
case(
    "retry_available",
    "a tool call too many",
    False,
    {"attempt": 1, "max_retries": 1},
    max_tool_calls=2,
    tool_calls=2,
    **ONE_BAD,
)
case(
    "retry_available",
    "a call that a person approved",
    False,
    {"attempt": 1, "max_retries": 1},
    failure=TOOL,
    calls=(APPROVED,),
    results=(result_of("e", "pay", "boom", ok=False, retryable=True),),
)

# ---------------------------------------------------------------- tokens and time

LOTS = Usage(10**9, 0, 10**9)
case("token_budget_spent", "no budget", False, {"tokens": 10**9, "token_budget": None}, token_budget=None, usage=LOTS)


def filled(purpose: Purpose, usable: int, over: int) -> Callable[[Context], Usage]:
    """Tokens used so that the next prompt is `over` more than `usable` leaves."""

    def usage(ctx: Context) -> Usage:
        count = usable - estimate_prompt(ctx, purpose) + over
        return Usage(count, 0, count)

    return usage


def budget(purpose: Purpose, usable: int) -> Callable[[Context], dict[str, Any]]:
    """What `token_budget_spent` compares under a budget of 10,000 tokens."""
    return lambda ctx: {
        "tokens": ctx.usage.total,
        "next_prompt": estimate_prompt(ctx, purpose),
        "token_budget": 10_000,
        "usable": usable,
    }


# A tenth is kept for one answer, until it is asked for; without such an answer nothing is kept.
for on_limit, forced, usable in (("answer", False, 9_000), ("answer", True, 10_000), ("stop", False, 10_000)):
    purpose: Purpose = "answer" if forced else "plan"
    for over, named in ((0, "just fits"), (1, "one too many")):
        case(
            "token_budget_spent",
            f"{named}, {on_limit}{', forced' if forced else ''}",
            over == 1,
            budget(purpose, usable),
            token_budget=10_000,
            on_limit=on_limit,
            forced=forced,
            usage=filled(purpose, usable, over),
        )


def answerable(ctx: Context) -> dict[str, Any]:
    """What `can_answer_now` compares when an answer may be asked for at all."""
    budget = ctx.limits.token_budget
    left = None if budget is None else budget - ctx.usage.total
    return {"on_limit": "answer", "forced": False, "tokens_left": left, "next_prompt": estimate_prompt(ctx, "answer")}


case("can_answer_now", "switched off", False, {"on_limit": "stop", "forced": False}, on_limit="stop")
case("can_answer_now", "done before", False, {"on_limit": "answer", "forced": True}, forced=True)
case(
    "can_answer_now",
    "not on the ladder",
    False,
    {"on_limit": "answer", "forced": False},
    ladder=("fallback", "strategy"),
)
case("can_answer_now", "with a budget", True, answerable)
case("can_answer_now", "without a budget", True, answerable, token_budget=None)
case("can_answer_now", "its prompt just fits", True, answerable, token_budget=10_000, usage=filled("answer", 10_000, 0))
case(
    "can_answer_now",
    "its prompt is one too long",
    False,
    answerable,
    token_budget=10_000,
    usage=filled("answer", 10_000, 1),
)
case("can_answer_now", "a moment is left", True, answerable, deadline=9.0, at=8.999)
case("can_answer_now", "no time is left", False, answerable, deadline=9.0, at=9.0)

case("told_to_stop", "never asked", False, {"go_on": True, "reflections": 0})
case("told_to_stop", "asked, and told so", True, {"go_on": False, "reflections": 1}, go_on=False, reflections=1)
case("deadline_passed", "none", False, {"elapsed": 9e9, "deadline": None}, at=9e9)
case("deadline_passed", "just before", False, {"elapsed": 4.999, "deadline": 5.0}, deadline=5.0, at=4.999)
case("deadline_passed", "on the dot", True, {"elapsed": 5.0, "deadline": 5.0}, deadline=5.0, at=5.0)
case(
    "deadline_passed",
    "waiting for a person",
    False,
    {"elapsed": 4.0, "deadline": 5.0},
    deadline=5.0,
    at=90.0,
    waited=86.0,
)
case(
    "deadline_passed",
    "apart from the waiting",
    True,
    {"elapsed": 5.0, "deadline": 5.0},
    deadline=5.0,
    at=91.0,
    waited=86.0,
)

# ---------------------------------------------------------------- counts


@tool(fallback="look")
def fragile(q: str) -> str:
    """Find something, with a fallback."""
    return q


def rungs(rung: str | None, degradations: int = 0) -> dict[str, Any]:
    """What `can_degrade` compares."""
    return {"rung": rung, "degradations": degradations, "max_degradations": 3}


FRAGILE_CALL = Call(id="a", name="fragile", tool="fragile", signature="s")
FRAGILE: dict[str, Any] = {
    "failure": Failure("tool", "fragile", "boom"),
    "calls": (FRAGILE_CALL,),
    "results": (result_of("a", "fragile", "boom", ok=False),),
    "tools": (*TOOLS, fragile),
}
case("can_degrade", "no failure", False, rungs(None), failure=None)
case("can_degrade", "the model's failure", False, rungs(None), failure=MODEL)
case("can_degrade", "a reply's failure", True, rungs("strategy"), failure=REPLY)
case("can_degrade", "a tool without a fallback", True, rungs("strategy"), **ONE_BAD)
case("can_degrade", "a tool with a fallback", True, rungs("fallback"), **FRAGILE)
case("can_degrade", "the last one", True, rungs("fallback", 2), degradations=2, **FRAGILE)
case("can_degrade", "one too many", False, rungs(None, 3), degradations=3, **FRAGILE)
case("can_degrade", "a ladder without a fallback", True, rungs("strategy"), ladder=("strategy",), **FRAGILE)
case("can_degrade", "a ladder with a fallback only", False, rungs(None), ladder=("fallback",), **ONE_BAD)
case("can_degrade", "an answer is left", True, rungs("answer"), ladder=("fallback", "answer"), **ONE_BAD)
case("can_degrade", "no answer where none may be", False, rungs(None), ladder=("answer",), on_limit="stop", **ONE_BAD)
case(
    "can_degrade",
    "a stop, when all is used",
    True,
    rungs("stop", 3),
    ladder=("strategy", "stop"),
    degradations=3,
    **ONE_BAD,
)
case("can_degrade", "simpler tools", True, rungs("simpler"), ladder=("simpler",), simpler=("look",), **ONE_BAD)
case(
    "can_degrade", "simpler tools that are gone", False, rungs(None), ladder=("simpler",), simpler=("gone",), **ONE_BAD
)
case("can_degrade", "no step left for a strategy", False, rungs(None), step=10, **ONE_BAD)
case("can_degrade", "one step left for a strategy", True, rungs("strategy"), step=9, **ONE_BAD)
case("can_degrade", "no step left, but a fallback", True, rungs("fallback"), step=10, **FRAGILE)

case("nudges_spent", "as many as allowed", False, {"empty_replies": 2, "max_nudges": 2}, nudges=2)
case("nudges_spent", "one more", True, {"empty_replies": 3, "max_nudges": 2}, nudges=3)
case("nudges_spent", "none yet, none allowed", False, {"empty_replies": 0, "max_nudges": 0}, max_nudges=0)
case("nudges_spent", "the first, none allowed", True, {"empty_replies": 1, "max_nudges": 0}, max_nudges=0, nudges=1)
case("no_progress", "one below", False, {"idle_steps": 2, "no_progress_steps": 3}, idle_steps=2)
case("no_progress", "reached", True, {"idle_steps": 3, "no_progress_steps": 3}, idle_steps=3)
case("steps_spent", "one below", False, {"steps": 9, "max_steps": 10}, step=9)
case("steps_spent", "reached", True, {"steps": 10, "max_steps": 10}, step=10)


def earned(steps: int, cap: int, useful: int) -> dict[str, Any]:
    """What `steps_spent` compares when `max_steps` is adaptive."""
    return {"steps": steps, "max_steps": cap, "useful_steps": useful, "most_steps": 9}


grows: dict[str, Any] = {"max_steps": "adaptive", "base_steps": 5, "earned_steps": 2, "most_steps": 9}
case("steps_spent", "all that is granted to begin with", True, earned(5, 5, 0), step=5, useful_steps=0, **grows)
case("steps_spent", "one useful step has earned two", False, earned(6, 7, 1), step=6, useful_steps=1, **grows)
case("steps_spent", "those are spent too", True, earned(7, 7, 1), step=7, useful_steps=1, **grows)
case("steps_spent", "the ceiling", True, earned(9, 9, 8), step=9, useful_steps=8, **grows)

# ---------------------------------------------------------------- tests


@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_guard_says_whether_it_holds_and_what_it_compared(one: Case) -> None:
    """The result is right on both sides of the boundary, and the values are exactly those that decided."""
    ctx = one.ctx()
    values = one.values(ctx) if callable(one.values) else one.values
    assert GUARDS[one.guard].test(ctx) == (one.holds, values)


@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_guard_is_pure(one: Case) -> None:
    """Asking changes nothing, and asking again gives the same."""
    ctx = one.ctx()
    before = frozen(ctx)
    assert GUARDS[one.guard].test(ctx) == GUARDS[one.guard].test(ctx)
    assert frozen(ctx) == before


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_is_tested_both_ways(name: str) -> None:
    """A new guard without a case for each outcome fails here."""
    assert {one.holds for one in CASES if one.guard == name} == {True, False}


@pytest.mark.parametrize("one", CASES, ids=str)
def test_the_values_of_a_guard_can_be_recorded(one: Case) -> None:
    """What a guard compared is plain data: it goes into logs and trails as it is."""
    _, values = GUARDS[one.guard].test(one.ctx())
    assert json.loads(json.dumps(values, allow_nan=False)) == values


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_has_a_sentence(name: str) -> None:
    """The sentence names limits that exist, and shows their values or, without any, their names."""
    guard = GUARDS[name]
    fields = {field for _, field, _, _ in string.Formatter().parse(guard.sentence) if field}
    assert fields <= set(Limits.model_fields)
    assert not guard.sentence.endswith(".")
    for field in fields:
        assert field in guard.describe()
        value = getattr(Limits(), field)
        assert (f"never: {field} is off" if value is None else str(value)) in guard.describe(Limits())
    assert "{" not in guard.describe()


def test_every_guard_is_used_by_the_table_under_its_own_name() -> None:
    """The docs list the guards by name; one that no row asks would say something untrue."""
    assert {guard.name: guard for row in TABLE for guard in row.guards} == GUARDS
