"""The guards: named pure predicates over a context. Each has the sentence that docs and diagrams show, and says what it compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isasyncgenfunction, isgeneratorfunction
from string import Formatter
from typing import Any, Final

from fsm_agent.context import Context
from fsm_agent.errors import DefinitionError
from fsm_agent.ladder import Rung, backoff, next_rung, retryable_calls
from fsm_agent.limits import Limits
from fsm_agent.prompt import estimate_prompt, usable_tokens
from fsm_agent.rounds import runnable
from fsm_agent.tools.injection import is_async

__all__ = ["GUARDS", "Compared", "Guard", "guard"]

Compared = tuple[bool, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Guard:
    """A predicate of the table. `sentence` is a `str.format` template over the limits, `test` gives the result and the values compared."""

    name: str
    sentence: str
    test: Callable[[Context], Compared]

    def describe(self, limits: Limits | None = None) -> str:
        """The sentence, with the limits as configured (or by name, without any). A limit that is off makes it "never"."""
        if limits is None:
            return self.sentence.format(**{name: name for name in Limits.model_fields})
        values = {**limits.model_dump(), "max_steps": limits.steps_text}
        off = [name for _, name, _, _ in Formatter().parse(self.sentence) if name is not None and values[name] is None]
        return f"never: {', '.join(off)} is off" if off else self.sentence.format(**values)

    @property
    def is_own(self) -> bool:
        """True for one that is not of this package."""
        return GUARDS.get(self.name) is not self

    def __copy__(self) -> Guard:
        return self

    def __deepcopy__(self, memo: object) -> Guard:
        # Which guard it is decides whether its test is known, so a table that is copied asks the same guards.
        return self


GUARDS: Final[dict[str, Guard]] = {}
"""Those of this package, by name."""


def guard(sentence: str, *, name: str = "") -> Callable[[Callable[[Context], bool | Compared]], Guard]:
    """A decorator that makes a guard of your own out of a pure function of the context.

    The function returns whether the guard holds, or that and the values it compared, which the record of a transition keeps. `sentence`
    says when it holds, as in "no result is surer than 0.5"; a limit in braces is filled in. The guard is named like the function.

    Raises `fsm_agent.errors.DefinitionError` for a sentence with braces around something else, and for an async function or a generator.
    """
    try:
        Guard(name, sentence, lambda _: (False, {})).describe()
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise DefinitionError(
            f"the sentence {sentence!r} has braces around something that is no limit; double them to show braces"
        ) from error

    def wrap(test: Callable[[Context], bool | Compared]) -> Guard:
        called = name or getattr(test, "__name__", type(test).__name__)
        if is_async(test) or isgeneratorfunction(test) or isasyncgenfunction(test):
            raise DefinitionError(
                f"the guard {called} must be a plain function of the context: what an async one or a generator returns "
                "would always hold"
            )

        def compared(ctx: Context) -> Compared:
            shown = [one.digest for one in ctx.calls]
            said = test(ctx)
            for one, digest in zip(ctx.calls, shown, strict=True):
                if one.digest != digest:
                    raise ValueError(f"it changed the call of {one.tool}: a guard only asks")
            holds, values = said if isinstance(said, tuple) else (said, {})
            if type(holds).__name__ not in ("bool", "bool_"):  # numpy has a bool of its own
                raise TypeError(f"it returned {holds!r}, which does not say whether it holds: return True or False")
            return bool(holds), values

        return Guard(called, sentence, compared)

    return wrap


def _guard(sentence: str) -> Callable[[Callable[[Context], Compared]], Guard]:
    def wrap(test: Callable[[Context], Compared]) -> Guard:
        guard = GUARDS[test.__name__] = Guard(test.__name__, sentence, test)
        return guard

    return wrap


@_guard(
    "every call asked for was executed {repeat_threshold} times already with the same result, or goes on with a cycle of such calls"
)
def repeated_action(ctx: Context) -> Compared:
    fresh = len(runnable(ctx))
    repeated = [call for call in ctx.calls if call.repeated]
    values: dict[str, Any] = {
        "fresh_calls": fresh,
        "repeated_calls": len(repeated),
        "repeat_threshold": ctx.limits.repeat_threshold,
    }
    if repeated:
        values["signature"] = repeated[0].signature
    return bool(repeated) and not fresh, values


@_guard("the calls asked for would pass {max_tool_calls} tool calls")
def tool_calls_spent(ctx: Context) -> Compared:
    asked = len(runnable(ctx))
    values = {"tool_calls": ctx.tool_calls, "asked": asked, "max_tool_calls": ctx.limits.max_tool_calls}
    return ctx.tool_calls + asked > ctx.limits.max_tool_calls, values


@_guard("a call needs a person's approval that it does not have")
def approval_required(ctx: Context) -> Compared:
    waiting = len([call for call in runnable(ctx) if call.needs_approval and not call.approved])
    return waiting > 0, {"calls_waiting": waiting}


@_guard('a crash left calls in doubt, and in_doubt is "{in_doubt}"')
def person_settles_doubt(ctx: Context) -> Compared:
    return ctx.limits.in_doubt == "review", {"in_doubt": ctx.limits.in_doubt}


@_guard("the person who denied the call asked to stop the run")
def stop_requested(ctx: Context) -> Compared:
    return ctx.stop_requested, {"stop_requested": ctx.stop_requested}


@_guard("the model, asked to reflect, said not to go on")
def told_to_stop(ctx: Context) -> Compared:
    return not ctx.go_on, {"go_on": ctx.go_on, "reflections": ctx.reflections}


@_guard("the forced answer did not come, and cannot be asked for again")
def answer_failed(ctx: Context) -> Compared:
    again = ctx.forced and retry_available.test(ctx)[0] and not deadline_passed.test(ctx)[0]
    return ctx.forced and not again, {"forced": ctx.forced, "retry_available": again}


@_guard("at least {abort_after} calls or replies in a row failed")
def circuit_open(ctx: Context) -> Compared:
    return ctx.failures >= ctx.limits.abort_after, {"failures": ctx.failures, "abort_after": ctx.limits.abort_after}


@_guard("the newest failure is the model's")
def model_failing(ctx: Context) -> Compared:
    of = ctx.failure.of if ctx.failure is not None else ""
    return of == "model", {"failure": of}


@_guard("the model call failed, and no retry is left or can help")
def model_unusable(ctx: Context) -> Compared:
    if ctx.failure is None or ctx.failure.of != "model":
        return False, {"failure": ctx.failure.of if ctx.failure is not None else ""}
    again = retry_available.test(ctx)
    return not again[0], {"failure": "model", "error": ctx.failure.error, **again[1]}


@_guard("tokens spent and the next prompt together pass {token_budget}, less a reserve for one answer")
def token_budget_spent(ctx: Context) -> Compared:
    budget, usable = ctx.limits.token_budget, usable_tokens(ctx)
    if usable is None:
        return False, {"tokens": ctx.usage.total, "token_budget": None}
    estimate = estimate_prompt(ctx, "answer" if ctx.forced else "plan")
    values = {"tokens": ctx.usage.total, "next_prompt": estimate, "token_budget": budget, "usable": usable}
    return ctx.usage.total + estimate > usable, values


@_guard(
    "one answer without tools may still be asked for: on_limit is {on_limit}, and its prompt fits the budget and the deadline"
)
def can_answer_now(ctx: Context) -> Compared:
    limits = ctx.limits
    allowed = limits.on_limit == "answer" and Rung.ANSWER in ctx.setup.ladder and not ctx.forced
    values: dict[str, Any] = {"on_limit": limits.on_limit, "forced": ctx.forced}
    if not allowed:
        return False, values
    left = None if limits.token_budget is None else limits.token_budget - ctx.usage.total
    estimate = estimate_prompt(ctx, "answer")
    values |= {"tokens_left": left, "next_prompt": estimate}
    return (left is None or estimate <= left) and ctx.time_left != 0.0, values


@_guard("the run has lasted {deadline} seconds")
def deadline_passed(ctx: Context) -> Compared:
    limit = ctx.limits.deadline
    return limit is not None and ctx.elapsed >= limit, {"elapsed": round(ctx.elapsed, 3), "deadline": limit}


@_guard("the failed call may be tried again: at most {max_retries} retries, waiting at most {backoff_max} s")
def retry_available(ctx: Context) -> Compared:
    failure, limits = ctx.failure, ctx.limits
    if failure is None or not failure.retryable:
        return False, {"retryable": False}
    values: dict[str, Any] = {"attempt": ctx.attempt, "max_retries": limits.max_retries}
    if failure.of == "model":
        due = ctx.attempt <= limits.max_retries
    else:
        calls = retryable_calls(ctx)
        due = bool(calls) and ctx.tool_calls + len(calls) <= limits.max_tool_calls
    if not due:
        return False, values
    wait = backoff(ctx)
    values |= {"wait": round(wait, 3), "backoff_max": limits.backoff_max}
    return wait <= limits.backoff_max and (ctx.time_left is None or wait < ctx.time_left), values


@_guard("the call that failed was the model's")
def retrying_model(ctx: Context) -> Compared:
    of = ctx.failure.of if ctx.failure is not None else ""
    return of == "model", {"failure": of}


@_guard("more than {max_nudges} replies were empty")
def nudges_spent(ctx: Context) -> Compared:
    return ctx.nudges > ctx.limits.max_nudges, {"empty_replies": ctx.nudges, "max_nudges": ctx.limits.max_nudges}


@_guard("at least {degrade_after} calls or replies in a row failed")
def failures_reached(ctx: Context) -> Compared:
    return ctx.failures >= ctx.limits.degrade_after, {
        "failures": ctx.failures,
        "degrade_after": ctx.limits.degrade_after,
    }


@_guard("a rung of the ladder is left for what failed, and fewer than {max_degradations} were taken")
def can_degrade(ctx: Context) -> Compared:
    rung = next_rung(ctx)
    return rung is not None, {
        "rung": rung,
        "degradations": ctx.degradations,
        "max_degradations": ctx.limits.max_degradations,
    }


@_guard("at least {no_progress_steps} steps in a row brought nothing new")
def no_progress(ctx: Context) -> Compared:
    return ctx.idle_steps >= ctx.limits.no_progress_steps, {
        "idle_steps": ctx.idle_steps,
        "no_progress_steps": ctx.limits.no_progress_steps,
    }


@_guard("at least {max_steps} steps were taken")
def steps_spent(ctx: Context) -> Compared:
    cap = ctx.step_cap
    values: dict[str, Any] = {"steps": ctx.step, "max_steps": cap}
    if ctx.limits.max_steps == "adaptive":
        values |= {"useful_steps": ctx.useful_steps, "most_steps": ctx.limits.most_steps}
    return ctx.step >= cap, values
