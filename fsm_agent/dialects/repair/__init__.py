"""Turns what a model wrote into data, under one policy.

1. Strict JSON first: a text that is valid is never altered.
2. A text that ends too early is never data, whatever label came with it: nothing here closes a string or a bracket.
3. A repair changes how a text is spelled, or passes over what stands around it; never a value. Where two readings
   exist, the text is refused. Each repair is named in the result.
4. `{}` is read from an empty text, `null` and `{}`, and from nothing else.
5. Size, nesting and numbers are bounded before they are parsed. Nothing raises, for any text.

The repairs are our own: a library that completes what is missing may only be used where nothing is missing, and there
the few rules of `reader` are enough.
"""

from __future__ import annotations

from fsm_agent.dialects.repair.call_text import parse_call_text
from fsm_agent.dialects.repair.names import expand_parallel, resolve_name, sanitise_name
from fsm_agent.dialects.repair.reading import parse_arguments, parse_object
from fsm_agent.dialects.repair.thinking import split_thinking
from fsm_agent.dialects.repair.vocabulary import (
    MAX_CHARS,
    MAX_DEPTH,
    MAX_DIGITS,
    CallText,
    Fault,
    Malformed,
    Parsed,
    Repair,
    quoted,
)

__all__ = [
    "MAX_CHARS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "CallText",
    "Fault",
    "Malformed",
    "Parsed",
    "Repair",
    "expand_parallel",
    "parse_arguments",
    "parse_call_text",
    "parse_object",
    "quoted",
    "resolve_name",
    "sanitise_name",
    "split_thinking",
]
