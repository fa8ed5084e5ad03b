"""The command `fsm-agent`. Its modules are imported when a command runs, so that `--help` is quick."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fsm_agent.alphabet import Status
from fsm_agent.cli import model_commands, options, trail_commands, trail_options
from fsm_agent.cli.console import tolerant
from fsm_agent.cli.endings import EXIT_CODES, Commands
from fsm_agent.cli.env_file import load_env_file
from fsm_agent.cli.going import Policy
from fsm_agent.cli.options import GivenLimits, with_limits
from fsm_agent.limits import Limits

__all__ = ["app", "main"]

_EPILOG = (
    "Exit codes: 0 completed, 3 partial (an answer forced at a limit), 1 failed, 4 suspended (waits for a person), "
    "130 cancelled, 2 wrong usage: nothing ran."
)

app = typer.Typer(
    name="fsm-agent",
    cls=Commands,
    help="An LLM agent whose loop is an explicit finite-state machine.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

app.add_typer(model_commands.models, name="model")


def main() -> None:
    """What the command `fsm-agent` calls."""
    tolerant()
    if os.getpid() == 1:  # in a container, where the system ignores a signal that the first process has no handler for
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    try:
        app(prog_name="fsm-agent")
    except KeyboardInterrupt:  # while the commands are put together; what a command makes of it stands in `Commands`
        sys.stderr.write("cancelled\n")
        sys.exit(EXIT_CODES[Status.CANCELLED])


def _show_version(asked: bool) -> None:
    if asked:
        _version()
        raise typer.Exit


def _version() -> None:
    from fsm_agent.cli import about  # noqa: PLC0415 - a tenth of a second that only this needs

    about.show_versions()


@app.callback()
def _root(
    debug: options.Debug = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """See the help of `app`."""


def _limits(given: GivenLimits, env_file: Path | None, profile: str | None = None) -> Limits:
    """The limits: what the command line says, else the environment, an env file included, else the profile, else the defaults."""
    if env_file is not None:
        load_env_file(env_file, os.environ)
    if profile is not None:
        from fsm_agent.profiles import profile as profile_named  # noqa: PLC0415 - the engine, for commands that run it

        return profile_named(profile).limits_with(given)
    return Limits.from_env(None, **given)


@app.command("run", epilog=_EPILOG)
@with_limits
def _run(
    task: Annotated[
        str | None, typer.Argument(help="What to do; - reads it from standard input.", show_default=False)
    ] = None,
    *,
    limits: GivenLimits,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    profile: options.Profile = None,
    example: Annotated[bool, typer.Option("--example", help="Run the task that the profile brings along.")] = False,
    dialect: options.Dialect = None,
    tools: options.Tools = None,
    files: options.Files = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Replace the system text.", show_default=False)
    ] = None,
    language: Annotated[
        Literal["en", "zh"] | None,
        typer.Option(help="The language the model is addressed in. Default: that of the task.", show_default=False),
    ] = None,
    memory: options.Memory = None,
    thread: options.Thread = None,
    conversations: options.Conversations = None,
    approve: Annotated[
        Policy,
        typer.Option(
            help="Who decides about calls that need approval: you at the terminal, always the same, or somebody later, with "
            "--store (fsm-agent approve, deny, edit, answer)."
        ),
    ] = "ask",
    policy: options.PolicyFile = None,
    table: options.TableSpec = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream", help="Show the reply as it arrives. Default: at a terminal.", show_default=False
        ),
    ] = None,
    quiet: options.Quiet = False,
    log: options.Log = False,
    debug: options.Debug = False,
) -> None:
    """Run TASK to its end: the answer on standard output, what happens and the summary on standard error."""
    configured = _limits(limits, env_file, profile)
    from fsm_agent.cli import begin, run  # noqa: PLC0415 - the engine, for commands that run it

    wanted = begin.Wanted(
        task=task,
        limits=configured,
        model=model,
        base_url=base_url,
        profile=profile,
        example=example,
        dialect=dialect,
        tools=tuple(tools or ()),
        files=files,
        system=system,
        language=language,
        memory=memory,
        thread=thread,
        conversations=conversations,
        approve=approve,
        policy=policy,
        table=table,
        store=store,
    )
    watch = run.Watch(quiet=quiet, log=log, streaming=stream, calls=not as_json)
    raise typer.Exit(begin.begin(wanted, watch, as_json=as_json))


@app.command("demo", epilog=_EPILOG)
def _demo(
    *,
    model: options.DemoModel = None,
    base_url: options.BaseUrl = None,
    dialect: options.Dialect = None,
    language: Annotated[Literal["en", "zh"], typer.Option(help="The language of the task.")] = "en",
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            parser=options.directory,
            metavar="DIR",
            help="Where the file is written. Default: a temporary directory, removed at the end.",
            show_default=False,
        ),
    ] = None,
    env_file: options.EnvFile = None,
    log: options.Log = False,
    debug: options.Debug = False,
) -> None:
    """Solve a small task with real tools on a model of this machine, no API key, and check what came out.

    The first start fetches the weights (1.1 GB, once).
    """
    limits = _limits({}, env_file)
    from fsm_agent.cli import demo, run  # noqa: PLC0415 - the engine, for commands that run it

    code = demo.show_demo(
        model=model,
        base_url=base_url,
        dialect=dialect,
        language=language,
        directory=directory,
        limits=limits,
        watch=run.Watch(log=log),
    )
    raise typer.Exit(code)


@app.command("profiles")
def _profiles(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Show the profiles side by side: what an agent is made of that is made by name (run --profile NAME)."""
    from fsm_agent.cli import profiles  # noqa: PLC0415 - the engine, for commands that show it

    profiles.show_profiles(as_json=as_json)


@app.command("tools")
def _tools(
    *,
    tools: options.Tools = None,
    files: options.Files = None,
    profile: options.Profile = None,
    lint: options.Lint = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the tools that `run` would offer, with their JSON schemas. --lint ends with 1 when there is something to mend."""
    from fsm_agent.cli import listing, toolbox  # noqa: PLC0415 - the engine, for commands that show it

    registry = toolbox.toolbox(tools, files, profile)
    if not lint:
        listing.show_tools(registry, as_json=as_json)
    elif not listing.show_lint(registry, as_json=as_json):
        raise typer.Exit(1)


@app.command("table")
@with_limits
def _table(
    *,
    limits: GivenLimits,
    profile: options.OfProfile = None,
    table: options.TableSpec = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table.")] = False,
    debug: options.Debug = False,
) -> None:
    """Print the table of the machine: every transition, and what each guard says under the limits as configured."""
    configured = _limits(limits, env_file, profile)
    from fsm_agent.cli import listing, toolbox  # noqa: PLC0415 - the engine, for commands that show it

    listing.show_table(configured, toolbox.rows_of(table), as_json=as_json, markdown=markdown)


@app.command("limits")
@with_limits
def _show_limits(
    *,
    limits: GivenLimits,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show every limit, its value, and where that comes from."""
    configured = _limits(limits, env_file)
    from fsm_agent.cli import listing  # noqa: PLC0415 - the engine, for commands that show it

    listing.show_limits(configured, limits, as_json=as_json)


@app.command("verify")
@with_limits
def _verify(
    *,
    limits: GivenLimits,
    profile: options.OfProfile = None,
    table: options.TableSpec = None,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Count the model calls of a memory that asks for summaries.")
    ] = False,
    most: options.Most = None,
    policy: options.PolicyFile = None,
    env_file: options.EnvFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Prove that every run ends under these limits, and print the worst case. Ends with 1 when something is wrong."""
    configured = _limits(limits, env_file, profile)
    from fsm_agent.cli import policy_file, toolbox, verify  # noqa: PLC0415 - the engine, for commands that show it

    rules = policy_file.policy_from(policy)
    rows = toolbox.rows_of(table)
    parts = verify.told_parts(configured, profile, rules, summaries=summaries)
    if not verify.show_certificate(configured, rows, parts, most=most, as_json=as_json):
        raise typer.Exit(1)


@app.command("diagram")
@with_limits
def _diagram(
    *,
    limits: GivenLimits,
    format: options.Format = None,
    output: options.Output = None,
    detail: Annotated[
        Literal["events", "guards", "sentences"],
        typer.Option(help="What an arrow says: events, guards with their limits, or what those mean, in words."),
    ] = "guards",
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Draw this run into it, under its own limits.", show_default=False),
    ] = None,
    profile: options.OfProfile = None,
    policy: options.PolicyFile = None,
    table: options.TableSpec = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    debug: options.Debug = False,
) -> None:
    """Draw the machine with the limits as configured, or a tool policy: Mermaid, DOT, SVG, PNG, Markdown or CSV."""
    configured = _limits(limits, env_file, profile)
    from fsm_agent.cli import diagram, policy_file, toolbox  # noqa: PLC0415 - the engine, for commands that show it

    rules = policy_file.policy_from(policy)
    if rules is not None:
        diagram.show_policy(rules, diagram.Place(output, format), run=run, table=table)
        return
    rows = toolbox.rows_of(table)
    diagram.show_diagram(configured, diagram.Place(output, format), rows=rows, detail=detail, run=run, store=store)


@app.command("diff")
def _diff(
    first: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run: A.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="RUN", help="The id of another: B.", show_default=False)],
    *,
    format: options.Format = None,
    output: options.Output = None,
    table: options.TableSpec = None,
    store: options.Store = None,
    env_file: options.EnvFile = None,
    debug: options.Debug = False,
) -> None:
    """Draw two runs on one picture: what only A did, what only B did, and where they part."""
    trail_options.environment(env_file)
    from fsm_agent.cli import diagram, toolbox  # noqa: PLC0415 - the engine, for commands that show it

    rows = toolbox.rows_of(table)
    diagram.show_diff(first, second, diagram.Place(output, format), rows=rows, store=store)


trail_commands.add_to(app, _EPILOG)


@app.command("version")
def _print_version() -> None:
    """Show the versions of this package and of what it stands on."""
    _version()
