"""One transition, fired alone: no model, no store, no loop. `at(State.DECIDE, steps=10).fire()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from fsm_agent.agent import Agent
from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.context import Context, Setup
from fsm_agent.definition import check_types, checked_names, memory_of
from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.effects import Effect
from fsm_agent.errors import DefinitionError, IllegalTransition
from fsm_agent.history import task_block
from fsm_agent.ladder import LADDER, Rung
from fsm_agent.language import Language
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE, Evaluated, Fired, Machine
from fsm_agent.memory import Full, Memory
from fsm_agent.table import Row
from fsm_agent.testing.named import member, named_fields
from fsm_agent.testing.said import outcome_from, replied, returned
from fsm_agent.tools import Registry
from fsm_agent.turn import turn

__all__ = ["At", "Transition", "at"]

_FROM_OUTSIDE: Final = frozenset({Event.CANCELLED, Event.BROKE})
_ROUND: Final[Mapping[State, int]] = {
    State.PLAN: 0,
    State.VALIDATE: 1,
    State.REVIEW: 2,
    State.EXECUTE: 2,
    State.OBSERVE: 3,
}
"""How many states a reply has come through when a run arrives; all of them in those that are not named."""
_PAST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A transition that was fired: from `source`, on `event`, by `row`, to `target`.

    `guards` are all that were asked, in order, by name: each has `result` and `values`, the numbers that it compared. `context` is what
    the run would know in the target.
    """

    source: State
    event: Event
    target: State
    row: Row
    guards: Mapping[str, Evaluated]
    context: Context
    machine: Machine

    @property
    def reason(self) -> StopReason | None:
        """Why the run stops or degrades here; None on a row that has no reason."""
        return self.row.reason

    @property
    def then(self) -> At:
        """The run in the target, to go on from."""
        return At(state=self.target, context=self.context, machine=self.machine)

    def __str__(self) -> str:
        why = "" if self.reason is None else f" ({self.reason})"
        lines = [f"{self.source} --{self.event}--> {self.target}{why}"]
        for one in self.guards.values():
            compared = ", ".join(f"{name}={value}" for name, value in one.values.items())
            lines.append(f"    {one.guard}: {'yes' if one.result else 'no'} ({compared})")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """A run that stands in `state`. Made by `at`; every method is pure, so one value can be fired as often as a test likes."""

    state: State
    context: Context
    machine: Machine = DEFAULT_MACHINE

    def fire(self, event: Event | str | None = None) -> Transition:
        """What the table gives for `event`, by default the one event that this state can return.

        Raises `fsm_agent.errors.IllegalTransition` for an event that the table has no row for here, `DefinitionError` when it has to be
        said which.
        """
        what = self._only_event() if event is None else self._event(event)
        return self._transition(what, self.machine.fire(self.state, what, self.context))

    def enter(self) -> Effect | None:
        """The effect that this state asks for on entry; None for a state that only computes."""
        return None if self.state in TERMINAL else self.machine.behaviours[self.state].enter(self.context)

    def resolve(self, outcome: Any = None) -> Transition:
        """The transition out of this state once `outcome` has come of its effect.

        `outcome` is an outcome of `fsm_agent.effects`, or shorter: for PLAN what the model says (a text, `call(...)`, a list of calls,
        `reply(...)`, an exception), for EXECUTE what each call gives in order (a value, an exception), for REVIEW a decision or a bool for
        all calls, or a mapping of decisions by call id. The other states need none. Raises `DefinitionError` for one that does not fit.
        """
        if self.state in TERMINAL:
            raise IllegalTransition(f"{self.state} is terminal: nothing can happen there")
        made = outcome_from(self.state, self.context, self.enter(), outcome)
        fired = turn(self.machine, self.state, self.context, made)
        return self._transition(fired.row.event, fired)

    def _event(self, given: Event | str) -> Event:
        return member(Event, given, "event", [*Event, *(row.event for row in self.machine.rows)])

    def _transition(self, event: Event, fired: Fired) -> Transition:
        return Transition(
            source=self.state,
            event=event,
            target=fired.row.target,
            row=fired.row,
            guards={one.guard: one for one in fired.guards},
            context=fired.ctx,
            machine=self.machine,
        )

    def _only_event(self) -> Event:
        rows = [row for row in self.machine.rows if row.source is self.state]
        events = list(dict.fromkeys(row.event for row in rows if row.event not in _FROM_OUTSIDE))
        if not events:
            raise IllegalTransition(f"{self.state} is terminal: nothing can happen there")
        if len(events) > 1:
            raise DefinitionError(
                f"{self.state} can return {', '.join(events)}: say which, as fire({str(events[0])!r}), or let the state "
                "say it: resolve(), or resolve(what happened) where it asks for an effect"
            )
        return events[0]


def at(
    state: State | str,
    *,
    agent: Agent | None = None,
    table: Machine | Sequence[Row] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    tools: Iterable[Any] | None = None,
    dialect: str | Dialect | None = None,
    memory: Memory | None = None,
    system: str | None = None,
    ladder: Iterable[str] | None = None,
    language: Language = "en",
    task: str = "What is 1 + 2?",
    reply: Any = None,
    results: Any = None,
    **fields: Any,
) -> At:
    """A run that stands in `state`, for one transition: `at(State.DECIDE, steps=10, limits=Limits(max_steps=10)).fire()`.

    `agent` gives table, limits, tools, dialect, memory, system text and ladder; what else is given takes the place of its own. `table` is a
    table of your own, as `extend` makes it, as rows or as a machine. `reply` is what the model has said (as for `At.resolve` in PLAN) and
    `results` what its calls gave; they go through the real states on the way here, so that calls are checked, and their results counted.

    `fields` say what the run knows: any field of `fsm_agent.context.Context` by its name, any limit by its name, and the words that stand
    for them: `steps`, `tokens`, `elapsed` (seconds), `retries`, `empty_replies`, `reason` and so on. `failure` may be "model", "tool" or
    "reply".

    Raises `fsm_agent.errors.DefinitionError` for a name that there is not, with the nearest one that there is, and for a value of another
    kind.
    """
    check_types(agent=agent, table=None if isinstance(table, Machine) else table, limits=limits, tools=tools)
    check_types(system=system, ladder=ladder, task=task)
    checked_names("language", [language], get_args(Language))
    machine = table if isinstance(table, Machine) else Machine(table) if table is not None else _machine_of(agent)
    where = member(State, state, "state", machine.states)
    known = named_fields(fields, limits)
    setup = _setup(
        agent, limits=known.limits, tools=tools, dialect=dialect, memory=memory, system=system, ladder=ladder
    )
    ctx = Context(setup=setup, run_id="run-1", task=task, language=language, history=(task_block(task),))
    arrived = _arrived(ctx, where, machine, reply, results)
    return At(state=where, context=known.applied(arrived), machine=machine)


def _setup(
    agent: Agent | None,
    *,
    limits: Mapping[str, Any] | Limits | None,
    tools: Iterable[Any] | None,
    dialect: str | Dialect | None,
    memory: Memory | None,
    system: str | None,
    ladder: Iterable[str] | None,
) -> Setup:
    own = _blank() if agent is None else agent.setup
    chosen = limits if isinstance(limits, Limits) else own.limits.replace(**(limits or {}))
    return replace(
        own,
        limits=chosen,
        tools=own.tools if tools is None else tools if isinstance(tools, Registry) else Registry(tools),
        dialect=own.dialect if dialect is None else dialect_for(dialect),
        memory=own.memory if memory is None else memory_of(memory),
        system=own.system if system is None else system,
        ladder=own.ladder if ladder is None else checked_names("rung of the ladder", ladder, Rung),
        memo={},
    )


def _machine_of(agent: Agent | None) -> Machine:
    return DEFAULT_MACHINE if agent is None else agent.machine


def _blank() -> Setup:
    return Setup(limits=Limits(), tools=Registry(), dialect=dialect_for("native"), memory=Full(), ladder=LADDER)


def _arrived(ctx: Context, state: State, machine: Machine, reply: Any, results: Any) -> Context:
    """The context after the states that a reply comes through before `state`."""
    # A state of one's own stands where its rows lead: after the checks, or after the results where there are any.
    passed = _ROUND[State.EXECUTE] if state.is_own and results is None else _ROUND.get(state, _PAST)
    if reply is None:
        if results is not None:
            raise DefinitionError("results are those of calls: give them too, as reply=call(...)")
        return ctx
    if not passed:
        raise DefinitionError(f"{state} is where the model is asked: give its reply to at({state}).resolve(...)")
    step = machine.behaviours[State.PLAN].resolve(ctx, replied(reply))
    after = step.ctx
    if step.event is not Event.REPLIED:
        if passed < _PAST:
            raise DefinitionError(f"a run never comes to {state} after {reply!r}: it goes to DECIDE")
        return after
    if passed > _ROUND[State.VALIDATE]:
        after = machine.behaviours[State.VALIDATE].resolve(after, None).ctx
    if passed > _ROUND[State.EXECUTE]:
        effect = machine.behaviours[State.EXECUTE].enter(after)
        if after.calls:
            after = machine.behaviours[State.EXECUTE].resolve(after, returned(after, effect, results)).ctx
    if passed == _PAST and state is not State.FINISH and (after.asked or after.note):
        after = machine.behaviours[State.OBSERVE].resolve(after, None).ctx
    return after
