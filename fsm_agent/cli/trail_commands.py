"""The commands about stored runs. Their modules are imported when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import typer

from fsm_agent.cli import decision_commands, options, trail_options
from fsm_agent.cli.going import Given, Going

__all__ = ["add_to"]

_PANEL: Final = "Stored runs"


def add_to(app: typer.Typer, exit_codes: str) -> None:
    """Register the commands; those that run something say in their help what the exit codes mean."""
    for name, command in _COMMANDS.items():
        runs = name in decision_commands.COMMANDS or name == "fork"
        app.command(name, rich_help_panel=_PANEL, epilog=exit_codes if runs else None)(command)


def _runs(
    *,
    status: Annotated[
        Literal["running", "suspended", "completed", "partial", "failed", "cancelled", "damaged"] | None,
        typer.Option(help="Only those.", show_default=False),
    ] = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the runs of a store, newest first: status, when, how many entries, and who holds them. A damaged one makes the exit code 1."""
    trail_options.environment(env_file)
    from fsm_agent.cli import runs  # noqa: PLC0415 - the engine, for commands that show it

    raise typer.Exit(runs.show_runs(store, status=status, as_json=as_json))


def _show(
    run: trail_options.Run,
    *,
    messages: Annotated[bool, typer.Option("--messages", help="The messages too.")] = False,
    unredacted: trail_options.Unredacted = False,
    table: options.TableSpec = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show one run: transitions with their guards, calls with their results, and what it waits for."""
    trail_options.environment(env_file)
    from fsm_agent.cli import runs  # noqa: PLC0415 - the engine, for commands that show it

    runs.show_run(store, run, table=table, as_json=as_json, messages=messages, unredacted=unredacted)


def _cancel(
    run: trail_options.Run,
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the trail.")] = "cancelled by the caller",
    given: Given,
    store: options.Store = None,
    debug: options.Debug = False,
) -> None:
    """End a run that waits, or that a crash broke off."""
    from fsm_agent.cli import decide  # noqa: PLC0415 - the engine, for commands that run it

    decide.cancel_run(store, run, why, given)


def _replay(
    run: trail_options.Run,
    *,
    to: Annotated[
        int | None, typer.Option(metavar="SEQ", min=0, help="Stop after this transition.", show_default=False)
    ] = None,
    given: Given,
    store: options.Store = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Drive a run again by what its trail says, without calling model or tools, and show each transition with its guards."""
    from fsm_agent.cli import replay  # noqa: PLC0415 - the engine, for commands that show it

    replay.replay_run(store, run, to=to, given=given, as_json=as_json)


def _fork(
    run: trail_options.Run,
    *,
    at: Annotated[
        int,
        typer.Option(metavar="SEQ", min=0, help="The last transition that is kept; 0 keeps none.", show_default=False),
    ],
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The id of the new run. Default: a new one.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the new run.")] = False,
    going: Going,
    store: options.Store = None,
) -> None:
    """Begin a new run with the past of another; what the old one did later needs approval there. Prints the new id."""
    from fsm_agent.cli import replay  # noqa: PLC0415 - the engine, for commands that run it

    raise typer.Exit(replay.fork_run(store, run, at=at, new=run_id, going=going, resume=resume))


def _audit(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run id, or its beginning.", show_default=False)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every run of the store.")] = False,
    head: trail_options.Head = None,
    given: Given,
    store: options.Store = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Check trails: seals, numbers, and that every transition is what the table gives. Exit code 0 only when all is right, else 1.

    Keys come from FSM_AGENT_TRAIL_HMAC_KEY, FSM_AGENT_TRAIL_ED25519_KEY or FSM_AGENT_TRAIL_ED25519_PUBLIC_KEY.
    """
    from fsm_agent.cli import replay  # noqa: PLC0415 - the engine, for commands that show it

    replay.checked_arguments(run, every, head)
    raise typer.Exit(replay.audit_runs(store, run, head=head or "", given=given, as_json=as_json))


def _export(
    run: trail_options.Run,
    *,
    format: Annotated[
        Literal["jsonl", "csv", "otel"],
        typer.Option(
            "--format", "-f", help="One entry a line, one transition a row, or spans as OTLP JSON (extra otel)."
        ),
    ] = "jsonl",
    output: options.Output = None,
    unredacted: trail_options.Unredacted = False,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    debug: options.Debug = False,
) -> None:
    """Write a run for other programs: JSON Lines, CSV, or OpenTelemetry spans. Secrets are redacted."""
    trail_options.environment(env_file)
    from fsm_agent.cli import export  # noqa: PLC0415 - the engine, for commands that show it

    export.export_run(store, run, format=format, output=output, unredacted=unredacted)


def _trail_to_test(
    run: trail_options.Run,
    *,
    output: options.Output = None,
    unredacted: Annotated[
        bool, typer.Option("--unredacted", help="Write a run that holds what looks like a secret, secret and all.")
    ] = False,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    debug: options.Debug = False,
) -> None:
    """Write a run as a regression test: a pytest file that scripts its model and tools, and holds its path, reason and answer."""
    trail_options.environment(env_file)
    from fsm_agent.cli import trail_to_test  # noqa: PLC0415 - the engine, for commands that run it

    trail_to_test.write_test(store, run, output=output, unredacted=unredacted)


def _report(
    run: trail_options.Run,
    *,
    output: options.Output = None,
    unredacted: trail_options.Unredacted = False,
    head: trail_options.Head = None,
    given: Given,
    store: options.Store = None,
    debug: options.Debug = False,
) -> None:
    """Write a run as one HTML page that needs no network: how it ended and why, where time and tokens went, and every transition.

    Its calls, messages, path and the audit's verdict too. Of a damaged trail it shows what can be read. Secrets are redacted.
    """
    from fsm_agent.cli import report  # noqa: PLC0415 - the engine, for commands that show it

    report.report_run(store, run, output=output, head=head or "", given=given, unredacted=unredacted)


_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "runs": _runs,
    "show": _show,
    **decision_commands.COMMANDS,
    "cancel": trail_options.with_given(_cancel),
    "replay": trail_options.with_given(_replay),
    "fork": trail_options.with_going(_fork),
    "audit": trail_options.with_given(_audit),
    "export": _export,
    "trail-to-test": _trail_to_test,
    "report": trail_options.with_given(_report),
}
