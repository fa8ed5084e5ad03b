"""The commands by which people decide about the calls of a stored run, and go on with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from fsm_agent.cli import options, trail_options
from fsm_agent.cli.going import Going

__all__ = ["COMMANDS"]


def _approve(
    run: trail_options.Run,
    call: trail_options.Call = None,
    *,
    going: Going,
    every: trail_options.All = False,
    digest: trail_options.Digest = None,
    go_on: trail_options.GoOn = True,
    store: options.Store = None,
) -> None:
    """Let a call that waits run exactly as it is shown."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    chosen = decide.approving
    raise typer.Exit(decide.decide(store, run, call, chosen, going, every=every, digest=digest, go_on=go_on))


def _deny(
    run: trail_options.Run,
    call: trail_options.Call = None,
    *,
    going: Going,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the model reads it.", show_default=False)] = "",
    stop: Annotated[bool, typer.Option("--stop", help="End the run.")] = False,
    every: trail_options.All = False,
    digest: trail_options.Digest = None,
    go_on: trail_options.GoOn = True,
    store: options.Store = None,
) -> None:
    """Refuse a call that waits; the model reads the reason."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    chosen = decide.denying(reason, stop=stop)
    raise typer.Exit(decide.decide(store, run, call, chosen, going, every=every, digest=digest, go_on=go_on))


def _edit(
    run: trail_options.Run,
    call: trail_options.Call = None,
    *,
    going: Going,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="The whole new arguments, as one object.", show_default=False)
    ],
    digest: trail_options.Digest = None,
    go_on: trail_options.GoOn = True,
    store: options.Store = None,
) -> None:
    """Let a call that waits run with other arguments, which are checked like the model's own."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    chosen = decide.editing(decide.edited_arguments(args))
    raise typer.Exit(decide.decide(store, run, call, chosen, going, digest=digest, go_on=go_on))


def _answer(
    run: trail_options.Run,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALL] TEXT", help="The id of the call, if several wait; and its result.", show_default=False
        ),
    ],
    *,
    going: Going,
    digest: trail_options.Digest = None,
    go_on: trail_options.GoOn = True,
    store: options.Store = None,
) -> None:
    """Do not run a call that waits: TEXT is its result. For a call in doubt that did take effect, say."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    call, text = decide.call_and_text(words)
    chosen = decide.answering(text)
    raise typer.Exit(decide.decide(store, run, call, chosen, going, digest=digest, go_on=go_on))


def _resume(
    run: trail_options.Run,
    *,
    going: Going,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="LIMIT=VALUE", help="Go on under another limit; may be repeated.", show_default=False
        ),
    ] = None,
    store: options.Store = None,
) -> None:
    """Go on with a run after a crash, a pause, or decisions, in any process and after any restart."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    raise typer.Exit(decide.resume_run(store, run, settings or (), going))


COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "approve": trail_options.with_going(_approve),
    "deny": trail_options.with_going(_deny),
    "edit": trail_options.with_going(_edit),
    "answer": trail_options.with_going(_answer),
    "resume": trail_options.with_going(_resume),
}
"""By the names of the commands."""
