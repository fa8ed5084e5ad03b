"""`fsm-agent approve`, `deny`, `edit`, `answer`, `resume`, `cancel`: going on with a stored run, in any process and after any restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fsm_agent.agent import Agent
from fsm_agent.alphabet import Status
from fsm_agent.cli.console import note, put_json, stdout_reserved
from fsm_agent.cli.endings import EXIT_CODES, BrokenOff
from fsm_agent.cli.going import Given, Going
from fsm_agent.cli.interrupt import cancelling_on_interrupt
from fsm_agent.cli.options import switched_off
from fsm_agent.cli.origin import agent_of, code_of, order_of
from fsm_agent.cli.run import Watch, carry_out, report
from fsm_agent.cli.stores import Stored, holder_of, stored_run
from fsm_agent.cli.summary import asked_document
from fsm_agent.cli.trail_lines import call_text
from fsm_agent.durable import catch_up, conclude, durable
from fsm_agent.effects import Answer, Approve, Decision, Deny, Edit, Expired
from fsm_agent.errors import DefinitionError, FsmAgentError, RunError, RunHeld, UnknownRun
from fsm_agent.limits import Limits
from fsm_agent.records import Request, RunResult
from fsm_agent.recovery import Host, Resumption, reopened, taken_over
from fsm_agent.runs import Run, drive
from fsm_agent.trail.changes import Change, newest_limits
from fsm_agent.trail.store import RunInfo
from fsm_agent.trail.story import story_of
from fsm_agent.trail.wording import utc_text

__all__ = [
    "answering",
    "approving",
    "call_and_text",
    "cancel_run",
    "change_of",
    "decide",
    "denying",
    "edited_arguments",
    "editing",
    "resume_run",
]

_SHORTEST_DIGEST: Final = 8


def edited_arguments(text: str) -> dict[str, Any]:
    """What `--args` says. Raises `RunError` for anything but a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"--args is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RunError('--args is the whole arguments as one JSON object, as in --args \'{"to": "Ana"}\'')
    return value


def call_and_text(words: Sequence[str]) -> tuple[str | None, str]:
    """What `answer RUN [CALL] TEXT` says. Raises `RunError` for more than two words."""
    if len(words) > 2:  # noqa: PLR2004 - a call and a text
        raise RunError("write: answer RUN [CALL] TEXT, with the text in quotes")
    return (words[0] if len(words) > 1 else None), words[-1]


def change_of(settings: Sequence[str], stored: Stored) -> Change | None:
    """What `--set LIMIT=VALUE` asks for. Raises `DefinitionError` for what is no limit, or no value of it."""
    given: dict[str, str | None] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise DefinitionError(f"--set {setting!r}: write LIMIT=VALUE, as in max_steps=20")
        if name not in Limits.model_fields:
            raise DefinitionError(f"--set {setting!r}: there is no limit {name!r}; fsm-agent limits lists them")
        given[name] = switched_off(name, value)
    if not given:
        return None
    limits = newest_limits(stored.story.entries).replace(**given).model_dump(mode="json")
    return Change(limits={name: limits[name] for name in given})


# ---------------------------------------------------------------- decisions


def decide(
    store: str | None,
    run: str,
    call: str | None,
    decision: Callable[[Request], Decision],
    going: Going,
    *,
    every: bool = False,
    digest: str | None = None,
    go_on: bool = True,
) -> int:
    """Write down a decision about one call (or `every` one that waits), and with `go_on` go on when it was the last. Returns the exit code.

    Raises `RunError` for what nobody asks about or a digest that is another, and as `stored_run`; nothing was decided then.
    """
    if every and call is not None:
        raise RunError(f"decide about {call}, or about --all that wait; not both")
    with stored_run(store, run, going.given.agent) as stored:
        _check_waits(stored)
        asked = stored.story.waiting if every else (_meant(stored, call),)
        for one in asked:
            _check_digest(one, digest)
        expired = _record(stored, going.given, {one.call_id: decision(one) for one in asked}, going.by)
        if expired is not None:
            note(f"the time to decide was over at {utc_text(asked[0].expires_at)}: nothing was decided", "yellow")
            return report(expired, model="", as_json=going.as_json, quiet=going.quiet)
        for one in asked:
            note(_decided(one, decision(one)), "green")
        return _after(stored, going, go_on=go_on)


_PAST: Final = {"approve": "approved", "edit": "edited", "deny": "denied", "answer": "answered"}


def _decided(asked: Request, decision: Decision) -> str:
    """What was decided, with the arguments that count from now on."""
    arguments = decision.args if isinstance(decision, Edit) else asked.arguments
    return f"{_PAST[decision.kind]} {asked.call_id}: {call_text(asked.tool, arguments)}"


def _check_waits(stored: Stored) -> None:
    story = stored.story
    if story.waiting:
        return
    info = stored.journal.store.info(stored.run_id)
    if info.ended:
        raise RunError(f"run {stored.run_id!r} has ended ({info.status}): nothing of it waits for a decision")
    _check_free(stored, info)
    if story.asked:
        raise RunError(f"everything is decided in run {stored.run_id!r}; go on with it: {stored.command('resume')}")
    raise RunError(f"run {stored.run_id!r} waits for nobody's decision; go on with it: {stored.command('resume')}")


def _meant(stored: Stored, call: str | None) -> Request:
    """The call that is decided about."""
    waiting = stored.story.waiting
    listed = ", ".join(f"{one.call_id} ({one.tool})" for one in waiting)
    if call is None:
        if len(waiting) > 1:
            raise RunError(f"{len(waiting)} calls wait: {listed}; say which one, or --all")
        return waiting[0]
    found = [one for one in waiting if one.call_id == call] or [one for one in waiting if one.call_id.startswith(call)]
    if len(found) == 1:
        return found[0]
    for one in stored.story.asked:
        if one.request.call_id == call and one.decided is not None:
            kind, by = one.decided.body["decision"]["kind"], one.decided.body["by"]
            raise RunError(f"call {call} is decided already: {_PAST[kind]}{f' by {by}' if by else ''}")
    raise RunError(f"{'several calls begin with' if found else 'no call'} {call!r}; the calls that wait are {listed}")


def _check_digest(one: Request, digest: str | None) -> None:
    if digest is not None and (len(digest) < _SHORTEST_DIGEST or not one.digest.startswith(digest.lower())):
        raise RunError(f"call {one.call_id} waits with another digest now, {one.digest[:16]}: look at it again")


def _record(stored: Stored, given: Given, decisions: Mapping[str, Decision] | None, by: str) -> RunResult | None:
    """Make decisions durable, and leave the run waiting; the result when the time to decide was over."""
    run = _taken(stored, given)
    try:
        outcome = reopened(run, Resumption(decision=decisions, by=by), run.ctx.setup)
    except BaseException:
        _give_back(stored, run)
        raise
    if isinstance(outcome, Expired):
        core = drive(run)
        next(core)
        core.send(outcome)
        core.close()
    durable(conclude(run))
    return run.result() if isinstance(outcome, Expired) else None


def _taken(stored: Stored, given: Given) -> Run:
    return taken_over(stored.journal, stored.run_id, *code_of(stored, given), Host())


def _give_back(stored: Stored, run: Run) -> None:
    assert run.trail is not None, "it was taken from a store"
    stored.journal.give_back(stored.journal.store.info(stored.run_id), run.trail.owner)


def _after(before: Stored, going: Going, *, go_on: bool) -> int:
    """Go on when everything is decided, else say what still waits."""
    stored = _again(before)
    waiting = stored.story.waiting
    if waiting:
        for line in (f"{len(waiting)} of {len(stored.story.asked)} calls still wait:", *stored.ways_on()):
            note(line, "yellow")
        return _still(stored, going, EXIT_CODES[Status.SUSPENDED])
    if not go_on:
        note(f"everything is decided; go on with it: {stored.command('resume')}", "yellow")
        return _still(stored, going, 0)
    try:
        return _go_on(stored, going, None)
    except FsmAgentError:
        note(f"the decision is kept; go on with the run: {stored.command('resume')}", "yellow")
        raise


def _again(stored: Stored) -> Stored:
    """The run as it is now."""
    return replace(stored, story=story_of(stored.journal.entries(stored.run_id)))


def _still(stored: Stored, going: Going, code: int) -> int:
    if going.as_json:
        waiting = [asked_document(one) for one in stored.story.waiting]
        put_json({"run_id": stored.run_id, "status": Status.SUSPENDED.value, "exit_code": code, "pending": waiting})
    return code


def approving(one: Request) -> Decision:
    """Bound to the call as it was read."""
    return Approve(one.digest)


def denying(reason: str, *, stop: bool) -> Callable[[Request], Decision]:
    """Refuse; the model reads the reason."""
    return lambda _: Deny(reason, stop=stop)


def editing(arguments: Mapping[str, Any]) -> Callable[[Request], Decision]:
    """Run it with other arguments."""
    return lambda _: Edit(arguments)


def answering(text: str) -> Callable[[Request], Decision]:
    """Do not run it: this is its result."""
    return lambda _: Answer(text)


# ---------------------------------------------------------------- going on


def resume_run(store: str | None, run: str, settings: Sequence[str], going: Going) -> int:
    """Go on with a run after a crash, a pause, or decisions. Returns the exit code.

    Raises `RunError` for a run that has ended or that another process holds, and as `stored_run`.
    """
    with stored_run(store, run, going.given.agent) as stored:
        _check_goes_on(stored)
        change, asked = change_of(settings, stored), stored.story.waiting
        if asked and change is None:
            return _not_decided(stored, asked, going)
        return _go_on(stored, going, change)


def _check_goes_on(stored: Stored) -> None:
    info = stored.journal.store.info(stored.run_id)
    if info.ended:
        raise UnknownRun(f"run {stored.run_id!r} has ended ({info.status}): nothing of it is left to go on with")
    _check_free(stored, info)


def _check_free(stored: Stored, info: RunInfo) -> None:
    if holder_of(info.owner, info.lease, stored.journal.clock.time()):
        raise RunHeld(stored.run_id, owner=info.owner, until=info.lease)


def _not_decided(stored: Stored, asked: Sequence[Request], going: Going) -> int:
    """Nothing to go on with, unless the time to decide is over. No model is made for that."""
    until = asked[0].expires_at
    if until is not None and until < stored.journal.clock.time():
        expired = _record(stored, going.given, None, going.by)
        if expired is not None:
            return report(expired, model="", as_json=going.as_json, quiet=going.quiet)
    for line in ("It waits for a person; decide with one of:", *stored.ways_on()):
        note(line, "yellow")
    return _still(stored, going, EXIT_CODES[Status.SUSPENDED])


def _go_on(stored: Stored, going: Going, change: Change | None) -> int:
    def act(agent: Agent) -> RunResult:
        return agent.resume(stored.run_id, change=change, by=going.by)

    if going.given.agent is None:
        order = order_of(stored, going.given)
        if change is not None:
            order = replace(order, limits=order.limits.replace(**change.limits))
        model = order.choice.model
        result = carry_out(order, Watch(quiet=going.quiet, calls=not going.as_json), run_id=stored.run_id, act=act)
    else:
        agent, model = _agent(stored, going.given.agent), going.given.agent
        with (
            cancelling_on_interrupt(
                lambda: agent.cancel(stored.run_id, "Ctrl-C"), lambda: note("cancelling; Ctrl-C again kills", "yellow")
            ),
            stdout_reserved(),
        ):
            try:
                result = act(agent)
            except FsmAgentError as error:
                if not _has_moved(stored):
                    raise
                raise BrokenOff(stored.run_id, error) from error
    on = ""
    if result.status is Status.SUSPENDED:
        on = "\n".join(("Go on with one of:", *_again(stored).ways_on()))
    return report(result, model=model, as_json=going.as_json, quiet=going.quiet, go_on=on)


def _has_moved(stored: Stored) -> bool:
    """Whether the run has gone on since it was read; True when nobody can tell."""
    try:
        return stored.journal.store.info(stored.run_id).entries > len(stored.story.entries)
    except RunError:
        return True


def _agent(stored: Stored, spec: str) -> Agent:
    """The agent that `spec` names. Raises `DefinitionError` as `agent_of`, and for one that keeps its runs where this one is not."""
    agent = agent_of(spec, stored.journal.store)
    try:
        agent.journal.store.info(stored.run_id)
    except UnknownRun as error:
        raise DefinitionError(
            f"--agent {spec!r}: the agent has a store of its own, and run {stored.run_id!r} is not in it: "
            "name a function that takes store= and gives it to the agent"
        ) from error
    return agent


def cancel_run(store: str | None, run: str, why: str, given: Given) -> None:
    """End a run that nobody is driving. Raises `RunHeld` while a process has it, `UnknownRun` when it has ended."""
    with stored_run(store, run, given.agent) as stored:
        _check_goes_on(stored)
        began = time.monotonic()
        if given.agent is not None and stored.story.header["thread_id"] is not None:
            # The agent's own store of conversations has a turn open for this run.
            if not _agent(stored, given.agent).cancel(stored.run_id, why):
                raise UnknownRun(f"run {stored.run_id!r} has ended, or another process has it")
        else:
            taken = _taken(stored, given)
            catch_up(taken)
            taken.stop(taken.cancelled(why))
            durable(conclude(taken))
        note(f"cancelled run {stored.run_id} in {time.monotonic() - began:.1f} s", "yellow")
