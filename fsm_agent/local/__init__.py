"""A language model on this machine: weights fetched once and checked, served by llama.cpp in a child process.

Importing this package loads nothing heavy: `xllamacpp`, `huggingface_hub` and `platformdirs` (the extra `local`) are
imported when they are first used.
"""

from __future__ import annotations

from fsm_agent.local.catalogue import CATALOGUE
from fsm_agent.local.server import LocalServer, shared, stop_all
from fsm_agent.local.weights import cached, ensure, list_models

__all__ = ["CATALOGUE", "LocalServer", "cached", "ensure", "list_models", "shared", "stop_all"]
