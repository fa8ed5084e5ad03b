"""How a command made an agent: written into the trail, and read again by the command that goes on with the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, get_args
from urllib.parse import urlsplit, urlunsplit

from fsm_agent.agent import Agent
from fsm_agent.cli.choice import Choice, choose
from fsm_agent.cli.going import Given, Policy
from fsm_agent.cli.run import Order, memory_of
from fsm_agent.cli.stores import MADE_BY, Stored
from fsm_agent.cli.threads import REDIS
from fsm_agent.cli.toolbox import error_line, load, table_of, toolbox
from fsm_agent.context import Setup
from fsm_agent.dialects import dialect_for, is_local
from fsm_agent.errors import DefinitionError, RunError, ToolDefinitionError, TrailDamaged
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.memory import Window
from fsm_agent.policy import ToolPolicy
from fsm_agent.profiles import profile as profile_named
from fsm_agent.profiles.session import REDIS_URL
from fsm_agent.table import Table
from fsm_agent.tools.registry import Registry
from fsm_agent.trail import TrailStore
from fsm_agent.trail.changes import newest_limits

__all__ = [
    "Origin",
    "agent_of",
    "code_of",
    "machine_of",
    "order_of",
    "place_of",
    "policy_of",
    "public_url",
    "setup_of",
]

_LATER: Final = frozenset({"profile", "conversations", "table"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What `fsm-agent run` was given. Never a secret: keys stay in the environment, and a URL is kept without name and password."""

    model: str
    base_url: str | None
    dialect: str | None
    tools: tuple[str, ...]
    files: str | None
    system: str | None
    language: str | None
    memory: str | None
    approve: str
    directory: str
    profile: str | None
    conversations: str | None
    table: str | None

    def data(self) -> dict[str, Any]:
        """The origin as JSON data."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {"made_by": MADE_BY, **found, "tools": list(self.tools)}

    @classmethod
    def of(cls, stored: Stored) -> Self:
        """The origin of a stored run. Raises `RunError` for a run that no command made, `TrailDamaged` for what none writes."""
        data = stored.story.origin
        try:
            if data["made_by"] != MADE_BY:
                raise KeyError(MADE_BY)
            # A trail of an earlier version knows of no profiles and tables.
            values: dict[str, Any] = {name: data.get(name) if name in _LATER else data[name] for name in cls.__slots__}
        except KeyError as error:
            raise RunError(
                f"run {stored.run_id!r} was not begun by fsm-agent run: name the agent that began it, --agent MODULE:ATTR"
            ) from error
        tools = values.pop("tools")
        if not all(isinstance(one, str) for one in (*tools, *values.values()) if one is not None):
            raise TrailDamaged("holds what no command writes of itself", run_id=stored.run_id, seq=0)
        return cls(tools=tuple(tools), **values)


def public_url(url: str) -> str:
    """A base URL without what may be secret in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def place_of(conversations: str) -> str:
    """A store of conversations as it can be found again: a whole path, or a URL without what may be secret in it."""
    return public_url(conversations) if conversations.startswith(REDIS) else str(Path(conversations).absolute())


def _conversations(origin: Origin, environ: Mapping[str, str]) -> str | None:
    """Where the threads are: as the run began, with the name and password of the environment where that names the same server."""
    here = environ.get(REDIS_URL, "")
    return here if here and origin.conversations == public_url(here) else origin.conversations


def policy_of(stored: Stored) -> ToolPolicy | None:
    """The tool policy that the run began with, and is under as long as it lasts."""
    rules = stored.story.header["setup"].get("policy")
    return None if rules is None else ToolPolicy.of(rules)


def _choice(origin: Origin, given: Given, environ: Mapping[str, str]) -> Choice:
    if given.model is not None:
        return choose(given.model, given.base_url or (None if is_local(given.model) else origin.base_url), environ)
    if given.base_url is not None:
        return replace(choose(origin.model, given.base_url, environ), why="the model that began the run")
    url, here = origin.base_url, environ.get("OPENAI_BASE_URL", "").strip()
    if url is not None and here and public_url(here) == url:
        url = here  # the same server, with the name and password that the trail does not keep
    return Choice(origin.model, url, "the model that began the run")


def _tools(origin: Origin, given: Given) -> Registry:
    specs = list(given.tools or origin.tools) or None
    files = given.files or (None if origin.files is None else Path(origin.files))
    try:
        return toolbox(specs, files, origin.profile)
    except ToolDefinitionError as error:
        if given.tools or Path(origin.directory) == Path.cwd():
            raise
        raise ToolDefinitionError(
            f"{error}. The run was begun in {origin.directory}: go there, or give --tools", tool=error.tool
        ) from error


def order_of(stored: Stored, given: Given) -> Order:
    """The order that the run was begun with, changed as the command line says. Raises `FsmAgentError` for what cannot be made again."""
    origin = Origin.of(stored)
    language: Any = origin.language
    asks: Any = given.approve or origin.approve
    return Order(
        task=str(stored.story.header["task"]),
        choice=_choice(origin, given, os.environ),
        tools=_tools(origin, given),
        limits=newest_limits(stored.story.entries),
        dialect=origin.dialect,
        system=origin.system,
        language=language,
        memory=memory_of(origin.memory),
        profile=origin.profile,
        thread=stored.story.header["thread_id"],
        conversations=_conversations(origin, os.environ),
        approve=asks if asks in get_args(Policy) else "ask",
        policy=policy_of(stored),
        table=_table(origin, given),
        store=stored.journal.store,
        origin=stored.story.origin,
    )


def _table(origin: Origin, given: Given) -> Table | None:
    spec = given.table or origin.table
    try:
        return table_of(spec)
    except DefinitionError as error:
        if given.table or Path(origin.directory) == Path.cwd():
            raise
        raise DefinitionError(f"{error}. The run was begun in {origin.directory}: go there, or give --table") from error


def code_of(stored: Stored, given: Given) -> tuple[Setup, Machine]:
    """What the run needs to be folded: those of the agent given, which is made once, else `setup_of` and `machine_of`."""
    if given.agent is None:
        return setup_of(stored, given), machine_of(stored, given)
    agent = agent_of(given.agent, stored.journal.store)
    return agent.setup, agent.machine


def machine_of(stored: Stored, given: Given) -> Machine:
    """The machine that the run goes by: that of the table given, else as it began. Raises `DefinitionError` as `table_of`."""
    table = _table(Origin.of(stored), given) if stored.made_here else table_of(given.table)
    return DEFAULT_MACHINE if table is None else Machine(table)


def setup_of(stored: Stored, given: Given) -> Setup:
    """The definition that the run needs to be folded: the tools and the dialect, without a model."""
    origin = Origin.of(stored)
    of_profile = None if origin.profile is None else profile_named(origin.profile)
    return Setup(
        limits=newest_limits(stored.story.entries),
        tools=_tools(origin, given),
        dialect=dialect_for(origin.dialect or (of_profile.dialect if of_profile else None), origin.model),
        memory=memory_of(origin.memory) or (of_profile.memory if of_profile else Window()),
        system=origin.system,
        policy=policy_of(stored),
    )


def agent_of(spec: str, trails: TrailStore) -> Agent:
    """The agent that `module:attribute` names: an `Agent` with a store of its own, or a function that is given `store` and returns one.

    Raises `DefinitionError` for anything else.
    """
    found = load(spec.removesuffix("()"), "--agent")
    if not isinstance(found, Agent) and callable(found):
        try:
            found = found(store=trails)
        except (Exception, SystemExit) as error:
            raise DefinitionError(f"--agent {spec!r}: calling it with store=... failed: {error_line(error)}") from error
    if not isinstance(found, Agent):
        raise DefinitionError(f"--agent {spec!r}: name an Agent, or a function that takes store= and returns one")
    if found.trails is None:
        raise DefinitionError(f"--agent {spec!r}: the agent has no store; name a function that takes store= instead")
    return found
