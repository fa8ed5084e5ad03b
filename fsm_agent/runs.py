"""One run: the only mutable thing of the engine, and the loop that turns the machine."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State, Status
from fsm_agent.context import Context, Failure
from fsm_agent.effects import AskHuman, Broke, Cancelled, Effect, Outcome
from fsm_agent.history import Block, block, flatten
from fsm_agent.jobs import Job
from fsm_agent.machine import Machine
from fsm_agent.observe import Observer
from fsm_agent.records import RunResult, Transitioned
from fsm_agent.redact import redact_text
from fsm_agent.rounds import close_round
from fsm_agent.states import ENDINGS, Step

__all__ = ["Run", "drive"]

_ERROR_CHARS: Final = 500
_FAILURES: Final = (Event.MODEL_FAILED, Event.BROKE, Event.OBSERVED)
_READINGS: Final = (Event.ACCEPTED, Event.ANSWERED, Event.REJECTED, Event.THOUGHT)


@dataclass(slots=True, kw_only=True)
class Run:
    """A run under way: its state, its context, the records so far, and the effect that it waits for."""

    ctx: Context
    job: Job
    machine: Machine
    observers: Sequence[Observer] = ()
    state: State = INITIAL
    transitions: list[Transitioned] = field(default_factory=list)
    asking: AskHuman | None = None
    _last: float = 0.0

    def advance(self, step: Step, *, why: str = "") -> Transitioned:
        """Fire the step's event, move, and tell the observers."""
        fired = self.machine.fire(self.state, step.event, step.ctx)
        ctx = fired.ctx
        if why and ctx.cause is not None:
            ctx = ctx.change(cause=replace(ctx.cause, values={"why": why}))
        self.state, self.ctx = fired.row.target, ctx
        now = self.job.now()
        event, target = fired.row.event, fired.row.target
        failure = ctx.failure if event in _FAILURES else None
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
                "tools": tuple([call.tool for call in ctx.calls]),
                "signatures": tuple([call.signature for call in ctx.calls]),
                "repairs": ctx.repairs if ctx.repairs and event in _READINGS else (),
                "elapsed_ms": (now - self._last) * 1000,
                "at": now,
                "reason": ctx.cause.reason if target is State.ABORT and ctx.cause is not None else fired.row.reason,
                "error": "" if failure is None else redact_text(failure.error[:_ERROR_CHARS]),
            }
        )
        self._last = now
        self.transitions.append(record)
        for observer in self.observers:
            try:
                observer(record)
            except Exception:  # noqa: BLE001 - an observer that fails must not change the run
                continue
        return record

    def stop(self, outcome: Cancelled | Broke) -> Transitioned | None:
        """End the run from outside; None when it has already ended."""
        if self.state in TERMINAL:
            return None
        self.asking = None
        if isinstance(outcome, Cancelled):
            return self.advance(Step(Event.CANCELLED, self.ctx.change(at=outcome.at)), why=outcome.why)
        failure = Failure("engine", self.state, f"{outcome.error}: {outcome.message}")
        return self.advance(Step(Event.BROKE, self.ctx.change(at=outcome.at, failure=failure)))

    def closed_history(self) -> tuple[Block, ...]:
        """The history with every call answered, and the answer when there is one.

        A dialect that fails at writing it must not cost the result: then the history is what it was before.
        """
        ctx = self.ctx
        try:
            in_flight = ctx.texts.cancelled_result if self.stopped_while_executing else ""
            open_ = not ctx.note and self._round_open()
            closed = close_round(ctx, unanswered=in_flight).blocks if open_ else ctx.blocks
            if ctx.answer is None:
                return closed
            return (*closed, block("answer", *ctx.setup.dialect.keep_answer(ctx.answer), turn=ctx.turn))
        except Exception:  # noqa: BLE001 - a dialect is somebody else's code
            return ctx.blocks

    def _round_open(self) -> bool:
        """True when calls were asked for that the history does not hold yet, or holds with fewer results."""
        return bool(self.ctx.asked) and (self.ctx.round is None or bool(self.ctx.fresh))

    @property
    def stopped_while_executing(self) -> bool:
        """True when the run was stopped while calls were under way."""
        return self.state in TERMINAL and bool(self.transitions) and self.transitions[-1].source is State.EXECUTE

    def result(self) -> RunResult:
        """What the run has come to."""
        ctx = self.ctx
        if self.state in TERMINAL:
            ending = ENDINGS[self.state](ctx)
            status, reason, answer, detail = ending.status, ending.reason, ending.answer, ending.detail
        else:
            status, reason, answer = Status.SUSPENDED, None, None
            waiting = ", ".join(call.tool for call in self.asking.calls) if self.asking is not None else ""
            ways = f"agent.resume({ctx.run_id!r}, decision=Approve() | Edit(args) | Deny(reason))"
            detail = f"waits for a person to decide about {waiting}: {ways}"
        blocks = [one for one in self.closed_history() if one.turn == ctx.turn] if self.state in TERMINAL else []
        return RunResult.model_construct(
            run_id=ctx.run_id,
            thread_id=ctx.thread_id,
            status=status,
            reason=reason,
            answer=answer,
            detail=redact_text(detail),
            steps=ctx.step,
            model_calls=ctx.model_calls,
            tool_calls=ctx.tool_calls,
            usage=ctx.usage,
            elapsed=self.job.now(),
            transitions=tuple(self.transitions),
            messages=flatten(blocks),
            calls=tuple(done.call for done in ctx.done),
            results=tuple(done.result for done in ctx.done),
            pending=self.asking,
        )


def drive(run: Run) -> Generator[Transitioned | Effect, Outcome | None, None]:
    """Turn the machine until the run ends or is suspended.

    Yields a record for each transition, and each effect for the caller to perform and send its outcome back; sending None for an
    `AskHuman` suspends the run. An error in a state, guard, dialect or memory ends the run as `internal_error`; it is never raised.
    """
    while run.state not in TERMINAL:
        behaviour = run.machine.behaviours[run.state]
        try:
            effect = run.asking or behaviour.enter(run.ctx)
            outcome = None
            if effect is not None:
                outcome = yield effect
                if outcome is None:
                    run.asking = effect if isinstance(effect, AskHuman) else None
                    return
            run.asking = None
            if isinstance(outcome, (Cancelled, Broke)):
                record = run.stop(outcome)
            else:
                record = run.advance(behaviour.resolve(run.ctx, outcome))
        except Exception as error:  # noqa: BLE001 - a bug in a state, guard or dialect ends the run, typed
            record = run.stop(
                Broke(error=type(error).__name__, message=redact_text(str(error))[:_ERROR_CHARS], at=run.job.now())
            )
        if record is not None:
            yield record
