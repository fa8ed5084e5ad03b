"""The limits: their names and defaults, what is refused and how the refusal reads, and the environment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import Agent
from fsm_agent.errors import DefinitionError
from fsm_agent.limits import ENV_PREFIX, Limits
from fsm_agent.testing import ScriptedModel

DEFAULTS: dict[str, Any] = {
    "max_steps": 10,
    "base_steps": 5,
    "earned_steps": 1,
    "most_steps": 30,
    "max_tool_calls": 50,
    "token_budget": 100_000,
    "deadline": None,
    "degrade_after": 2,
    "abort_after": 3,
    "repeat_threshold": 2,
    "repeats": "any",
    "no_progress_steps": 3,
    "max_retries": 1,
    "backoff": 1.0,
    "backoff_factor": 2.0,
    "backoff_max": 30.0,
    "jitter": 0.1,
    "max_nudges": 2,
    "max_degradations": 3,
    "model_timeout": 60.0,
    "tool_timeout": 30.0,
    "approval_timeout": None,
    "max_result_chars": 8_000,
    "max_parallel": 8,
    "on_limit": "answer",
    "in_doubt": "review",
}
# The smallest value that each takes; one step below it is refused.
SMALLEST: dict[str, float] = {
    "max_steps": 1,
    "base_steps": 1,
    "earned_steps": 0,
    "most_steps": 1,
    "max_tool_calls": 0,
    "token_budget": 1,
    "degrade_after": 1,
    "abort_after": 1,
    "repeat_threshold": 1,
    "no_progress_steps": 1,
    "max_retries": 0,
    "backoff": 0.0,
    "backoff_factor": 1.0,
    "backoff_max": 0.0,
    "jitter": 0.0,
    "max_nudges": 0,
    "max_degradations": 0,
    "max_result_chars": 1,
    "max_parallel": 1,
}
LARGEST: dict[str, float] = {
    "max_steps": 100_000,
    "base_steps": 100_000,
    "earned_steps": 100,
    "most_steps": 100_000,
    "max_retries": 100,
    "jitter": 1.0,
}
ABOVE_ZERO = ("deadline", "model_timeout", "tool_timeout", "approval_timeout")


def unit(value: object) -> float:
    """The smallest step that is tested: one for a count, a thousandth for the rest."""
    return 1 if isinstance(value, int) else 0.001


def test_the_names_and_defaults_are_the_decided_ones() -> None:
    """The limits are the public numbers of the design; a renamed or changed one fails here."""
    assert Limits().model_dump() == DEFAULTS


def test_every_number_has_a_tested_range() -> None:
    """A new limit without a boundary fails here."""
    assert set(SMALLEST) | set(ABOVE_ZERO) | {"on_limit", "in_doubt", "repeats"} == set(Limits.model_fields)


@pytest.mark.parametrize("name", Limits.model_fields)
def test_every_limit_says_what_it_is_for(name: str) -> None:
    """The description is what the CLI and the docs show: one sentence."""
    assert len(Limits.model_fields[name].description or "") > 20


def with_one(name: str, value: Any) -> Limits:
    """Limits with one changed; what has to be below it, or above, goes along."""
    others = {
        "abort_after": {"degrade_after": 1},
        "most_steps": {"base_steps": 1},
        "base_steps": {"most_steps": 100_000},
    }
    return Limits(**{name: value, **others.get(name, {})})


@pytest.mark.parametrize(("name", "value"), [*SMALLEST.items(), *LARGEST.items()])
def test_the_ends_of_a_range_are_allowed(name: str, value: float) -> None:
    """The boundary itself is a legal value."""
    assert getattr(with_one(name, value), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value - unit(value)) for name, value in SMALLEST.items()),
        *((name, value + unit(value)) for name, value in LARGEST.items()),
        *((name, 0) for name in ABOVE_ZERO),
    ],
)
def test_one_step_beyond_a_range_is_refused_by_name_and_value(name: str, value: float) -> None:
    """The error says which limit, what is allowed, and what was given."""
    with pytest.raises(DefinitionError, match=rf"limits: {name}: .*(than|than or equal to) .*, got {value}"):
        with_one(name, value)


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_a_time_may_be_as_short_as_one_likes(name: str) -> None:
    """Any time above zero is legal."""
    assert getattr(Limits(**{name: 0.001}), name) == 0.001


@pytest.mark.parametrize("value", ["many", None, 2.5, float("nan"), float("inf"), [3], True])
def test_a_value_that_is_no_count_is_refused(value: Any) -> None:
    """A limit of the wrong kind is seen when the limits are made, not when a guard compares with it."""
    with pytest.raises(DefinitionError, match=r"limits: max_steps: .*, got"):
        Limits(max_steps=value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "soon", True])
def test_a_value_that_is_no_duration_is_refused(value: Any) -> None:
    """Neither "for ever" nor nonsense is a number of seconds; no deadline is None."""
    with pytest.raises(DefinitionError, match=r"limits: deadline: "):
        Limits(deadline=value)


def test_what_to_do_at_a_limit_is_one_of_two_words() -> None:
    """The error lists the two."""
    with pytest.raises(DefinitionError, match=r"limits: on_limit: .*'answer' or 'stop', got 'panic'"):
        Limits(on_limit="panic")


def test_what_to_do_about_a_call_in_doubt_is_one_of_two_words() -> None:
    """The error lists the two."""
    with pytest.raises(DefinitionError, match=r"limits: in_doubt: .*'review' or 'tell', got 'again'"):
        Limits(in_doubt="again")


def test_which_repeats_count_is_one_of_two_words() -> None:
    """The error lists the two."""
    with pytest.raises(DefinitionError, match=r"limits: repeats: .*'any' or 'in_a_row', got 'some'"):
        Limits(repeats="some")


def test_an_unknown_limit_is_refused_with_the_known_ones() -> None:
    """A misspelt limit would be one that does not hold: what was meant is named, and once, at the end, what there is."""
    with pytest.raises(DefinitionError) as refused:
        Limits(max_step=3, max_tokens=5, timeout=9, never=1)
    assert str(refused.value).startswith(
        "limits: there is no limit 'max_step', did you mean max_steps?; "
        "limits: there is no limit 'max_tokens', did you mean token_budget?; "
        "limits: there is no limit 'timeout', did you mean tool_timeout?; "
        "limits: there is no limit 'never'; the limits are max_steps, base_steps, "
    )


def test_every_wrong_limit_is_named_at_once() -> None:
    """Whoever mends a definition sees all of it."""
    with pytest.raises(DefinitionError, match=r"max_steps: .*; limits: jitter: .*; limits: there is no limit 'x'"):
        Limits(max_steps=0, jitter=2, x=1)


def test_degrading_comes_before_aborting() -> None:
    """A run that aborts first could never degrade; the error says which of the two to change."""
    with pytest.raises(DefinitionError, match=r"degrade_after \(4\) is greater than abort_after \(3\).*: lower"):
        Limits(degrade_after=4)
    assert Limits(degrade_after=3).abort_after == 3


def test_a_wrong_limit_is_a_value_error_too() -> None:
    """Definition errors can be caught without knowing this package."""
    with pytest.raises(ValueError, match="max_steps"):
        Limits(max_steps=0)


def test_limits_do_not_change() -> None:
    """A run reads its limits many times; they are the same every time."""
    with pytest.raises(ValueError, match="frozen"):
        Limits().max_steps = 3  # type: ignore[misc] # what is tested is that this is refused


def test_a_changed_copy_is_validated_and_leaves_the_original() -> None:
    """`replace` gives new limits, with the same laws."""
    first = Limits(max_steps=5)
    assert first.replace(max_tool_calls=7) == Limits(max_steps=5, max_tool_calls=7)
    assert first == Limits(max_steps=5)
    with pytest.raises(DefinitionError, match="max_steps"):
        first.replace(max_steps=0)


# ---------------------------------------------------------------- the environment

GIVEN: dict[str, Any] = {
    **{name: value + 1 for name, value in DEFAULTS.items() if isinstance(value, int | float)},
    "deadline": 12.5,
    "approval_timeout": 60.0,
    "jitter": 0.5,
    "on_limit": "stop",
    "in_doubt": "tell",
    "repeats": "in_a_row",
}


@pytest.mark.parametrize("name", Limits.model_fields)
def test_every_limit_can_be_set_in_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`FSM_AGENT_` and the name in capitals sets a limit, and no other."""
    value = {"degrade_after": 1}.get(name, GIVEN[name])
    monkeypatch.setenv(f"FSM_AGENT_{name.upper()}", f" {value} ")
    assert Limits.from_env().model_dump() == {**DEFAULTS, name: value}


def test_without_variables_the_defaults_hold() -> None:
    """An environment that says nothing changes nothing, and variables of other names are left alone."""
    assert Limits.from_env({}) == Limits()
    assert Limits.from_env({"FSM_AGENT_MODEL": "local:1.5b", "MAX_STEPS": "3", "fsm_agent_max_steps": "3"}) == Limits()


@pytest.mark.parametrize("word", ["none", "None", "NULL", "off"])
def test_an_optional_limit_can_be_switched_off_in_the_environment(word: str) -> None:
    """The words for "no limit" are taken for the limits that may be none."""
    assert Limits.from_env({"FSM_AGENT_TOKEN_BUDGET": word}).token_budget is None


@pytest.mark.parametrize("name", ["TOKEN_BUDGET", "MAX_STEPS"])
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_changes_no_limit(name: str, empty: str) -> None:
    """A variable that a compose file or an env file leaves empty lifts no limit: the default holds."""
    assert Limits.from_env({f"FSM_AGENT_{name}": empty}) == Limits()


def test_a_limit_that_must_be_a_number_cannot_be_switched_off() -> None:
    """Without a bound on steps a run might never end; the error names the variable."""
    with pytest.raises(DefinitionError, match=r"max_steps: .*got None .*environment: FSM_AGENT_MAX_STEPS"):
        Limits.from_env({"FSM_AGENT_MAX_STEPS": "none"})


def test_a_wrong_variable_is_named() -> None:
    """The error says which variable to mend."""
    with pytest.raises(DefinitionError, match=r"max_steps: .*got 'ten' \(read from .*: FSM_AGENT_MAX_STEPS\)"):
        Limits.from_env({"FSM_AGENT_MAX_STEPS": "ten"})


def test_what_is_given_in_code_wins_over_the_environment() -> None:
    """An override is taken instead of the variable, which is then not even read."""
    assert Limits.from_env({"FSM_AGENT_MAX_STEPS": "ten"}, max_steps=3).max_steps == 3


def test_an_error_in_code_does_not_blame_the_environment() -> None:
    """Where no variable was read, none is named."""
    with pytest.raises(DefinitionError) as caught:
        Limits.from_env({}, max_steps=0)
    assert "environment" not in str(caught.value)


def test_an_agent_reads_its_limits_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without limits of its own takes those of the environment; one with limits does not."""
    monkeypatch.setenv(f"{ENV_PREFIX}MAX_STEPS", "3")
    assert Agent(ScriptedModel(["x"])).limits.max_steps == 3
    assert Agent(ScriptedModel(["x"]), limits=Limits()).limits.max_steps == 10


# ---------------------------------------------------------------- derived


ADAPTIVE: dict[str, Any] = {"max_steps": "adaptive", "base_steps": 4, "earned_steps": 2, "most_steps": 9}


@pytest.mark.parametrize(
    ("given", "useful", "cap"),
    [
        ({}, 0, 10),
        ({}, 99, 10),
        (ADAPTIVE, 0, 4),
        (ADAPTIVE, 1, 6),
        (ADAPTIVE, 2, 8),
        (ADAPTIVE, 3, 9),
        (ADAPTIVE, 99, 9),
        (ADAPTIVE | {"earned_steps": 0}, 9, 4),
    ],
)
def test_an_adaptive_cap_grows_with_use_and_is_bounded(given: dict[str, Any], useful: int, cap: int) -> None:
    """A number stays; an adaptive cap is the base, what useful steps earned, and never more than the ceiling."""
    limits = Limits(**given)
    assert limits.step_cap(useful) == cap
    assert cap <= limits.step_bound == (9 if given else 10)


def test_an_adaptive_cap_comes_from_the_environment_too() -> None:
    """The word is taken wherever the number is, and shown as what it means."""
    limits = Limits.from_env({"FSM_AGENT_MAX_STEPS": "adaptive", "FSM_AGENT_BASE_STEPS": "3"})
    assert (limits.max_steps, limits.step_cap(0), limits.step_bound) == ("adaptive", 3, 30)
    assert limits.steps_text == "3 (and 1 more for each that taught something, up to 30)"
    assert Limits().steps_text == "10"


def test_the_base_of_an_adaptive_cap_is_within_its_bound() -> None:
    """A base above the ceiling would be cut without a word; the error says which of the two to change."""
    with pytest.raises(DefinitionError, match=r"base_steps \(31\) is greater than most_steps \(30\).*: lower"):
        Limits(max_steps="adaptive", base_steps=31)


@pytest.mark.parametrize(
    ("given", "reserve"),
    [
        ({}, 10_000),
        ({"token_budget": 19}, 1),
        ({"token_budget": 9}, 0),
        ({"token_budget": None}, 0),
        ({"on_limit": "stop"}, 0),
    ],
)
def test_a_tenth_of_the_budget_is_kept_for_an_answer(given: dict[str, Any], reserve: int) -> None:
    """The reserve is whole tokens, and nothing where no answer is asked for."""
    assert Limits(**given).answer_reserve == reserve


@given(
    st.builds(dict, max_steps=st.integers(1, 100_000), token_budget=st.none() | st.integers(1), jitter=st.floats(0, 1))
)
def test_limits_survive_json(values: dict[str, Any]) -> None:
    """The trail's header holds the limits as JSON, and reads them back equal."""
    limits = Limits(**values)
    assert Limits(**Limits.model_validate_json(limits.model_dump_json()).model_dump()) == limits
