"""The commands by which people decide about the calls of a stored run, and go on with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from fsm_agent.cli import options, trail_options

__all__ = ["COMMANDS"]


def _approve(
    run: trail_options.Run,
    call: trail_options.Call = None,
    *,
    every: trail_options.All = False,
    digest: trail_options.Digest = "",
    go_on: trail_options.GoOn = True,
    by: trail_options.By = None,
    agent: trail_options.AgentSpec = None,
    tools: trail_options.Tools = None,
    files: trail_options.Files = None,
    model: trail_options.Model = None,
    base_url: trail_options.BaseUrl = None,
    approve: trail_options.Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Let a call that waits run exactly as it is shown."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = trail_options.going(
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
    run: trail_options.Run,
    call: trail_options.Call = None,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the model reads it.", show_default=False)] = "",
    stop: Annotated[bool, typer.Option("--stop", help="End the run.")] = False,
    every: trail_options.All = False,
    digest: trail_options.Digest = "",
    go_on: trail_options.GoOn = True,
    by: trail_options.By = None,
    agent: trail_options.AgentSpec = None,
    tools: trail_options.Tools = None,
    files: trail_options.Files = None,
    model: trail_options.Model = None,
    base_url: trail_options.BaseUrl = None,
    approve: trail_options.Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Refuse a call that waits; the model reads the reason."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = trail_options.going(
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
    run: trail_options.Run,
    call: trail_options.Call = None,
    *,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="The whole new arguments, as one object.", show_default=False)
    ],
    digest: trail_options.Digest = "",
    go_on: trail_options.GoOn = True,
    by: trail_options.By = None,
    agent: trail_options.AgentSpec = None,
    tools: trail_options.Tools = None,
    files: trail_options.Files = None,
    model: trail_options.Model = None,
    base_url: trail_options.BaseUrl = None,
    approve: trail_options.Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Let a call that waits run with other arguments, which are checked like the model's own."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = trail_options.going(
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
    run: trail_options.Run,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALL] TEXT", help="The id of the call, if several wait; and its result.", show_default=False
        ),
    ],
    *,
    digest: trail_options.Digest = "",
    go_on: trail_options.GoOn = True,
    by: trail_options.By = None,
    agent: trail_options.AgentSpec = None,
    tools: trail_options.Tools = None,
    files: trail_options.Files = None,
    model: trail_options.Model = None,
    base_url: trail_options.BaseUrl = None,
    approve: trail_options.Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Do not run a call that waits: TEXT is its result. For a call in doubt that did take effect, say."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = trail_options.going(
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
    run: trail_options.Run,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="LIMIT=VALUE", help="Go on under another limit; may be repeated.", show_default=False
        ),
    ] = None,
    by: trail_options.By = None,
    agent: trail_options.AgentSpec = None,
    tools: trail_options.Tools = None,
    files: trail_options.Files = None,
    model: trail_options.Model = None,
    base_url: trail_options.BaseUrl = None,
    approve: trail_options.Approval = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Go on with a run after a crash, a pause, or decisions, in any process and after any restart."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    going = trail_options.going(
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


COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "approve": _approve,
    "deny": _deny,
    "edit": _edit,
    "answer": _answer,
    "resume": _resume,
}
"""By the names of the commands."""
