"""The program of the child: llama.cpp's OpenAI-compatible server, for as long as its parent lives.

Run by path with one argument, a JSON object of options. It says its address in one JSON line on standard output;
what llama.cpp logs goes to standard error. Standard input is the parent's hand: when it is let go, the child ends.
It imports nothing of `fsm_agent`, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from typing import Any

_LOOK_SECONDS = 1.0


def _end_with_parent(parent: int) -> None:
    """End when standard input is closed, or when the parent changed (a fork may keep the pipe open after its death)."""
    while True:
        if os.name == "nt":
            ended = not os.read(0, 1)
        else:
            readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
            ended = (bool(readable) and not os.read(0, 1)) or os.getppid() != parent
        if ended:
            os._exit(0)


def _start(options: dict[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - after the watch over the parent has begun

    params = xllamacpp.CommonParams()
    params.model.path = options["path"]
    params.model_alias = {options["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = options["port"]
    params.n_ctx = options["ctx"] * options["parallel"]  # llama.cpp divides the context among its slots
    params.n_parallel = options["parallel"]
    params.cache_ram_mib = options["cache_mib"]
    params.cache_prompt = True
    params.sampling.temp = 0.0  # greedy, unless a request says otherwise
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = "localhost"
    params.fit_params = False
    if options["threads"]:
        params.cpuparams.n_threads = options["threads"]
    if options["api_key"]:
        params.api_keys = [options["api_key"]]
    return xllamacpp.Server(params)


def main() -> None:
    """Start the server, say where it listens, and stay until the parent is gone."""
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints cannot disturb the one line that is read
    threading.Thread(target=_end_with_parent, args=(options["parent"],), daemon=True).start()
    server = _start(options)
    answers.write(json.dumps({"address": server.listening_address}) + "\n")
    answers.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
