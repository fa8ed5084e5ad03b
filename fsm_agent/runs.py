"""One run: the only mutable thing of the engine, and the loop that turns the machine."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State, Status, StopReason
from fsm_agent.context import Context
from fsm_agent.effects import AskHuman, Broke, CallTools, Cancelled, Effect, Outcome, Result
from fsm_agent.errors import RunError
from fsm_agent.failures import error_text
from fsm_agent.history import Block, block, call_ids, with_own_ids
from fsm_agent.jobs import CancelRequested, Job
from fsm_agent.machine import Fired, Machine
from fsm_agent.memory.rebuilt import result_messages
from fsm_agent.memory.views import unsummarised
from fsm_agent.observe import Observer
from fsm_agent.records import RESUME, Request, RunResult, Transitioned
from fsm_agent.redact import redact_text
from fsm_agent.rounds import answer_message, closed_history, runnable
from fsm_agent.states import ENDINGS, Step
from fsm_agent.tools.registry import Registry
from fsm_agent.trail.changes import with_tools
from fsm_agent.trail.codec import outcome_data, record_data, why
from fsm_agent.trail.fold import Decided
from fsm_agent.trail.toolset import tools_data
from fsm_agent.trail.writer import TrailWriter
from fsm_agent.turn import turn

__all__ = ["NO_PAUSES", "Pauses", "Recovered", "Run", "drive", "send"]

_ERROR_CHARS: Final = 500
_READ_CHARS: Final = 5_000
_MOST_STILL: Final = 1_000
"""Transitions in a row without an effect. The built-in table never makes ten; one of somebody's own may go in a circle for ever."""
_FAILURES: Final = (Event.MODEL_FAILED, Event.BROKE, Event.OBSERVED)
_SETBACKS: Final = frozenset(
    {
        *(Event.SUMMARY_FAILED, Event.REFLECTION_FAILED, Event.OVERFLOWED, Event.GAVE_WAY, Event.REJECTED),
        *(Event.FALLBACK_CHOSEN, Event.DEFAULTED, Event.STRATEGY_CHANGED, Event.SIMPLIFIED),
        *(Event.ANSWER_FORCED, Event.EXHAUSTED),
    }
)
"""The events that may come of something that went wrong beside the run's newest failure."""
_READINGS: Final = (Event.ACCEPTED, Event.ANSWERED, Event.REJECTED, Event.THOUGHT)


@dataclass(frozen=True, slots=True)
class Pauses:
    """Where runs stop for a person: before these states, and after these steps (counted from 1)."""

    states: frozenset[State] = frozenset()
    steps: frozenset[int] = frozenset()


NO_PAUSES: Final = Pauses()


@dataclass(frozen=True, slots=True)
class Recovered:
    """What is known of an effect that a crash broke off: `results` of its calls by id, `until` when its wait was to end (epoch seconds)."""

    results: Mapping[str, Result] = field(default_factory=dict)
    until: float | None = None


@dataclass(slots=True, kw_only=True)
class Run:
    """A run under way.

    Attributes:
        ctx: Its context.
        job: Its dealings with the outside: clock, config, cancellation.
        machine: What gives the transitions.
        tools: The registry, which may change; the run goes by the tools in its context until it looks again.
        tools_seen: The version of the registry that those are of.
        observers: Each is called with each transition.
        state: Where it is.
        transitions: The records so far.
        asking: The request that a person is still to decide about, None while nobody is asked.
        trail: Writes the records down, None without a store.
        pauses: Where it stops for a person.
        paused: True while it is stopped there.
        passed: The sequence number at which it was paused and let go on, -1 before that.
        recovered: What is known of the effect that a crash broke off, None without one.
        unfolded: The outcome in a store that nothing has followed from, None without one.
        decided: What people have decided since they were asked, by call id.
        asked_at: When they were asked, in seconds since the epoch.
        rebased: The history of the thread where others went on with it since a crash, else (); this turn follows it.
        closed: True once its thread was given back.
        unsaved: Why its conversation could not be stored, "" when it was.
        unrecorded: True when the store could not write its end.
        last: When the newest transition was, in seconds since the run began.
        torn: True in the middle of a move.
    """

    ctx: Context
    job: Job
    machine: Machine
    tools: Registry | None = None
    tools_seen: int = 0
    observers: Sequence[Observer] = ()
    state: State = INITIAL
    transitions: list[Transitioned] = field(default_factory=list)
    asking: AskHuman | None = None
    trail: TrailWriter | None = None
    pauses: Pauses = NO_PAUSES
    paused: bool = False
    passed: int = -1
    recovered: Recovered | None = None
    unfolded: Outcome | None = None
    decided: dict[str, Decided] = field(default_factory=dict)
    asked_at: float = 0.0
    rebased: tuple[Block, ...] = ()
    closed: bool = False
    unsaved: str = ""
    unrecorded: bool = False
    last: float = 0.0
    torn: bool = False

    def advance(self, step: Step) -> Transitioned:
        """Fire the step's event, move, and tell the observers."""
        return self.move(self.machine.fire(self.state, step.event, step.ctx))

    def record_outcome(self, outcome: Outcome) -> None:
        """Write down what came of an effect, before anything follows from it."""
        if self.trail is not None:
            self.trail.add("outcome", outcome_data(outcome))

    def move(self, fired: Fired) -> Transitioned:
        """Go where `fired` leads, and tell the trail and the observers."""
        ctx = fired.ctx
        self.torn = True
        self.state, self.ctx = fired.row.target, ctx
        if self.job.ended:
            self.job.ended = []
        now = self.job.now()
        event, target = fired.row.event, fired.row.target
        failure = ctx.failure if ctx.failure is not None and event in _FAILURES else None
        error = ctx.setback if ctx.setback and event in _SETBACKS else "" if failure is None else failure.error
        calls = ctx.calls
        one = calls[0] if len(calls) == 1 else None
        record = Transitioned.made_of(
            {
                "run_id": ctx.run_id,
                "seq": ctx.seq,
                "source": fired.row.source,
                "event": event,
                "target": target,
                "guards": fired.guards,
                "step": ctx.step,
                "tokens": ctx.usage.total,
                "estimated_tokens": ctx.usage.estimated,
                "model_calls": ctx.model_calls,
                "tool_calls": ctx.tool_calls,
                "failures": ctx.failures,
                "tools": (one.tool,) if one is not None else tuple([call.tool for call in calls]),
                "signatures": (one.signature,) if one is not None else tuple([call.signature for call in calls]),
                "repairs": ctx.repairs if ctx.repairs and event in _READINGS else (),
                "elapsed_ms": (now - self.last) * 1000,
                "at": now,
                "reason": ctx.cause.reason if target is State.ABORT and ctx.cause is not None else fired.row.reason,
                "error": "" if not error else redact_text(error[:_READ_CHARS])[:_ERROR_CHARS],
            }
        )
        self.last = now
        self.transitions.append(record)
        if self.trail is not None:
            self.trail.add("transition", record_data(record))
        self.torn = False
        for observer in self.observers:
            try:
                observer(record)
            except Exception:  # noqa: BLE001 - an observer that fails must not change the run
                continue
        return record

    def broke(self, error: Exception) -> Broke | Cancelled:
        """The outcome that ends the run for a fault of the engine, or because somebody cancelled it."""
        if isinstance(error, CancelRequested):
            return self.cancelled(str(error))
        said = redact_text(error_text(error))[:_ERROR_CHARS]
        return Broke(error=type(error).__name__, message=said, at=self.job.now())

    def cancelled(self, why: str) -> Cancelled:
        """The outcome that ends the run because somebody cancelled it, with the results that are there already."""
        before = () if self.recovered is None else self.recovered.results.values()
        return Cancelled(why, self.job.now(), (*before, *self.job.ended))

    def stop(self, outcome: Cancelled | Broke) -> Transitioned | None:
        """End the run from outside; None when it has already ended."""
        if self.state in TERMINAL:
            return None
        self.asking = None
        self.record_outcome(outcome)
        return self.move(turn(self.machine, self.state, self.ctx, outcome))

    def refresh_tools(self) -> None:
        """Go by the tools as they are now, and write that down, when they have changed since the run looked last."""
        if self.tools is None or self.tools.version == self.tools_seen:
            return
        now = self.tools.snapshot()
        self.tools_seen = now.version
        if self.trail is not None:
            self.trail.add("changed", {"tools": tools_data(now)})
        self.ctx = with_tools(self.ctx, now)

    @property
    def pause_due(self) -> bool:
        """True when a person asked to stop before the state that the run is in, or after the step that it has taken."""
        if self.passed == self.ctx.seq:
            return False
        step_over = self.state is INITIAL and self.ctx.step in self.pauses.steps
        return self.state in self.pauses.states or step_over

    @property
    def open_request(self) -> AskHuman | None:
        """What a person is still to decide about."""
        if self.asking is None or not self.decided:
            return self.asking
        return replace(self.asking, calls=tuple(call for call in self.asking.calls if call.id not in self.decided))

    def closed_history(self) -> tuple[Block, ...]:
        """The history with every call answered, and the answer when there is one.

        A dialect that fails at writing it must not cost the result: then the history is what it was before.
        """
        ctx = self.ctx
        try:
            history = closed_history(ctx, executing=self.stopped_while_executing)
            if not self.answered:
                return history
            return (*history, block("answer", *ctx.setup.dialect.keep_answer(ctx.answer or ""), turn=ctx.turn))
        except Exception:  # noqa: BLE001 - a dialect is somebody else's code
            return ctx.blocks

    def thread_history(self) -> tuple[Block, ...]:
        """The history with this turn, after what others have said in the thread meanwhile."""
        history = self.closed_history()
        if not self.rebased:
            return history
        turn, taken = self.rebased[-1].turn + 1, call_ids(self.rebased)
        own = (replace(one, turn=turn) for one in history if one.turn == self.ctx.turn)
        return (*self.rebased, *(with_own_ids(one, taken, self.ctx.run_id) for one in own))

    @property
    def answered(self) -> bool:
        """True when the run has come to its answer. One that a state of one's own has stopped is none."""
        return self.ctx.answer is not None and self.state is not State.ABORT

    @property
    def stopped_while_executing(self) -> bool:
        """True when the run was stopped while calls were under way."""
        return self.state in TERMINAL and bool(self.transitions) and self.transitions[-1].source is State.EXECUTE

    def _requests(self) -> tuple[Request, ...]:
        asking = self.open_request
        if asking is None:
            return ()
        until = None if asking.expires_in is None else self.asked_at + asking.expires_in
        return tuple(
            Request(
                run_id=self.ctx.run_id,
                call_id=call.id,
                tool=call.tool,
                arguments=deepcopy(call.arguments),
                why=why(call),
                digest=call.digest,
                expires_at=until,
            )
            for call in asking.calls
        )

    def _waits_for(self) -> str:
        run_id = self.ctx.run_id
        if self.open_request is None:
            return f"paused before {self.state}{RESUME}({run_id!r}), with change=Change(...) to go on differently"
        ways = "Approve() | Edit(args) | Deny(reason) | Answer(text)"
        return (
            f"waits for a person to decide about {_call_names(self.open_request)}{RESUME}({run_id!r}, decision={ways})"
        )

    def result(self) -> RunResult:
        """What the run has come to."""
        ctx = self.ctx
        if self.state in TERMINAL:
            ending = ENDINGS[self.state](ctx)
            status, reason, answer, detail = ending.status, ending.reason, ending.answer, ending.detail
        else:
            status, reason, answer = Status.SUSPENDED, None, None
            detail = self._waits_for()
            if self.asking is not None and any(call.doubt for call in self.asking.calls):
                reason = StopReason.IN_DOUBT
        # Of a run that waits only what came before: a call without a result is no valid history.
        history = self.closed_history() if self.state in TERMINAL else ctx.blocks
        blocks = [one for one in unsummarised(history) if one.turn == ctx.turn]
        said = answer_message(ctx, ctx.answer or "") if self.answered else None
        return RunResult.made_of(
            run_id=ctx.run_id,
            thread_id=ctx.thread_id,
            status=status,
            reason=reason,
            answer=answer,
            detail=redact_text(
                f"{detail}; its conversation could not be stored: {self.unsaved}" if self.unsaved else detail
            ),
            steps=ctx.step,
            model_calls=ctx.model_calls,
            tool_calls=ctx.tool_calls,
            usage=ctx.usage,
            elapsed=self.job.now(),
            transitions=tuple(self.transitions),
            messages=result_messages(blocks, said),
            calls=tuple(done.call for done in ctx.done),
            results=tuple(done.result for done in ctx.done),
            pending=self.open_request,
            requests=self._requests(),
            upcoming=runnable(ctx) if self.paused else (),
            trail_head="" if self.trail is None else self.trail.head,
        )


def _call_names(asking: AskHuman) -> str:
    return ", ".join(f"{call.tool} (in doubt)" if call.doubt else call.tool for call in asking.calls)


def _check_table(effect: Effect | None, still: int) -> None:
    """Refuse what only a table of somebody's own can lead to, unverified. Raises `RunError`."""
    if still > _MOST_STILL:
        raise RunError(
            f"{_MOST_STILL:,} transitions in a row asked for nothing: the table goes in a circle; agent.verify() shows where"
        )
    if isinstance(effect, CallTools) and any(one.needs_approval and not one.approved for one in effect.calls):
        raise RunError(
            "the table leads a call past REVIEW that waits for a person's approval; agent.verify() shows where"
        )


def drive(run: Run) -> Generator[Transitioned | Effect, Outcome | None, None]:
    """Turn the machine until the run ends or is suspended.

    Yields a record for each transition, and each effect for the caller to perform and send its outcome back; sending None for an
    `AskHuman` suspends the run. An error in a state, guard, dialect or memory ends the run as `internal_error`, and so does a table that
    goes in a circle without asking for anything, or leads a call past its approval; nothing is raised.
    """
    still = 0
    while run.state not in TERMINAL:
        behaviour = run.machine.behaviours[run.state]
        if run.pauses is not NO_PAUSES and run.pause_due:
            run.paused, run.passed = True, run.ctx.seq
            return
        try:
            if run.state is State.PLAN:
                run.refresh_tools()
            effect = run.asking or behaviour.enter(run.ctx)
            outcome = None
            still = still + 1 if effect is None else 0
            _check_table(effect, still)
            if effect is not None:
                outcome = yield effect
                if outcome is None:
                    run.asking = effect if isinstance(effect, AskHuman) else None
                    return
            run.asking = None
            if isinstance(outcome, (Cancelled, Broke)):
                record = run.stop(outcome)
            else:
                if outcome is not None:
                    run.record_outcome(outcome)
                record = run.move(turn(run.machine, run.state, run.ctx, outcome))
        except Exception as error:  # noqa: BLE001 - a bug in a state, guard or dialect ends the run, typed
            record = run.stop(run.broke(error))
        if record is not None:
            yield record


def send(
    driven: Generator[Transitioned | Effect, Outcome | None, None], outcome: Outcome | None
) -> Transitioned | Effect | None:
    """What `drive` yields next, once `outcome` was sent to it; None at its end."""
    try:
        return driven.send(outcome)
    except StopIteration:
        return None
