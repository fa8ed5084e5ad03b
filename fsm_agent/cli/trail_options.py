"""The options of the commands about stored runs, and how those that go on with one are told to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fsm_agent.cli.env_file import load_env_file

if TYPE_CHECKING:
    from fsm_agent.cli.decide import Going

__all__ = [
    "AgentSpec",
    "All",
    "Approval",
    "BaseUrl",
    "By",
    "Call",
    "Digest",
    "Files",
    "GoOn",
    "Model",
    "Run",
    "Tools",
    "Unredacted",
    "environment",
    "going",
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
        metavar="NAME", help="Who decides, for the trail. Default: the user of the system.", show_default=False
    ),
]
Digest = Annotated[
    str,
    typer.Option(
        metavar="HEX", help="What show says of the call: refuse when it waits with another.", show_default=False
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
    typer.Option(metavar="DIR", help="The directory of the file tools. Default: as the run began.", show_default=False),
]
Approval = Annotated[
    Literal["ask", "yes", "no", "defer"] | None,
    typer.Option(help="Who decides about later calls. Default: as the run began.", show_default=False),
]
Unredacted = Annotated[bool, typer.Option("--unredacted", help="Keep what looks like a secret.")]


def going(
    *,
    by: str | None,
    agent: str | None,
    tools: list[str] | None,
    files: Path | None,
    model: str | None,
    base_url: str | None,
    approve: Literal["ask", "yes", "no", "defer"] | None,
    env_file: Path | None,
    as_json: bool,
    quiet: bool,
    go_on: bool = True,
) -> Going:
    """How the command goes on, as its options say."""
    from fsm_agent.cli import decide, origin, run  # noqa: PLC0415 - the engine, for commands that run it

    environment(env_file)
    given = origin.Given(
        model=model, base_url=base_url, tools=tuple(tools or ()), files=files, approve=approve, agent=agent
    )
    who = decide.os_user() if by is None else by
    return decide.Going(given=given, by=who, watch=run.Watch(quiet=quiet), as_json=as_json, on=go_on)


def environment(env_file: Path | None) -> None:
    """Read an env file, when there is one."""
    if env_file is not None:
        load_env_file(env_file, os.environ)
