"""The options that several commands share, and one option for each limit, made from `Limits` itself."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from fsm_agent.cli.endings import debugging
from fsm_agent.limits import ENV_PREFIX, Limits

__all__ = [
    "BaseUrl",
    "Conversations",
    "Debug",
    "DemoModel",
    "Dialect",
    "EnvFile",
    "Files",
    "Format",
    "GivenLimits",
    "Json",
    "Lint",
    "Log",
    "Memory",
    "Model",
    "Most",
    "OfProfile",
    "Output",
    "PolicyFile",
    "Profile",
    "Quiet",
    "Store",
    "TableSpec",
    "Thread",
    "Tools",
    "directory",
    "in_place_of",
    "not_empty",
    "switched_off",
    "with_limits",
]

_PANEL: Final = f"Limits (each also from the environment, as {ENV_PREFIX}<NAME>)"
_MODELS: Final = "openai:NAME, local:1.5b, local:0.5b, a GGUF file, or with --base-url any name the server knows."
_KINDS: Final = {int: "INTEGER", float: "NUMBER", types.NoneType: "none"}


def not_empty(text: str) -> str:
    """What an option says. Raises `BadParameter` for an empty text: a variable that is not set must not switch a check off."""
    if not text.strip():
        raise typer.BadParameter("it is empty; give it a value, or leave the option out")
    return text


def directory(text: str) -> Path:
    """The directory that an option names. Raises as `not_empty`."""
    return Path(not_empty(text))


GivenLimits = dict[str, str | None]
"""The limits given on the command line, by field name: as they were written, None for one that is switched off."""

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"{_MODELS} Default: FSM_AGENT_MODEL, else what the server at --base-url has, else openai:gpt-4o-mini where "
        "OPENAI_API_KEY is set, else local:1.5b.",
        show_default=False,
    ),
]
DemoModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help=f"{_MODELS} Default: FSM_AGENT_MODEL, else what the server at --base-url has, else local:1.5b.",
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="An OpenAI-compatible server, as http://localhost:8080/v1. Default: OPENAI_BASE_URL.",
        show_default=False,
    ),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How the model is asked and read: native (its tool calling), json_action or react (text), or "
        "guided_json (for small models). Default: as the profile says, else guided_json for a local model, native for any other.",
        show_default=False,
    ),
]
Most = Annotated[
    int | None,
    typer.Option(
        "--most",
        metavar="N",
        min=1,
        help="Configurations that are explored at most. Default: 200,000.",
        show_default=False,
    ),
]
TableSpec = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="MODULE:ATTR",
        help="A table of your own, made by fsm_agent.table.extend. Default: the built-in one; to go on with a run, the one it began with.",
        show_default=False,
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:ATTR",
        help="Tools from Python, may be repeated: a tool, a typed function, a list of them or a Registry; "
        "MODULE:ATTR() calls it first. The current directory can be imported. Default: those of the profile, else the calculator.",
        show_default=False,
    ),
]
Files = Annotated[
    Path | None,
    typer.Option(
        parser=directory,
        metavar="DIR",
        help="Add tools that list, read and write files below DIR, and nowhere else. Writing needs approval.",
        show_default=False,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="An agent by name (fsm-agent profiles): its limits, dialect, memory and tools, where no other option says otherwise.",
        show_default=False,
    ),
]
OfProfile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="For an agent by name (fsm-agent profiles), where no other option says otherwise.",
        show_default=False,
    ),
]
Thread = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The conversation that this run goes on with, or begins.", show_default=False),
]
Conversations = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        help="Where threads are kept: an SQLite file, or redis://HOST:PORT/0. Default: as the profile says.",
        show_default=False,
    ),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Read NAME=value lines; what is set already stays.", show_default=False),
]
Format = Annotated[
    Literal["mermaid", "dot", "svg", "png", "markdown", "csv"] | None,
    typer.Option("--format", "-f", help="Default: what the name of the file says, else mermaid.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, not to standard output.", show_default=False),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Where runs are kept: an SQLite file, a directory (JSON Lines), or postgresql://... Default: FSM_AGENT_STORE.",
        show_default=False,
    ),
]
Lint = Annotated[
    bool, typer.Option("--lint", help="Say instead what a model will stumble over: names, descriptions, fields.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:N]",
        help="What the model sees of the run: full, window:N (the newest N rounds), messages:N, dual (what was said and "
        "called in the newest 6 rounds, what came of it in the newest 3), summary:N (older rounds summarised by the model), facts:N (key "
        "facts of older rounds). Default: as the profile says, else window:5.",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy", metavar="FILE", help="A tool policy as JSON, as ToolPolicy.to_data() gives it.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result, and what went wrong.")]
Log = Annotated[
    bool,
    typer.Option(
        "--log",
        help="Log each transition to standard error, one JSON object a line, in place of the view.",
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", callback=debugging, is_eager=True, help="Show where an error comes from.")
]


def with_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command(..., limits: GivenLimits)` with one option for each limit in the place of its parameter `limits`."""
    return in_place_of(
        "limits",
        [_parameter(name, field) for name, field in Limits.model_fields.items()],
        lambda given: {name: switched_off(name, text) for name, text in given.items() if text is not None},
    )(command)


def in_place_of(
    name: str, parameters: Sequence[inspect.Parameter], made: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for commands: typer sees `parameters` in the place of `name`, and the command is given what `made` makes of them."""

    def wrap(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.name != name]

        def wrapped(**values: Any) -> Any:
            given = {one.name: values.pop(one.name) for one in parameters}
            return command(**values, **{name: made(given)})

        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        wrapped.__signature__ = signature.replace(parameters=[*own, *parameters])  # type: ignore[attr-defined] # a documented hook
        return wrapped

    return wrap


def switched_off(name: str, text: str) -> str | None:
    """None for the word "none", where the limit may be switched off; else the text, for `Limits` to read."""
    optional = types.NoneType in get_args(Limits.model_fields[name].annotation)
    return None if optional and text.strip().lower() == "none" else text


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{field.description} Default: {'none' if field.default is None else field.default}.",
        metavar=_metavar(field.annotation),
        show_default=False,
        rich_help_panel=_PANEL,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


def _metavar(annotation: Any) -> str:
    """`INTEGER`, `NUMBER|none`, `answer|stop`."""
    origin = get_origin(annotation)
    if origin is Literal:
        return "|".join(get_args(annotation))
    if origin is Annotated:
        return _metavar(get_args(annotation)[0])
    return "|".join(_metavar(kind) for kind in get_args(annotation)) if origin is not None else _KINDS[annotation]
