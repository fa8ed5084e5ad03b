"""Long-term memory around a run: what is recalled before it begins, and what of it is kept once it has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fsm_agent.alphabet import TERMINAL, Status
from fsm_agent.driver import Driven
from fsm_agent.memory.recall import Recall, found_out
from fsm_agent.records import RunResult
from fsm_agent.runner import StreamItem
from fsm_agent.runs import Run
from fsm_agent.workers import run_outside_gc

__all__ = ["aremembering", "remembering"]


def remembering(recall: Recall | None, run: Run, items: Driven) -> Driven:
    """`items`, and then what the run has found out goes into `recall`. A run that waits for a person has not ended."""
    return items if recall is None else _remembering(recall, run, items)


def _remembering(recall: Recall, run: Run, items: Driven) -> Driven:
    try:
        yield from items
    finally:
        run_outside_gc(lambda: recall.remember(*_found(run)))


def aremembering(recall: Recall | None, run: Run, items: AsyncGenerator[StreamItem]) -> AsyncGenerator[StreamItem]:
    """The same on the event loop, before the result is handed out."""
    return items if recall is None else _aremembering(recall, run, items)


async def _aremembering(recall: Recall, run: Run, items: AsyncGenerator[StreamItem]) -> AsyncGenerator[StreamItem]:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, RunResult):
                await recall.aremember(*_found(run))
            yield item


def _found(run: Run) -> tuple[tuple[str, ...], dict[str, Any]]:
    ctx = run.ctx
    metadata = {"run_id": ctx.run_id, "thread_id": ctx.thread_id or "", "task": ctx.task}
    if run.state not in TERMINAL:
        return (), metadata
    answer = ctx.answer if run.result().status is Status.COMPLETED else None
    own = [one for one in ctx.history if one.turn == ctx.turn]
    return found_out(ctx.task, answer, own, ctx.done), metadata
