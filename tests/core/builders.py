"""What the tests of the core are made of: contexts in any state, outcomes in one word, and a fold without any I/O.

A fold is the machine turned by hand: `enter`, the next outcome of a script, `resolve`, `fire`. It shares nothing with
`fsm_agent.runs`, so that the two can be compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fsm_agent.alphabet import INITIAL, TERMINAL, State
from fsm_agent.context import Context, Setup
from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.effects import (
    Answer,
    Answered,
    Approve,
    AskHuman,
    Broke,
    CallModel,
    CallTools,
    Cancelled,
    Decision,
    Deny,
    Doubted,
    Edit,
    Effect,
    ModelFailed,
    Outcome,
    RawCall,
    Replied,
    Result,
    Returned,
    Usage,
    Wait,
    Waited,
)
from fsm_agent.history import task_block
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE, Fired, Machine
from fsm_agent.memory import Full, Memory
from fsm_agent.tools import Registry, Tool, tool
from fsm_agent.tools.signature import digest
from fsm_agent.turn import turn

E = TypeVar("E", CallModel, CallTools, AskHuman, Wait)
Line = Outcome | Callable[[Any], Outcome]
"""One entry of a script: an outcome, or a function that makes one of the effect that waits for it."""


# ---------------------------------------------------------------- tools


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


@tool(repeatable=True)
def poll(job: int) -> str:
    """Ask how far a job is."""
    return f"job {job} is under way"


@tool(requires_approval=True)
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@tool
def steady(q: str) -> str:
    """Stand in for `shaky`."""
    return f"steady {q}"


@tool(fallback=steady)
def shaky(q: str, depth: int = 1) -> str:
    """Find something, with a fallback that takes fewer arguments."""
    return f"shaky {q} {depth}"


TOOLS: tuple[Tool, ...] = (add, look, poll, pay, shaky)


# ---------------------------------------------------------------- contexts


def make_setup(
    *,
    limits: Limits | Mapping[str, Any] | None = None,
    tools: Iterable[Tool] = TOOLS,
    dialect: str | Dialect = "native",
    memory: Memory | None = None,
    system: str | None = None,
    ladder: Iterable[str] = ("fallback", "strategy", "answer"),
    **more: Any,
) -> Setup:
    """The definition of an agent. `limits` may be a mapping of the ones that differ; `more` are other fields of a `Setup`."""
    chosen = limits if isinstance(limits, Limits) else Limits(**(limits or {}))
    return Setup(
        limits=chosen,
        tools=Registry(tools),
        dialect=dialect_for(dialect),
        memory=Full() if memory is None else memory,
        system=system,
        ladder=tuple(ladder),
        **more,
    )


def start(setup: Setup | None = None, *, task: str = "What is 1 + 2?", **changes: Any) -> Context:
    """The context of a run that is about to plan its first step; `changes` are fields of it."""
    given = {"run_id": "run-1", "language": "en", "history": (task_block(task),), **changes}
    return Context(setup=make_setup() if setup is None else setup, task=task, **given)


def at(
    state: State,
    *,
    limits: Limits | Mapping[str, Any] | None = None,
    script: Sequence[Line] | None = None,
    setup: Setup | None = None,
    **changes: Any,
) -> Context:
    """A context as a run has it on arriving in `state`: the shortest way there, or the first arrival in `script`.

    `changes` replace fields at the end. Raises `AssertionError` when the script does not lead there.
    """
    begun = start(make_setup(limits=limits) if setup is None else setup)
    if state is INITIAL and script is None:
        return begun.change(**changes)
    for moment in fold(begun, WAYS[state] if script is None else script):
        if moment.fired.row.target is state:
            return moment.fired.ctx.change(**changes)
    raise AssertionError(f"the script does not lead to {state}")


def frozen(ctx: Context) -> dict[str, Any]:
    """Everything in `ctx` but its setup, copied to every depth: to see later that nothing was changed in place."""
    return copy.deepcopy({name: value for name, value in ctx.__dict__.items() if name != "setup"})


# ---------------------------------------------------------------- outcomes


def raw(name: str, /, **args: Any) -> RawCall:
    """A call as the model asks for it, without an id (one is minted)."""
    return RawCall("", name, args)


def asks(*calls: RawCall, text: str = "", at: float = 0.0, tokens: int = 15, **fields: Any) -> Replied:
    """A reply that asks for `calls`."""
    return Replied(text=text, calls=calls, usage=Usage(tokens, 0, tokens), at=at, **fields)


def says(text: str, **fields: Any) -> Replied:
    """A reply without calls."""
    return asks(text=text, **fields)


def down(error: str = "APIConnectionError", *, retryable: bool = True, **fields: Any) -> ModelFailed:
    """A failed model call."""
    return ModelFailed(error=error, message="no luck", retryable=retryable, **fields)


def result_of(call_id: str, name: str, text: str, *, ok: bool = True, retryable: bool = False) -> Result:
    """The result of one executed call."""
    error = "" if ok else "ValueError"
    return Result(call_id=call_id, tool=name, ok=ok, text=text, digest=digest(text), error=error, retryable=retryable)


def gives(*texts: str, at: float = 0.0) -> Callable[[CallTools], Returned]:
    """Every call succeeds; `texts` in order, the last one for all that are left."""
    return lambda effect: Returned(
        results=tuple(
            result_of(call.id, call.tool, texts[min(index, len(texts) - 1)]) for index, call in enumerate(effect.calls)
        ),
        at=at,
    )


def fails(text: str = "boom", *, retryable: bool = False) -> Callable[[CallTools], Returned]:
    """Every call fails."""
    return lambda effect: Returned(
        results=tuple(result_of(call.id, call.tool, text, ok=False, retryable=retryable) for call in effect.calls)
    )


def mixed(*oks: bool, retryable: bool = False) -> Callable[[CallTools], Returned]:
    """Call n succeeds when `oks[n]`."""
    return lambda effect: Returned(
        results=tuple(
            result_of(call.id, call.tool, f"result {index}", ok=ok, retryable=retryable and not ok)
            for index, (call, ok) in enumerate(zip(effect.calls, oks, strict=True))
        )
    )


def crashes(fates: str, *, at: float = 0.0) -> Callable[[CallTools], Doubted]:
    """The program dies during the batch, and this is what is known of its calls, one letter for each.

    "+" succeeded, "-" failed, "r" failed in a way that a retry may mend, "?" may or may not have run, "." had not begun.
    """

    def crash(effect: CallTools) -> Doubted:
        known = [(index, call, fate) for index, (call, fate) in enumerate(zip(effect.calls, fates, strict=True))]
        return Doubted(
            calls=tuple(call.id for _, call, fate in known if fate == "?"),
            results=tuple(
                result_of(call.id, call.tool, f"known {index}", ok=fate == "+", retryable=fate == "r")
                for index, call, fate in known
                if fate in "+-r"
            ),
            at=at,
        )

    return crash


def decides(*decisions: Decision, waited: float = 0.0) -> Callable[[AskHuman], Answered]:
    """A person's decisions, in the order of the calls; the last one for all that are left."""
    return lambda effect: Answered(
        decisions={call.id: decisions[min(index, len(decisions) - 1)] for index, call in enumerate(effect.calls)},
        waited=waited,
    )


APPROVES = decides(Approve())
DENIES = decides(Deny("too dear"))
ANSWERS = decides(Answer("it was done"))
STOPS = decides(Deny("no more", stop=True))


def edits(**args: Any) -> Callable[[AskHuman], Answered]:
    """A person changes the arguments of every call."""
    return decides(Edit(args))


def waits(effect: Wait) -> Waited:
    """The wait passes."""
    return Waited()


def on(
    *, model: Line | None = None, tools: Line | None = None, person: Line | None = None, wait: Line = waits
) -> Callable[[Effect], Outcome]:
    """An outcome for whatever is asked for; an effect that nothing is given for fails the test."""

    def answer(effect: Effect) -> Outcome:
        by_kind = {CallModel: model, CallTools: tools, AskHuman: person, Wait: wait}
        line = by_kind[type(effect)]
        assert line is not None, f"nobody expected {effect}"
        return line(effect) if callable(line) else line

    return answer


# The shortest way to each state; a run begins in PLAN.
ADD = asks(raw("add", a=1, b=2))
WAYS: Mapping[State, Sequence[Line]] = {
    State.VALIDATE: (ADD,),
    State.REVIEW: (asks(raw("pay", to="Ada", amount=5)),),
    State.EXECUTE: (ADD,),
    State.OBSERVE: (ADD, gives("3")),
    State.DECIDE: (ADD, gives("3")),
    State.RETRY: (down(),),
    State.DEGRADE: (ADD, fails("one"), asks(raw("add", a=1, b=3)), fails("two")),
    State.FINISH: (says("3"),),
    State.ABORT: (Cancelled("enough"),),
}


# ---------------------------------------------------------------- the fold


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One turn of the machine: where it was, what came of its effect, and what fired."""

    state: State
    ctx: Context
    effect: Effect | None
    outcome: Outcome | None
    fired: Fired


def fold(
    ctx: Context, script: Iterable[Line], *, state: State = INITIAL, machine: Machine = DEFAULT_MACHINE
) -> Iterator[Moment]:
    """Turn the machine from `state` with the outcomes of `script` until they are used up or the run has ended.

    A `Cancelled` or a `Broke` counts wherever it is met, at a state without an effect too; made by a function, it waits
    for the next effect like any other outcome.
    """
    lines = list(script)
    while state not in TERMINAL:
        behaviour = machine.behaviours[state]
        effect = behaviour.enter(ctx)
        outcome: Outcome | None = None
        if effect is not None or (lines and isinstance(lines[0], Cancelled | Broke)):
            if not lines:
                return
            line = lines.pop(0)
            outcome = line(effect) if callable(line) else line
        fired = turn(machine, state, ctx, outcome)
        yield Moment(state=state, ctx=ctx, effect=effect, outcome=outcome, fired=fired)
        state, ctx = fired.row.target, fired.ctx


def play(
    *script: Line,
    limits: Limits | Mapping[str, Any] | None = None,
    setup: Setup | None = None,
    ctx: Context | None = None,
) -> list[Moment]:
    """The moments of a whole script, from the start of a run."""
    return list(fold(start(make_setup(limits=limits) if setup is None else setup) if ctx is None else ctx, script))


def effects(moments: Sequence[Moment], kind: type[E]) -> list[E]:
    """The effects of one kind, in order."""
    return [moment.effect for moment in moments if isinstance(moment.effect, kind)]


def path(moments: Sequence[Moment]) -> list[State]:
    """The states of a fold, the first and the last included."""
    return [moments[0].state, *(moment.fired.row.target for moment in moments)]
