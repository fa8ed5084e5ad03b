"""The options of the commands about stored runs, and how those that go on with one are told to."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fsm_agent.cli.env_file import load_env_file
from fsm_agent.cli.going import Given, Going, Policy, os_user
from fsm_agent.cli.options import Debug, EnvFile, Json, Quiet, TableSpec, directory, in_place_of, not_empty

__all__ = [
    "All",
    "Call",
    "Digest",
    "GoOn",
    "Head",
    "Run",
    "Unredacted",
    "environment",
    "with_given",
    "with_going",
]

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, or its beginning.", show_default=False)]
Call = Annotated[
    str | None,
    typer.Argument(
        metavar="[CALL]", help="The id of a call that waits; not needed when it is the only one.", show_default=False
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        parser=not_empty,
        metavar="NAME",
        help="Who decides, for the trail. Default: the user of the system.",
        show_default=False,
    ),
]
Digest = Annotated[
    str | None,
    typer.Option(
        parser=not_empty,
        metavar="HEX",
        help="What show says of the call: refuse when it waits with another.",
        show_default=False,
    ),
]
GoOn = Annotated[
    bool,
    typer.Option("--go-on/--no-go-on", help="Go on with the run once everything is decided, or leave that to resume."),
]
All = Annotated[bool, typer.Option("--all", help="Every call that waits.")]
AgentSpec = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="MODULE:ATTR",
        help="The agent that began the run, or a function that takes store= and returns it. Default: made again as run made it.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help="Another model. Default: as the run began.", show_default=False)
]
BaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Another server of the model. Default: as the run began.", show_default=False),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:ATTR",
        help="The tools, where they are to be found elsewhere now. Default: as the run began, from the current directory.",
        show_default=False,
    ),
]
Files = Annotated[
    Path | None,
    typer.Option(
        parser=directory,
        metavar="DIR",
        help="The directory of the file tools. Default: as the run began.",
        show_default=False,
    ),
]
Approval = Annotated[
    Policy | None,
    typer.Option(help="Who decides about later calls. Default: as the run began.", show_default=False),
]
Head = Annotated[
    str | None,
    typer.Option(
        parser=not_empty,
        metavar="SEAL",
        help="A seal that was kept elsewhere: shows that nothing was cut off.",
        show_default=False,
    ),
]
Unredacted = Annotated[bool, typer.Option("--unredacted", help="Keep what looks like a secret.")]


def with_going(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command(..., going: Going)` with the options that say how it goes on in the place of its parameter `going`."""
    return in_place_of("going", _GOING, _going)(command)


def with_given(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command(..., given: Given)` with the options that say where the agent's own code is in the place of its parameter `given`."""
    return in_place_of("given", _GIVEN, _given)(command)


def _option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_CODE: Final = (_option("agent", AgentSpec), _option("tools", Tools), _option("table", TableSpec))
_ENV_FILE: Final = _option("env_file", EnvFile)
_GIVEN: Final = (*_CODE, _ENV_FILE)
_GOING: Final = (
    _option("by", By),
    *_CODE,
    _option("files", Files),
    _option("model", Model),
    _option("base_url", BaseUrl),
    _option("approve", Approval),
    _ENV_FILE,
    _option("as_json", Json, default=False),
    _option("quiet", Quiet, default=False),
    _option("debug", Debug, default=False),
)


def _given(said: dict[str, Any]) -> Given:
    """What the options say; those that a command does not have are as the run began. Reads the env file first."""
    environment(said.pop("env_file"))
    return Given(**{**said, "tools": tuple(said["tools"] or ())})


def _going(said: dict[str, Any]) -> Going:
    by, quiet, as_json = (said.pop(name) for name in ("by", "quiet", "as_json"))
    said.pop("debug")
    return Going(given=_given(said), by=os_user() if by is None else by, quiet=quiet, as_json=as_json)


def environment(env_file: Path | None) -> None:
    """Read an env file, when there is one."""
    if env_file is not None:
        load_env_file(env_file, os.environ)
