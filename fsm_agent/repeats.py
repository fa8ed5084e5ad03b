"""Repeats, cycles and progress, as pure counts over (signature, result digest)."""

from __future__ import annotations

from collections.abc import Sequence
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


def learned_from(ctx: Context, pairs: Sequence[tuple[Call, Result]]) -> dict[str, Any]:
    """The changes that these executed calls bring: counts per signature, the window for cycles, and what was learned.

    Something is learned when a tool gave a result that it had not given before.
    """
    seen, recent = dict(ctx.seen), list(ctx.recent)
    # The engine's own retry is no repeat of the model's: it takes the place of the attempt before.
    retried = ctx.attempt > 1
    for call, result in pairs:
        signature, digest = call.signature, result.digest
        known = seen.get(signature)
        before = ("", 0) if known is None else known.before if retried else (known.digest, known.count)
        seen[signature] = Seen(digest, before[1] + 1 if before[0] == digest else 1, before)
        if not retried:
            recent.append((signature, digest))
        else:
            _replace_newest(recent, signature, digest)
    if ctx.limits.repeats == "in_a_row" and pairs and not retried:
        seen = {call.signature: seen[call.signature] for call, _ in pairs}
    return {
        "seen": seen,
        "recent": tuple(recent[-max(_PERIODS) * max(ctx.limits.repeat_threshold, 2) :]),
        "learned": ctx.learned.union([(result.tool, result.digest) for _, result in pairs if result.ok]),
    }


def _replace_newest(recent: list[tuple[str, str]], signature: str, digest: str) -> None:
    for index in range(len(recent) - 1, -1, -1):
        if recent[index][0] == signature:
            recent[index] = (signature, digest)
            return
