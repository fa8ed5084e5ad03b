"""Effects and outcomes as a trail writes them: their data as canonical JSON, and outcomes back from it."""

from __future__ import annotations

import json
from typing import Any

from fsm_agent.effects import Effect, Outcome
from fsm_agent.trail.codec import outcome_data, outcome_of, result_data, result_of, started_data
from fsm_agent.trail.entries import canonical_json

__all__ = ["read", "recorded"]


def recorded(value: Effect | Outcome) -> str:
    """The text of `value`; of an outcome with the results of its calls, which have entries of their own."""
    if isinstance(value, Effect):
        return canonical_json(started_data(value, 0.0))
    results = [result_data(one) for one in getattr(value, "results", ())]
    return canonical_json({"outcome": outcome_data(value), "results": results})


def read(text: str) -> Outcome:
    """The outcome in `text`. Raises `ValueError` or `KeyError` for what is none."""
    data: Any = json.loads(text)
    results = [result_of(one) for one in data["results"]]
    return outcome_of(data["outcome"], {one.call_id: one for one in results})
