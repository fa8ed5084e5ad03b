"""Which runs of one agent are under way, and which wait for a person in this process. Safe from any thread and handler of a signal."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from fsm_agent.alphabet import TERMINAL
from fsm_agent.errors import RunBusy
from fsm_agent.runs import Run

__all__ = ["Slot", "Slots"]


@dataclass(slots=True, eq=False)
class Slot:
    """That somebody is about to begin or to resume a run, or to cancel one that waits (`ends`): it is theirs alone until it goes on.

    `run` is what was taken to be resumed. `why` is what a cancellation said that came meanwhile.
    """

    run_id: str
    ends: bool = False
    run: Run | None = None
    why: str | None = None


class Slots:
    """`active`: the runs under way, and those that somebody has taken. `waiting`: those that wait and are in no store, taken or not.

    `lock` guards both.
    """

    def __init__(self) -> None:
        self.active: dict[str, Run | Slot] = {}
        self.waiting: dict[str, Run] = {}
        # Taken again on the same thread by a handler of a signal that cancels a run.
        self.lock = threading.RLock()

    def new(self, slot: Slot) -> None:
        """Take the id for a new run. Raises `RunBusy` while another run has it."""
        with self.lock:
            if slot.run_id in self.active or slot.run_id in self.waiting:
                raise RunBusy(f"a run {slot.run_id!r} is already under way here; give each run an id of its own")
            self.active[slot.run_id] = slot

    def again(self, slot: Slot) -> Run | None:
        """Take a run that waits; None when none is kept here. Raises `RunBusy` while somebody has it."""
        with self.lock:
            if slot.run_id in self.active:
                raise RunBusy(
                    f"run {slot.run_id!r} is under way here: it has not ended, or somebody has just resumed it"
                )
            self.active[slot.run_id] = slot
            return self.waiting.get(slot.run_id)

    def enter(self, run: Run) -> None:
        """The run goes on: what was taken for it is its own now."""
        with self.lock:
            before = self.active.get(run.job.run_id)
            self.active[run.job.run_id] = run
            self.waiting.pop(run.job.run_id, None)
        if isinstance(before, Slot) and before.why is not None:
            run.job.cancel(before.why)

    def wait(self, run: Run) -> None:
        """Keep a run that waits for a person."""
        with self.lock:
            self.waiting[run.job.run_id] = run

    def leave(self, run: Run) -> None:
        """The run is not under way any more. What somebody else has begun since, or taken, is theirs."""
        with self.lock:
            one = self.active.get(run.job.run_id)
            if (one.run if isinstance(one, Slot) else one) is run:
                del self.active[run.job.run_id]

    def end(self, run: Run) -> None:
        """The run neither is under way nor waits."""
        with self.lock:
            self.leave(run)
            self.waiting.pop(run.job.run_id, None)

    def forget(self) -> list[Run]:
        """Have none of the runs that are under way or taken any more: which they were."""
        gone = [one.run if isinstance(one, Slot) else one for one in self.active.values()]
        for run_id in self.active:
            self.waiting.pop(run_id, None)
        self.active.clear()
        return [run for run in gone if run is not None]

    def has(self, slot: Slot) -> bool:
        """True until the run goes on, or the slot is given up."""
        return self.active.get(slot.run_id) is slot

    def give_up(self, slot: Slot) -> None:
        """Have the run no longer, which did not go on."""
        with self.lock:
            if self.has(slot):
                del self.active[slot.run_id]

    def cancel(self, run_id: str, why: str) -> bool | None:
        """Stop a run that is under way, or about to be. False when somebody ends it anyway, None when nobody has it."""
        with self.lock:
            one = self.active.get(run_id)
            if isinstance(one, Slot):
                one.why = why
                return not one.ends
        if one is None:
            return None
        if one.state in TERMINAL:  # it has come to its end, and only its leaving is left
            return False
        one.job.cancel(why)
        return True
