"""Repeats, cycles and progress, as pure counts over (signature, result digest)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fsm_agent.context import Context, Seen
from fsm_agent.effects import Call, Result

__all__ = ["is_repeated", "learned_from", "times_seen"]

_PERIODS: Final = (2, 3)


def times_seen(ctx: Context, signature: str) -> int:
    """How often in a row `signature` was executed with the same result."""
    known = ctx.seen.get(signature)
    return 0 if known is None else known.count


def is_repeated(ctx: Context, signature: str) -> bool:
    """True when one more execution would be a repeat: the threshold is used up, or it goes on with a cycle of period 2 or 3.

    A cycle is the same sequence of (call, result) pairs `repeat_threshold` times in a row (at least twice), so it also catches calls
    whose results alternate.
    """
    threshold = ctx.limits.repeat_threshold
    if times_seen(ctx, signature) >= threshold:
        return True
    recent = ctx.recent
    for period in _PERIODS:
        length = period * max(threshold, 2)
        tail = recent[-length:]
        if len(tail) == length and tail[0][0] == signature and all(tail[i] == tail[i % period] for i in range(length)):
            return len(set(tail)) > 1
    return False


def learned_from(ctx: Context, pairs: Iterable[tuple[Call, Result]]) -> dict[str, Any]:
    """The changes that these executed calls bring: counts per signature, the window for cycles, and what was learned.

    Something is learned when a tool gave a result that it had not given before.
    """
    seen, recent, learned = dict(ctx.seen), list(ctx.recent), set(ctx.learned)
    retried = ctx.attempt > 1
    for call, result in pairs:
        known = seen.get(call.signature)
        same = known is not None and known.digest == result.digest
        count = known.count if known is not None and same else 0
        # The engine's own retry is no repeat of the model's: it takes the place of the attempt before.
        seen[call.signature] = Seen(result.digest, max(count, 1) if retried else count + 1)
        if not retried:
            recent.append((call.signature, result.digest))
        if result.ok:
            learned.add((result.tool, result.digest))
    return {
        "seen": seen,
        "recent": tuple(recent[-max(_PERIODS) * max(ctx.limits.repeat_threshold, 2) :]),
        "learned": frozenset(learned),
    }
