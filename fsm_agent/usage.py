"""What a reply cost, from whatever the server says of it: never None, never negative, estimated and marked when it says nothing. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent.effects import Usage

__all__ = ["merge_stream_usage", "read_usage", "says_output"]


def read_usage(reported: object, *, prompt_estimate: int, reply_estimate: int) -> tuple[Usage, int | None]:
    """The usage of one model call, and the prompt tokens that the server reported (None when it did not).

    `reported` is a LangChain `usage_metadata` mapping, or anything else a server sent. Field by field: numbers and numeric text count,
    booleans, negatives and nonsense do not; a missing part is estimated, a missing total is the sum of the parts. Cached prompt tokens are
    part of the input (the LangChain convention) unless there are more of them than input, which only a provider that
    counts them apart sends.
    """
    usage = reported if type(reported) is dict or isinstance(reported, Mapping) else {}
    given_input, given_output = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    given_total = _count(usage.get("total_tokens"))
    if given_total and given_output and given_total < given_output:
        given_total = None  # no total: it is less than a part of it
    details = usage.get("input_token_details")
    if given_input is not None and isinstance(details, Mapping):
        cached = sum(_count(details.get(key)) or 0 for key in ("cache_read", "cache_creation"))
        given_input += cached if cached > given_input else 0
    if not (given_input or given_output or given_total):
        total = prompt_estimate + reply_estimate
        return Usage(prompt_estimate, reply_estimate, total, total), None
    estimated = 0
    if not given_input:
        given_input = max(given_total - (given_output or 0), 0) if given_total else prompt_estimate
        estimated += 0 if given_total else given_input
    if given_output is None:
        given_output = max(given_total - given_input, 0) if given_total else reply_estimate
        estimated += 0 if given_total else given_output
    total = max(given_total or 0, given_input + given_output)
    return Usage(given_input, given_output, total, estimated), given_input


def says_output(reported: object) -> bool:
    """True when a report says how long the reply was, so that no estimate of it is needed."""
    count = reported.get("output_tokens") if type(reported) is dict else None
    return type(count) is int and count > 0


def _count(value: object) -> int | None:
    """A token count, or None for what is none: a boolean, a negative, text that is no number."""
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value.strip()[:32])
        except ValueError:
            return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, float) and math.isfinite(value) and value >= 0:
        return int(value)
    return None


def merge_stream_usage(reports: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """One usage report from those of a stream's chunks.

    A server that repeats the prompt's tokens on every chunk reports running totals, so the last report is the whole; otherwise each
    chunk reports its own part and they add up.
    """
    if not reports:
        return None
    with_input = [report for report in reports if _count(report.get("input_tokens"))]
    if len(with_input) > 1 or len(reports) == 1:
        return reports[-1]
    keys = ("input_tokens", "output_tokens")
    merged: dict[str, Any] = {key: sum(_count(report.get(key)) or 0 for report in reports) for key in keys}
    details = next((report["input_token_details"] for report in with_input if "input_token_details" in report), None)
    return merged | ({"input_token_details": details} if details else {})
