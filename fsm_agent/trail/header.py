"""The header of a trail: the run as it began, the agent that it began under, and the fingerprint by which a change of it is found."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from langchain_core.messages import message_to_dict, messages_from_dict

from fsm_agent import dialects, memory, reflection, temperature
from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context, Setup
from fsm_agent.errors import DefinitionError, TrailError, TrailVersion
from fsm_agent.history import block, call_ids
from fsm_agent.limits import Limits
from fsm_agent.machine import Machine
from fsm_agent.policy import ToolPolicy
from fsm_agent.table import TABLE
from fsm_agent.trail.codec import blocks_data, blocks_of
from fsm_agent.trail.entries import SCHEMA_VERSION, SHARED_SCHEMA, Entry, canonical_json
from fsm_agent.trail.toolset import definition, newest_tools, other_tools, recorded_tools, tools_data

__all__ = [
    "begun_context",
    "check_agent",
    "check_schema",
    "check_table",
    "describe",
    "fingerprint",
    "guarded_calls",
    "header_data",
    "rebuilt",
    "recorded_setup",
]

_LIBRARIES: Final = ("fsm-agent", "langchain-core", "pydantic", "transitions")


def header_data(ctx: Context, machine: Machine, *, chain: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    """The body of entry 0 for a run that has not begun. `origin` is what a caller wants to find again there (model, CLI options)."""
    setup = ctx.setup
    earlier, task = ctx.history[:-1], ctx.history[-1]
    return {
        "schema": SCHEMA_VERSION,
        "thread_id": ctx.thread_id,
        "task": ctx.task,
        "message": message_to_dict(task.messages[0]),
        "language": ctx.language,
        "system": ctx.system,
        "turn": ctx.turn,
        "prompt_factor": ctx.prompt_factor,
        "earlier": blocks_data(earlier),
        "setup": {
            "limits": setup.limits.model_dump(mode="json"),
            "dialect": describe(setup.dialect),
            "memory": describe(setup.memory),
            "system": setup.system,
            "ladder": list(setup.ladder),
            "simpler": list(setup.simpler),
            "withhold": setup.withhold,
            "temperature": _plain_field(setup.temperature),
            "policy": None if setup.policy is None else setup.policy.to_data(),
            "reflect": _plain_field(setup.reflect),
            "tools": tools_data(setup.tools),
        },
        "fingerprint": fingerprint(setup, machine),
        "versions": _versions(),
        "chain": chain,
        "origin": dict(origin),
        **_own_table(machine),
    }


def _own_table(machine: Machine) -> dict[str, Any]:
    """What a table of one's own has that the built-in one does not, by name, for whoever reads the trail without it."""
    if machine.rows == TABLE:
        return {}
    guards = {guard.name for row in machine.rows for guard in row.guards if guard.is_own}
    known = {str(row) for row in TABLE}
    rows = [
        str(row) for row in machine.rows if str(row) not in known and row.event not in (Event.CANCELLED, Event.BROKE)
    ]
    states = machine.states[len(State) :]
    return {"table": {"states": list(states), "guards": sorted(guards), "rows": rows}}


def check_table(header: Entry, machine: Machine) -> None:
    """Raises `TrailVersion` when the run went by a table of its own that is not the one here, naming what it has."""
    kept = header.body.get("table")
    if kept is None:
        own = machine.states[len(State) :]
        if own:
            raise TrailVersion(
                f"run {header.run_id!r} went by the table of this package, and is read with one that has {', '.join(own)}: "
                "leave the table out"
            )
        return
    if header.body["fingerprint"]["table"] == _table_digest(machine):
        return
    named = [f"the {what} {', '.join(kept[what])}" for what in ("states", "guards") if kept[what]]
    has = " and ".join(named) or f"the rows {'; '.join(kept['rows'])}"
    raise TrailVersion(
        f"run {header.run_id!r} went by a table of its own, with {has}, which is not the table here: give the agent that has it "
        f"(Agent(..., table=...), or {_table_option(header)})"
    )


def _table_option(header: Entry) -> str:
    """The option of the command that names the table, as far as the trail says which: nothing is imported because a trail names it."""
    origin = header.body.get("origin")
    spec = origin.get("table") if isinstance(origin, Mapping) else None
    known = isinstance(spec, str) and re.fullmatch(r"[\w.]+:[\w.]+(\(\))?", spec)
    return f"--table {spec}, which it says it began with" if known else "--table MODULE:ATTR"


def check_schema(header: Entry) -> None:
    """Raise `TrailVersion` for a header of a version that this package cannot read."""
    version = header.body.get("schema")
    if header.kind != "header" or version not in (SCHEMA_VERSION, SHARED_SCHEMA):
        raise TrailVersion(
            f"the trail of run {header.run_id!r} has schema version {version!r}; this package reads {SCHEMA_VERSION} and {SHARED_SCHEMA}. "
            "Read it with the version of fsm-agent that its header names"
        )


def begun_context(header: Entry, setup: Setup) -> Context:
    """The context in which the run began, under `setup`."""
    check_schema(header)
    body = header.body
    forked = body.get("forked") or {}
    earlier = blocks_of(body["earlier"])
    message: Any = messages_from_dict([body["message"]])[0]
    return Context(
        setup=setup,
        run_id=header.run_id,
        task=body["task"],
        language=body["language"],
        thread_id=body["thread_id"],
        turn=body["turn"],
        prompt_factor=body["prompt_factor"],
        system=body["system"],
        history=(*earlier, block("task", message, turn=body["turn"])),
        call_ids=call_ids(earlier),
        seed=forked.get("seed", ""),
        guarded=guarded_calls(forked),
    )


def guarded_calls(forked: Mapping[str, Any]) -> dict[str, int]:
    """From which transition on a call like one of these signatures needs approval in a fork: from where it was forked, or earlier."""
    since: Mapping[str, int] = forked.get("since", {})
    return dict.fromkeys(forked.get("guarded", ()), forked.get("seq", 0)) | dict(since)


def recorded_setup(header: Entry, agent: Setup | None = None) -> Setup:
    """The definition that the run began under: its own limits, memory and texts, with the tools and the dialect of `agent`.

    Tools that `agent` does not have as they were then are made from their recorded schemas (they can be checked against, not called), all
    of them without `agent`, and the dialect then from its description.

    Raises `TrailError` for a dialect or memory that is not one of this package's.
    """
    check_schema(header)
    kept = header.body["setup"]
    return Setup(
        limits=Limits(**kept["limits"]),
        tools=recorded_tools(kept["tools"], None if agent is None else agent.tools),
        dialect=rebuilt(kept["dialect"], dialects) if agent is None else agent.dialect,
        memory=agent.memory
        if agent is not None and describe(agent.memory) == kept["memory"]
        else rebuilt(kept["memory"], memory),
        system=kept["system"],
        ladder=tuple(kept["ladder"]),
        simpler=tuple(kept["simpler"]),
        withhold=kept["withhold"],
        temperature=_value(kept["temperature"], temperature),
        policy=None if kept["policy"] is None else ToolPolicy.of(kept["policy"]),
        reflect=_value(kept["reflect"], reflection),
    )


def check_agent(entries: Sequence[Entry], agent: Setup, machine: Machine) -> None:
    """Raises `TrailVersion`, naming what is another: the table, dialect and tool policy that the run began under, or its newest tools."""
    header = entries[0]
    check_table(header, machine)
    recorded, now = header.body["fingerprint"], fingerprint(agent, machine)
    for part in ("table", "dialect", "policy"):
        if recorded[part] != now[part]:
            raise TrailVersion(
                f"run {header.run_id!r} began under another {part}; resume it with the agent, and the version of fsm-agent, that began it"
            )
    changed = other_tools(newest_tools(entries), agent.tools)
    if changed:
        gone = [name for name in changed if name not in now["tools"]]
        raise TrailVersion(
            f"run {header.run_id!r} has other tools: {', '.join(gone)} missing"
            if gone
            else f"run {header.run_id!r} has another definition of {', '.join(changed)}"
        )


def fingerprint(setup: Setup, machine: Machine) -> dict[str, Any]:
    """SHA-256 (16 hexadecimal digits) of each part that decides how a run goes: table, limits, dialect, memory, policy, each tool."""
    return {
        "table": _table_digest(machine),
        "limits": _short(setup.limits.model_dump(mode="json")),
        "dialect": _short(describe(setup.dialect)),
        "memory": _short(describe(setup.memory)),
        "policy": "" if setup.policy is None else _short(setup.policy.to_data()),
        "tools": {one["name"]: _short(definition(one)) for one in tools_data(setup.tools)},
    }


def _table_digest(machine: Machine) -> str:
    return _short([[str(row), row.reason, [guard.sentence for guard in row.guards]] for row in machine.rows])


def describe(value: Any) -> dict[str, Any]:
    """A dialect or memory of this package by class and fields, at every depth; of anybody else's only the name of its class."""
    kind = type(value)
    if not kind.__module__.startswith("fsm_agent.") or not dataclasses.is_dataclass(value):
        return {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    return {
        "class": kind.__name__,
        "fields": {one.name: _plain_field(getattr(value, one.name)) for one in dataclasses.fields(value) if one.init},
    }


def _plain_field(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return describe(value)


def _value(data: Any, package: Any) -> Any:
    return rebuilt(data, package) if isinstance(data, Mapping) else data


def rebuilt(data: Mapping[str, Any], package: Any) -> Any:
    """What `describe` described. Only classes that `package` names in `__all__` are made, so that a trail cannot name code."""
    name = data.get("class")
    kind = getattr(package, name, None) if isinstance(name, str) and name in package.__all__ else None
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        named = data.get("custom") or name
        raise TrailError(
            f"the trail was written with {named}, which is not of this package: give the agent that wrote it"
        )
    fields = {key: _value(value, package) for key, value in data["fields"].items()}
    try:
        return kind(**fields)
    except (TypeError, DefinitionError) as error:
        raise TrailVersion(f"{name} of this version of fsm-agent cannot be made as the trail says: {error}") from error


def _short(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@cache
def _versions() -> Mapping[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
