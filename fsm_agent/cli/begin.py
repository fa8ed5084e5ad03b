"""`fsm-agent run`: from what the command line says to a run that has ended."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from fsm_agent.alphabet import Status
from fsm_agent.cli.choice import Choice, choose, with_dialect
from fsm_agent.cli.console import note
from fsm_agent.cli.endings import EXIT_CODES, BrokenOff
from fsm_agent.cli.example import example_of, example_task, example_tools, say_whether_right, workplace
from fsm_agent.cli.going import Policy
from fsm_agent.cli.origin import Origin, place_of, public_url
from fsm_agent.cli.policy_file import policy_from
from fsm_agent.cli.run import Order, Watch, carry_out, memory_of, read_task, report
from fsm_agent.cli.stores import option_of, read_run, short_id, writing
from fsm_agent.cli.threads import check_thread
from fsm_agent.cli.toolbox import table_of, toolbox
from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.errors import DefinitionError
from fsm_agent.language import Language
from fsm_agent.limits import Limits
from fsm_agent.policy_state import checked_policy
from fsm_agent.profiles import profile as profile_named
from fsm_agent.records import RunResult
from fsm_agent.tools.registry import Registry
from fsm_agent.trail import TrailStore

__all__ = ["Wanted", "begin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of the command, as they were given."""

    task: str | None
    limits: Limits
    model: str | None = None
    base_url: str | None = None
    profile: str | None = None
    example: bool = False
    dialect: str | None = None
    tools: tuple[str, ...] = ()
    files: Path | None = None
    system: str | None = None
    language: Language | None = None
    memory: str | None = None
    thread: str | None = None
    conversations: str | None = None
    approve: Policy = "ask"
    policy: Path | None = None
    table: str | None = None
    store: str | None = None


def begin(wanted: Wanted, watch: Watch, *, as_json: bool) -> int:
    """Run it, say what came out, and return the exit code. Raises `FsmAgentError` for what cannot be run, before anything happens."""
    if wanted.example:
        return _example(wanted, watch, as_json=as_json)
    if wanted.task is None:
        raise DefinitionError("say what to do: fsm-agent run TASK (with a profile also --example)")
    placed, task = replace(wanted, files=_place(wanted)), read_task(wanted.task)
    with writing(wanted.store) as trails:
        order = _order(placed, task, trails)
        result = _carried_out(wanted, order, watch)
        return _reported(wanted, order, trails, result, quiet=watch.quiet, as_json=as_json)


def _example(wanted: Wanted, watch: Watch, *, as_json: bool) -> int:
    """The task of the profile, with its own tools, checked at the end."""
    task = example_task(wanted.profile, wanted.task, wanted.language)
    example, name = example_of(wanted.profile), wanted.profile or ""
    with ExitStack() as stack:
        folder = stack.enter_context(workplace(wanted.files))
        placed = replace(wanted, files=folder if example.files else None)
        trails = stack.enter_context(writing(wanted.store))
        order = _order(placed, task, trails, None if wanted.tools else example_tools(name, folder))
        result = _carried_out(wanted, order, watch)
        code = _reported(wanted, order, trails, result, quiet=watch.quiet, as_json=as_json)
        right = say_whether_right(example, result, folder)
    return code if right or code else EXIT_CODES[Status.FAILED]


def _place(wanted: Wanted) -> Path | None:
    """The directory of the tools: `--files`, else the current one where the profile works there, so that a resume elsewhere finds it."""
    here = wanted.files is None and wanted.profile is not None and profile_named(wanted.profile).works_here
    return Path.cwd() if here and not wanted.tools else wanted.files


def _order(wanted: Wanted, task: str, trails: TrailStore | None, own: Registry | None = None) -> Order:
    """The order, with tools of its `own` in place of those that the options name. A wrong option is told before a server is asked."""
    if wanted.approve == "defer" and trails is None:
        raise DefinitionError("--approve defer keeps the run for a later decision, so it needs --store FILE")
    dialect_for(wanted.dialect)
    check_thread(wanted.thread, wanted.conversations, wanted.profile)
    memory, table = memory_of(wanted.memory), table_of(wanted.table)
    tools = toolbox(wanted.tools, wanted.files, wanted.profile) if own is None else own
    policy = checked_policy(policy_from(wanted.policy), tools)
    choice = choose(wanted.model, wanted.base_url, os.environ)
    if tools.names() and (wanted.dialect or _of_profile(wanted)) is None:
        choice = with_dialect(choice, os.environ)
    return Order(
        task=task,
        choice=choice,
        tools=tools,
        limits=wanted.limits,
        profile=wanted.profile,
        dialect=wanted.dialect or choice.dialect,
        system=wanted.system,
        language=wanted.language,
        memory=memory,
        thread=wanted.thread,
        conversations=wanted.conversations,
        approve=wanted.approve,
        policy=policy,
        table=table,
        store=trails,
        origin=_origin(wanted, choice).data(),
    )


def _of_profile(wanted: Wanted) -> str | Dialect | None:
    return None if wanted.profile is None else profile_named(wanted.profile).dialect


def _origin(wanted: Wanted, choice: Choice) -> Origin:
    return Origin(
        model=choice.model,
        base_url=None if choice.base_url is None else public_url(choice.base_url),
        dialect=wanted.dialect or choice.dialect,
        tools=wanted.tools,
        files=None if wanted.files is None else str(wanted.files.absolute()),
        system=wanted.system,
        language=wanted.language,
        memory=wanted.memory,
        approve=wanted.approve,
        directory=str(Path.cwd()),
        profile=wanted.profile,
        conversations=None if wanted.conversations is None else place_of(wanted.conversations),
        table=wanted.table,
    )


def _carried_out(wanted: Wanted, order: Order, watch: Watch) -> RunResult:
    try:
        return carry_out(order, watch)
    except BrokenOff as broken:
        note(
            f"go on with what is stored of it: fsm-agent resume {short_id(broken.run_id)}{option_of(wanted.store)}",
            "yellow",
        )
        raise


def _reported(
    wanted: Wanted, order: Order, trails: TrailStore | None, result: RunResult, *, quiet: bool, as_json: bool
) -> int:
    on = ""
    if trails is not None and result.status is Status.SUSPENDED:
        ways = read_run(trails, wanted.store, result.run_id).ways_on()
        on = "\n".join(("Go on with one of, now or after a restart:", *ways))
    return report(result, model=order.choice.model, as_json=as_json, quiet=quiet, go_on=on)
