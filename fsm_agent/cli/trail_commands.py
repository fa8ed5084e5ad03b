"""The commands about stored runs. Their rooms are imported when a command runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from fsm_agent.cli import options
from fsm_agent.cli.env_file import load_env_file

if TYPE_CHECKING:
    from fsm_agent.cli.decide import Going

__all__ = ["add_to"]

_PANEL: Final = "Stored runs"

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
Approval = Annotated[
    Literal["ask", "yes", "no", "defer"] | None,
    typer.Option(help="Who decides about later calls. Default: as the run began.", show_default=False),
]
Unredacted = Annotated[bool, typer.Option("--unredacted", help="Keep what looks like a secret.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for name, command in _COMMANDS.items():
        app.command(name, rich_help_panel=_PANEL)(command)


def _going(
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

    _environment(env_file)
    given = origin.Given(
        model=model, base_url=base_url, tools=tuple(tools or ()), files=files, approve=approve, agent=agent
    )
    who = decide.os_user() if by is None else by
    return decide.Going(given=given, by=who, watch=run.Watch(quiet=quiet), as_json=as_json, on=go_on)


def _environment(env_file: Path | None) -> None:
    if env_file is not None:
        load_env_file(env_file, os.environ)


def _runs(
    *,
    status: Annotated[
        Literal["running", "suspended", "completed", "partial", "failed", "cancelled"] | None,
        typer.Option(help="Only those.", show_default=False),
    ] = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the runs of a store, newest first: status, when, how many entries, and who holds them."""
    _environment(env_file)
    from fsm_agent.cli import runs  # noqa: PLC0415 - the engine, for commands that show it

    runs.show_runs(store, status=status, as_json=as_json)


def _show(
    run: Run,
    *,
    messages: Annotated[bool, typer.Option("--messages", help="The messages too.")] = False,
    unredacted: Unredacted = False,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show one run: transitions with their guards, calls with their results, and what it waits for."""
    _environment(env_file)
    from fsm_agent.cli import runs  # noqa: PLC0415 - the engine, for commands that show it

    runs.show_run(store, run, as_json=as_json, messages=messages, unredacted=unredacted)


def _approve(
    run: Run,
    call: Call = None,
    *,
    every: All = False,
    digest: Digest = "",
    go_on: GoOn = True,
    by: By = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    files: options.Files = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    approve: Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Let a call that waits run exactly as it is shown."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = _going(
        by=by,
        agent=agent,
        tools=tools,
        files=files,
        model=model,
        base_url=base_url,
        approve=approve,
        env_file=env_file,
        as_json=as_json,
        quiet=quiet,
        go_on=go_on,
    )
    raise typer.Exit(decide.decide(store, run, call, decide.approving, going, every=every, digest=digest))


def _deny(
    run: Run,
    call: Call = None,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the model reads it.", show_default=False)] = "",
    stop: Annotated[bool, typer.Option("--stop", help="End the run.")] = False,
    every: All = False,
    digest: Digest = "",
    go_on: GoOn = True,
    by: By = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    files: options.Files = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    approve: Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Refuse a call that waits; the model reads the reason."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = _going(
        by=by,
        agent=agent,
        tools=tools,
        files=files,
        model=model,
        base_url=base_url,
        approve=approve,
        env_file=env_file,
        as_json=as_json,
        quiet=quiet,
        go_on=go_on,
    )
    raise typer.Exit(
        decide.decide(store, run, call, decide.denying(reason, stop=stop), going, every=every, digest=digest)
    )


def _edit(
    run: Run,
    call: Call = None,
    *,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="The whole new arguments, as one object.", show_default=False)
    ],
    digest: Digest = "",
    go_on: GoOn = True,
    by: By = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    files: options.Files = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    approve: Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Let a call that waits run with other arguments, which are checked like the model's own."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = _going(
        by=by,
        agent=agent,
        tools=tools,
        files=files,
        model=model,
        base_url=base_url,
        approve=approve,
        env_file=env_file,
        as_json=as_json,
        quiet=quiet,
        go_on=go_on,
    )
    chosen = decide.editing(decide.edited_arguments(args))
    raise typer.Exit(decide.decide(store, run, call, chosen, going, digest=digest))


def _answer(
    run: Run,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALL] TEXT", help="The id of the call, if several wait; and its result.", show_default=False
        ),
    ],
    *,
    digest: Digest = "",
    go_on: GoOn = True,
    by: By = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    files: options.Files = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    approve: Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Do not run a call that waits: TEXT is its result. For a call in doubt that did take effect, say."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = _going(
        by=by,
        agent=agent,
        tools=tools,
        files=files,
        model=model,
        base_url=base_url,
        approve=approve,
        env_file=env_file,
        as_json=as_json,
        quiet=quiet,
        go_on=go_on,
    )
    call, text = decide.call_and_text(words)
    raise typer.Exit(decide.decide(store, run, call, decide.answering(text), going, digest=digest))


def _resume(
    run: Run,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="LIMIT=VALUE", help="Go on under another limit; may be repeated.", show_default=False
        ),
    ] = None,
    by: By = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    files: options.Files = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    approve: Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Go on with a run after a crash, a pause, or decisions, in any process and after any restart."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = _going(
        by=by,
        agent=agent,
        tools=tools,
        files=files,
        model=model,
        base_url=base_url,
        approve=approve,
        env_file=env_file,
        as_json=as_json,
        quiet=quiet,
    )
    raise typer.Exit(decide.resume_run(store, run, settings or (), going))


def _cancel(
    run: Run,
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the trail.")] = "cancelled by the caller",
    agent: AgentSpec = None,
    tools: options.Tools = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    debug: options.Debug = False,
) -> None:
    """End a run that waits, or that a crash broke off."""
    _environment(env_file)
    from fsm_agent.cli import decide, origin  # noqa: PLC0415 - the engine, for commands that run it

    decide.cancel_run(store, run, why, origin.Given(tools=tuple(tools or ()), agent=agent))


def _replay(
    run: Run,
    *,
    to: Annotated[
        int | None, typer.Option(metavar="SEQ", min=0, help="Stop after this transition.", show_default=False)
    ] = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Drive a run again by what its trail says, without calling model or tools, and show each transition with its guards."""
    _environment(env_file)
    from fsm_agent.cli import origin, replay  # noqa: PLC0415 - the engine, for commands that show it

    given = origin.Given(tools=tuple(tools or ()), agent=agent)
    replay.replay_run(store, run, to=to, given=given, as_json=as_json)


def _fork(
    run: Run,
    *,
    at: Annotated[
        int,
        typer.Option(metavar="SEQ", min=0, help="The last transition that is kept; 0 keeps none.", show_default=False),
    ],
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The id of the new run. Default: a new one.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the new run.")] = False,
    by: By = None,
    agent: AgentSpec = None,
    tools: options.Tools = None,
    files: options.Files = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    approve: Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Begin a new run with the past of another; what the old one did later needs approval there. Prints the new id."""
    from fsm_agent.cli import replay  # noqa: PLC0415 - the engine, for commands that run it

    going = _going(
        by=by,
        agent=agent,
        tools=tools,
        files=files,
        model=model,
        base_url=base_url,
        approve=approve,
        env_file=env_file,
        as_json=as_json,
        quiet=quiet,
    )
    raise typer.Exit(replay.fork_run(store, run, at=at, new=run_id, going=going if resume else None, as_json=as_json))


def _audit(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run id, or its beginning.", show_default=False)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every run of the store.")] = False,
    head: Annotated[
        str,
        typer.Option(
            metavar="SEAL", help="A seal that was kept elsewhere: shows that nothing was cut off.", show_default=False
        ),
    ] = "",
    agent: AgentSpec = None,
    tools: options.Tools = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Check trails: seals, numbers, and that every transition is what the table gives. Exit code 0 only when all is right, else 1.

    Keys come from FSM_AGENT_TRAIL_HMAC_KEY, FSM_AGENT_TRAIL_ED25519_KEY or FSM_AGENT_TRAIL_ED25519_PUBLIC_KEY.
    """
    _environment(env_file)
    from fsm_agent.cli import origin, replay  # noqa: PLC0415 - the engine, for commands that show it

    replay.checked_arguments(run, every)
    given = origin.Given(tools=tuple(tools or ()), agent=agent)
    raise typer.Exit(replay.audit_runs(store, run, head=head, given=given, as_json=as_json))


def _export(
    run: Run,
    *,
    format: Annotated[
        Literal["jsonl", "csv", "otel"],
        typer.Option(
            "--format", "-f", help="One entry a line, one transition a row, or spans as OTLP JSON (extra otel)."
        ),
    ] = "jsonl",
    output: options.Output = None,
    unredacted: Unredacted = False,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    debug: options.Debug = False,
) -> None:
    """Write a run for other programs: JSON Lines, CSV, or OpenTelemetry spans. Secrets are redacted."""
    _environment(env_file)
    from fsm_agent.cli import export  # noqa: PLC0415 - the engine, for commands that show it

    export.export_run(store, run, format=format, output=output, unredacted=unredacted)


_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "runs": _runs,
    "show": _show,
    "approve": _approve,
    "deny": _deny,
    "edit": _edit,
    "answer": _answer,
    "resume": _resume,
    "cancel": _cancel,
    "replay": _replay,
    "fork": _fork,
    "audit": _audit,
    "export": _export,
}
