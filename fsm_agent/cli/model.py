"""`fsm-agent model`: the weights of local models, and their server on its own."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import Final

from rich import box
from rich.table import Table

from fsm_agent.cli.console import err, error_line, interactive, note, out, put_json, put_raw
from fsm_agent.cli.weights import fetch
from fsm_agent.errors import ModelError
from fsm_agent.local import LocalServer, cached, list_models
from fsm_agent.local.weights import SourceName, ensure

__all__ = ["list_them", "pull", "say_path", "serve"]

_SHOWN: Final = 8


def pull(name: str, source: SourceName | None, *, quiet: bool) -> None:
    """Fetch the weights, or say that they are here; the path goes to standard output."""
    fetch(name, quiet=quiet, source=source)
    put_raw(str(ensure(name)))


def list_them(*, as_json: bool) -> None:
    """Every model that is known by name."""
    models = list_models()
    if as_json:
        put_json([{"name": m.name, "bytes": m.bytes, "cached": m.cached, "path": str(m.path)} for m in models])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("model", "size", "here", "file"):
        table.add_column(column, overflow="fold", justify="right" if column == "size" else "left")
    for m in models:
        table.add_row(m.name, f"{m.bytes / 1e6:,.0f} MB", "yes" if m.cached else "no", m.path.name)
    out().print(table)
    note(f"in {models[0].path.parent}; any other GGUF file works by its path")


def say_path(name: str) -> None:
    """Where the weights are. Raises `ModelError` when they are not here."""
    path = cached(name)
    if path is None:
        raise ModelError(f"{name} is not here; fetch it with: fsm-agent model pull {shlex.quote(name)}")
    put_raw(str(path))


def serve(name: str, *, port: int, ctx: int, threads: int | None, parallel: int) -> int:
    """Run the server until Ctrl-C. Returns the exit code, which is not 0 when it ended by itself."""
    fetch(name)
    waiting = err().status(f"starting {name}") if interactive(sys.stderr) else contextlib.nullcontext()
    with waiting:
        server = LocalServer(ensure(name), port=port, ctx=ctx, threads=threads, parallel=parallel, alias=name)
    with server:
        put_raw(server.base_url)
        note(f"serving until Ctrl-C; use it with: --base-url {server.base_url} --dialect guided_json")
        try:
            status = server.wait()
        except KeyboardInterrupt:
            note("stopped")
            return 0
    error_line(
        "\n".join([f"the server ended by itself (exit status {status}); its last lines:", *server.log()[-_SHOWN:]])
    )
    return 1
