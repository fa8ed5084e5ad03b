"""Who judges a configuration: the real machine with its real guards, on a small real context that stands for it.

Guards of one's own may read what a configuration leaves out, so they are given each answer instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage

from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.context import Cause, Context, Failure, Setup
from fsm_agent.dialects import dialect_for
from fsm_agent.effects import Call, ModelFailed, Result, Usage
from fsm_agent.guards import Compared, Guard
from fsm_agent.history import block, task_block
from fsm_agent.ladder import Rung, backoff, wanted_rung
from fsm_agent.machine import Machine
from fsm_agent.memory import Full
from fsm_agent.prompt import estimate_prompt, smaller_room
from fsm_agent.states.plan import MOST_GIVEN_WAY
from fsm_agent.table import Table
from fsm_agent.tools import Registry, Tool, tool
from fsm_agent.verify.configuration import Bounds, Config
from fsm_agent.verify.outcomes import Choice

__all__ = ["EXPLORING", "Judge"]

EXPLORING: Final = "(explored by verify)"
"""The run id of the contexts that are asked about, by which they are told apart from those of runs."""
_MOST_SENT_AGAIN: Final = 100
_CAUSES: Final = {
    "failures": Cause(StopReason.CONSECUTIVE_FAILURES),
    "limit": Cause(StopReason.MAX_STEPS),
    "set": Cause(StopReason.MAX_STEPS),
}

_NAMES: Final = {
    (False, False): "alone",
    (True, False): "replaced",
    (False, True): "known",
    (True, True): "secured",
}
"""The tool that failed, by whether it has a fallback and a default."""


def _tools(retries: int) -> tuple[Tool, ...]:
    @tool(retry=retries)
    def alone(q: str) -> str:
        """Look something up; nothing stands in for it."""
        return q

    @tool(retry=retries, fallback="alone")
    def replaced(q: str) -> str:
        """Look something up; `alone` stands in for it."""
        return q

    @tool(retry=retries, default="unknown")
    def known(q: str) -> str:
        """Look something up; a default stands in for it."""
        return q

    @tool(retry=retries, fallback="alone", default="unknown")
    def secured(q: str) -> str:
        """Look something up; `alone` stands in for it, then a default."""
        return q

    return alone, replaced, known, secured


class _Unsaid(BaseException):
    """A guard of one's own was asked that no answer was chosen for. No `Exception`, because the machine makes others of those."""


class Judge:
    """The machine under `bounds`, and the contexts that it is asked about."""

    def __init__(self, machine: Machine, bounds: Bounds) -> None:
        self.machine = machine
        self.bounds = bounds
        self.own = {one.name: one for one in machine.table.states} if isinstance(machine.table, Table) else {}
        self._answers: dict[str, bool] = {}
        self._asked = self._with_answers()
        self._places = {id(row): place for place, row in enumerate(self._asked.rows)}
        setup = Setup(
            limits=bounds.limits,
            tools=Registry(_tools(bounds.tool_retries)),
            dialect=dialect_for("native"),
            memory=Full(),
            ladder=bounds.ladder,
            simpler=("alone",) if bounds.simpler else (),
        )
        # The factor makes the prompt as small as any prompt is, so that all of a small budget can be explored.
        self._blank = Context(setup=setup, run_id=EXPLORING, task="", language="en", prompt_factor=0.0)
        self._prompt = estimate_prompt(self._blank, "answer")

    def _with_answers(self) -> Machine:
        """The machine, with guards of one's own that give the answers chosen here."""
        guards = {guard.name: guard for row in self.machine.rows for guard in row.guards}
        given = {name: self._chosen(name) for name, guard in guards.items() if guard.is_own}
        if not given:
            return self.machine
        rows = tuple(
            replace(row, guards=tuple(given.get(guard.name, guard) for guard in row.guards))
            for row in self.machine.rows
        )
        states = tuple(self.own.values())
        return Machine(Table(rows, states) if states else rows, self.machine.behaviours)

    def _chosen(self, name: str) -> Guard:
        def test(_: Context) -> Compared:
            if name not in self._answers:
                raise _Unsaid(name)
            return self._answers[name], {}

        return Guard(name, name, test)

    def fire(self, event: Event, after: Config, choice: Choice) -> set[int]:
        """The places of the rows that may fire: one, but for guards of one's own, which are given each answer.

        The laws of a table see to it that some row lets `event` through.
        """
        ctx, found = self.context(after, choice), set[int]()
        open_: list[dict[str, bool]] = [{}]
        while open_:
            self._answers = answers = open_.pop()
            try:
                fired = self._asked.fire(after.state, event, ctx)
            except _Unsaid as unsaid:
                open_ += [{**answers, str(unsaid): False}, {**answers, str(unsaid): True}]
                continue
            found.add(self._places[id(fired.row)])
        return found

    def rung(self, config: Config) -> Rung | None:
        """The rung that DEGRADE would take."""
        return wanted_rung(self.context(config, Choice())) if config.state is State.DEGRADE else None

    def context(self, config: Config, choice: Choice) -> Context:
        """A real context that `config` and `choice` are true of."""
        limits = self.bounds.limits
        changes: dict[str, Any] = {
            "step": limits.step_bound if config.spent else 0,
            "failures": config.failures,
            "idle_steps": config.idle,
            "nudges": config.nudges,
            "degradations": config.degradations,
            "attempt": config.attempt,
            "forced": config.forced,
            "rungs": _taken(config),
            "at": limits.deadline if config.late else 0.0,
            "cause": _CAUSES.get(config.caused),
            "stop_requested": choice.stop,
            "go_on": not choice.enough,
        }
        if choice.tokens != "fit" and limits.token_budget is not None:
            spent = limits.token_budget + 1 if choice.tokens == "over" else limits.token_budget - self._prompt
            changes["usage"] = Usage(0, 0, max(spent, 0))
        if choice.calls:
            changes["calls"] = changes["asked"] = (_call(choice.calls),)
            changes["tool_calls"] = limits.max_tool_calls if choice.over else max(limits.max_tool_calls - 1, 0)
        if config.failure:
            changes |= _failed(config, with_calls=not choice.calls)
        return self._blank.change(**changes)

    def wait(self, config: Config) -> int:
        """The longest wait in RETRY, in milliseconds: the server may wish for as much as is allowed."""
        limits = self.bounds.limits
        ctx = self.context(config, Choice())
        failure = ctx.failure
        if config.failure == "model":
            wished = None if failure is None else Failure("model", "model", "", True, limits.backoff_max)
            return round(1000 * max(backoff(ctx.change(failure=wished)), self._jittered(ctx)))
        return round(1000 * self._jittered(ctx))

    def _jittered(self, ctx: Context) -> float:
        limits = self.bounds.limits
        failure = Failure("tool", "tool", "", True)
        plain = replace(ctx.setup, limits=limits.replace(jitter=0.0))
        own = backoff(ctx.change(setup=plain, failure=failure))
        return min(own * (1 + limits.jitter), limits.backoff_max)

    def most_sent_again(self) -> int:
        """How often a prompt is sent again, smaller or without what the server refused, as PLAN itself counts it."""
        return self._most_overflows() + MOST_GIVEN_WAY

    def _most_overflows(self) -> int:
        refused = ModelFailed(error="BadRequestError", message="", retryable=False, overflow=True)
        round_ = block("round", AIMessage("word " * 400))
        ctx = self._blank.change(history=(round_, task_block("task")))
        for count in range(_MOST_SENT_AGAIN):
            if smaller_room(ctx.change(overflows=count), refused, "plan") is None:
                return count
        return _MOST_SENT_AGAIN


def _taken(config: Config) -> frozenset[str]:
    taken = ((Rung.STRATEGY, config.changed), (Rung.SIMPLER, config.simplified))
    return frozenset(rung for rung, was in taken if was)


def _call(kind: str) -> Call:
    return Call(
        id="c1",
        name="alone",
        tool="alone",
        signature="s1",
        needs_approval=kind == "waiting",
        repeated=kind == "repeated",
        refusal="repeated" if kind == "repeated" else "",
        refusal_kind="repeated" if kind == "repeated" else "",
    )


def _failed(config: Config, *, with_calls: bool) -> dict[str, Any]:
    of, again = config.failure.rstrip("+-"), not config.failure.endswith("-")
    name = _NAMES[config.fallback, config.default]
    changes: dict[str, Any] = {"failure": Failure(of, name, "it failed", again, 0.0 if again else None)}
    if of == "tool" and with_calls:
        result = Result(call_id="c1", tool=name, ok=False, text="it failed", error="ValueError", retryable=again)
        changes["calls"] = changes["asked"] = (Call(id="c1", name=name, tool=name, signature="s1"),)
        changes["results"] = (result,)
    return changes
