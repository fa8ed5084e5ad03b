"""The simulated model of the memory benchmark, and its tools, whose results say more than what is needed.

The model knows the task and reads each prompt anew; it remembers nothing. What it does with a prompt:

- It goes on after the furthest step of the task that the prompt shows the result of. The texts of all messages count, its own too.
- A result that it needs and does not see it asks for again. At the rate `GUESSES` it guesses instead, and answers with a wrong number.
- At the rate `NOTES` it writes all results that it sees beside its call, as models do that think aloud. So a fact may outlive its round.
- At the rate `DISTRACTS` for each 1,000 tokens of the prompt it loses the thread, and answers at once with a wrong number.
- A call that is refused is not made again: it says that it could not finish.
- A summary has every result that it was shown, each left out at the rate `LOSES`.

The rates are round numbers that nobody measured. Each draw is from (seed, task, number of the reply), the same for every memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

from fsm_agent.history import text_of
from fsm_agent.language import texts_for
from fsm_agent.testing import Call, ModelRequest, Reply, reply
from tests.benchmarks.reliability_model import CAP, HONEST, Capped, prompt_tokens, reply_tokens
from tests.benchmarks.reliability_tasks import Task, World

__all__ = ["DISTRACTS", "GUESSES", "LOSES", "NOTES", "Forgetful", "WordyWorld", "needed"]

GUESSES: Final = 0.25
NOTES: Final = 0.3
DISTRACTS: Final = 0.01
LOSES: Final = 0.05
_WRITES: Final = frozenset({"append_line", "write_file"})
_SUMMARISE: Final = texts_for("en").summarise
_REFUSED: Final = "Refused:"
_REMARKS: Final = (
    "The entry was last checked by the night shift.",
    "It was checked 3 days ago and again on the 12th.",
    "Nothing else is known about it at this time.",
    "See the handbook for what the columns mean.",
    "The server took 41 ms to look it up.",
    "Two remarks of former users were hidden because nobody confirmed them.",
    "Version 2.7 of the index was used.",
    "Questions about this entry go to the office in the main hall.",
    "Entries like this one are kept for 90 days after they were closed.",
    "The name is spelled as in the register, and differs from older papers.",
    "Please do not quote the remarks without asking whoever wrote them.",
    "Changes become visible with the next hourly copy of the data.",
)


class WordyWorld(World):
    """A world whose tools put eight remarks around what they say, some with numbers, the same ones for the same call.

    What is needed stands among the first five sentences; a result has about 120 tokens.
    """

    def tools(self) -> list[Callable[..., Any]]:
        """The functions of the task's kind."""
        return [self._wordy(one) for one in super().tools()]

    def _wordy(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def said(*args: Any, **kwargs: Any) -> str:
            draw = random.Random(f"{self.task.number}/{function.__name__}/{args}/{sorted(kwargs.items())}")
            told = draw.sample(_REMARKS, 8)
            told.insert(draw.randrange(5), f"{function(*args, **kwargs)}.")
            return " ".join(told)

        return said


def needed(task: Task, due: int) -> Sequence[int]:
    """The steps whose results must be seen for step `due`; for the answer `due` is the number of steps."""
    if task.chain or (due == len(task.steps) and task.steps[-1].tool in _WRITES):
        return range(max(due - 1, 0), due)
    if due == len(task.steps) or task.steps[due].tool in _WRITES:
        return range(due)
    return (due - 1,) if task.steps[due].tool == "refund" else ()


class Forgetful:
    """The script of one run: counts what it is asked, what it says, and how often it asks `again` for what it had."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._seed = seed
        self._asked: set[int] = set()
        self.calls = 0
        self.again = 0
        self.tokens = 0
        self.largest = 0

    def __call__(self, request: ModelRequest) -> Reply:
        """The reply to one request. Raises `Capped` after `CAP` of them."""
        self.calls += 1
        if self.calls > CAP:
            raise Capped(f"{CAP} replies")
        sent = prompt_tokens(request)
        summary = text_of(request.messages[0].content) == _SUMMARISE
        said = self._summary(request.text) if summary else self._next(request, sent)
        self.largest = max(self.largest, sent)
        self.tokens += sent + reply_tokens(said)
        return said

    def _draw(self, what: str) -> float:
        return random.Random(f"{self._seed}/{self._task.number}/{self.calls}/{what}").random()

    def _seen(self, text: str) -> list[bool]:
        steps = self._task.steps
        seen = [step.mark in text for step in steps]
        # What was paid back is what was paid.
        return [
            there or (after < len(steps) and steps[after].tool == "refund" and seen[after])
            for after, there in enumerate(seen, 1)
        ]

    def _summary(self, text: str) -> Reply:
        kept = [step.mark for step in self._task.steps if step.mark in text and self._draw(step.mark) >= LOSES]
        return reply("\n".join(kept) or "Nothing that matters yet.")

    def _next(self, request: ModelRequest, sent: int) -> Reply:
        seen = self._seen(request.text)
        due = max((place for place, there in enumerate(seen, 1) if there), default=0)
        missing = next((place for place in needed(self._task, due) if not seen[place]), None)
        if self._draw("distracted") < DISTRACTS * sent / 1_000:
            return self._wrong()
        if missing is not None and self._draw("guess") < GUESSES:
            return self._wrong()
        step = due if missing is None else missing
        if step == len(seen):
            return reply(f"The result is {self._task.value}.")
        if not request.tools or _REFUSED in request.messages[-1].text:
            return reply(f"{HONEST}: a result is missing.")
        self.again += step in self._asked
        self._asked.add(step)
        return self._call(step, request.text)

    def _wrong(self) -> Reply:
        return reply(f"The result is {int(self._task.value) + 1}.")

    def _call(self, place: int, text: str) -> Reply:
        step = self._task.steps[place]
        known = [one.mark for one in self._task.steps if one.mark in text]
        note = f"So far: {'; '.join(known)}." if known and self._draw("note") < NOTES else ""
        return reply(note, Call(step.tool, step.args))
