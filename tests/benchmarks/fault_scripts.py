"""The sixteen faults of the scoreboard: for each a task, its tools, and a model that is played by a function.

A played model reads what it is sent, as a real one does: it takes the step whose result it does not have yet, takes it
again after an error, and answers from the results. It never knows which loop it talks to; all it looks at are the
messages and whether tools are offered. `Fault.endless` ones would go on for ever with a loop that lets them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage

from fsm_agent.history import estimate_text
from fsm_agent.testing import Call, ModelRequest, ServerRequest, call, reply

__all__ = ["CAP", "CAPPED", "FAULTS", "HONEST", "Fault", "Turn"]

CAP: Final = 40
"""Model calls after which a run counts as endless."""
CAPPED: Final = "The benchmark has ended this run."
HONEST: Final = "I could not finish the task"
ADDED: Final = "Add 19 and 23 with the tool, then add 100 to the sum with the tool."
_STOP = re.compile(r"different way|no more tools|limit|refused|do not (make|call)", re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """What a model was sent: its number (from 1), the last message, the results of tools, whether tools are offered."""

    number: int
    last: str
    results: tuple[str, ...]
    offered: bool
    tokens: int

    @classmethod
    def of(cls, request: ModelRequest | ServerRequest) -> Turn:
        """A request, with its prompt estimated: texts and calls, by the same rule for everybody."""
        if isinstance(request, ServerRequest):
            pairs = [(str(one["role"]), str(one.get("content") or "")) for one in request.messages]
            asked = [one["function"] for message in request.messages for one in message.get("tool_calls") or ()]
            calls = [f"{one['name']}{one['arguments']}" for one in asked]
        else:
            pairs = [(message.type, message.text) for message in request.messages]
            asked = [
                one for message in request.messages if isinstance(message, AIMessage) for one in message.tool_calls
            ]
            calls = [f"{one['name']}{one['args']}" for one in asked]
        return cls(
            request.number,
            pairs[-1][1],
            tuple(text for kind, text in pairs if kind == "tool"),
            bool(request.tool_names),
            sum(estimate_text(text) for _, text in pairs) + sum(map(estimate_text, calls)),
        )

    def has(self, mark: str) -> bool:
        """Whether a result holds the word `mark`."""
        return any(re.search(rf"\b{re.escape(mark)}\b", text) for text in self.results)


Step = tuple[Call, str]
"""A call, and the word by which its result is known."""
Play = Callable[[Turn], Any]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. `tools` makes the functions anew for each run; `right` is a pattern that the right answer holds.

    `wire`: what is wrong is the raw text of a reply, so the model is the real OpenAI client over a server of ours.
    `stops`: words of which a right reason to stop has one; empty when only the right answer will do.
    """

    name: str
    play: Play
    tools: Callable[[], list[Callable[..., Any]]]
    right: str
    task: str = ADDED
    wire: bool = False
    usage: tuple[int, int] | None = (10, 5)
    stops: tuple[str, ...] = ()


SUM: Final[tuple[Step, ...]] = ((call("add", a=19, b=23), "42"), (call("add", a=42, b=100), "142"))
_LOG: Final[tuple[Step, ...]] = ((call("read_log"), "entry"), *SUM, (call("add", a=142, b=1), "143"))


def doing(steps: Sequence[Step], answer: str, written: Callable[[Turn, Call], Any] | None = None) -> Play:
    """The first step without its result, `written` in some way; behind the last one the answer."""

    def play(turn: Turn) -> Any:
        due = next((asked for asked, mark in steps if not turn.has(mark)), None)
        if due is None:
            return answer
        if not turn.offered:
            return f"{HONEST}: a result is missing."
        return due if written is None else written(turn, due)

    return play


def first(wrong: Callable[[Call], Any]) -> Callable[[Turn, Call], Any]:
    """The first reply is wrong, later ones are right."""
    return lambda turn, due: wrong(due) if turn.number == 1 else due


def always(wrong: Callable[[Call], Any]) -> Callable[[Turn, Call], Any]:
    """Every call is wrong, whatever the model is told."""
    return lambda _, due: wrong(due)


def json_of(one: Call) -> str:
    """The arguments as JSON."""
    assert not isinstance(one.args, str)
    return "{" + ", ".join(f'"{name}": {value}' for name, value in one.args.items()) + "}"


def fenced(due: Call) -> Call:
    """The arguments in a Markdown fence."""
    return Call(due.name, f"```json\n{json_of(due)}\n```")


def curly(due: Call) -> Call:
    """The arguments with typographic quotes."""
    return Call(due.name, re.sub(r'"(\w+)"', "“\\1”", json_of(due)))


def as_text(due: Call) -> str:
    """The whole call as text in a fence, beside no call at all."""
    return f'```json\n{{"name": "{due.name}", "arguments": {json_of(due)}}}\n```'


def insisting(turn: Turn) -> Any:
    """Calls again after every error, until it is told to stop or to do something else."""
    told = turn.number > 1 and _STOP.search(turn.last) is not None
    return f"{HONEST}: the tool keeps failing." if told and not turn.has("42") else doing(SUM, "It is 142.")(turn)


def eighteen_times(turn: Turn) -> Any:
    """The same call eighteen times whatever it is told; then, or without tools, the answer."""
    if turn.offered and turn.number <= 18:
        return call("price", item="tea")
    return "Tea costs 3." if turn.has("3") else f"{HONEST}: there is no price."


def back_and_forth(turn: Turn) -> Any:
    """Two calls in turn whatever it is told, as long as there are tools."""
    if turn.offered:
        return call("price", item="tea" if turn.number % 2 else "coffee")
    known = turn.has("3") and turn.has("4")
    return "Tea costs 3 and coffee costs 4." if known else f"{HONEST}: there is no price."


def timing_out(turn: Turn) -> Any:
    """No reply to the first request."""
    return TimeoutError("the model gave no reply in time") if turn.number == 1 else doing(SUM, "It is 142.")(turn)


def adding() -> list[Callable[..., Any]]:
    """A sum that works."""
    return failing(0)


def failing(times: int) -> list[Callable[..., Any]]:
    """A sum whose first `times` executions raise."""
    left = [times]

    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        if left[0] > 0:
            left[0] -= 1
            raise ConnectionError("the sum service gave no reply")
        return a + b

    return [add]


def pricing() -> list[Callable[..., Any]]:
    """Two prices that never change."""

    def price(item: str) -> int:
        """The price of an item."""
        return {"tea": 3, "coffee": 4}[item]

    return [price]


def logging() -> list[Callable[..., Any]]:
    """A sum that works, and a log of 500 KB."""

    def read_log() -> str:
        """Read the whole log."""
        return "log entry\n" * 50_000

    return [*adding(), read_log]


def _sum(written: Callable[[Turn, Call], Any] | None = None) -> Play:
    return doing(SUM, "It is 142.", written)


def _broken(name: str, play: Play, *, wire: bool = False, tools: Any = adding, **more: Any) -> Fault:
    return Fault(name=name, play=play, wire=wire, tools=tools, right=r"\b142\b", **more)


FAULTS: Final[tuple[Fault, ...]] = (
    _broken("arguments fenced once", _sum(first(fenced)), wire=True),
    _broken("arguments fenced always", _sum(always(fenced)), wire=True),
    _broken("curly quotes once", _sum(first(curly)), wire=True),
    _broken("curly quotes always", _sum(always(curly)), wire=True),
    _broken("a whole call as fenced text", _sum(first(as_text)), wire=True),
    _broken("unknown tool", _sum(first(lambda due: Call("plus", due.args)))),
    _broken("schema violation", _sum(first(lambda due: call(due.name, a="nineteen", b=23)))),
    _broken("tool raises twice, then works", insisting, tools=lambda: failing(2)),
    _broken("tool always raises", insisting, tools=lambda: failing(10**6), stops=("consecutive_failures",)),
    Fault(
        name="the same call 18 times",
        task="What does tea cost?",
        play=eighteen_times,
        tools=pricing,
        right=r"\b3\b",
        stops=("repeated_action", "no_progress"),
    ),
    Fault(
        name="A/B forever",
        task="What do tea and coffee cost?",
        play=back_and_forth,
        tools=pricing,
        right=r"\b3\b.*\b4\b",
        stops=("repeated_action", "no_progress"),
    ),
    _broken("empty once", lambda turn: "" if turn.number == 1 else _sum()(turn)),
    _broken("empty forever", lambda _: reply(""), stops=("empty_reply",)),
    Fault(
        name="500 KB of output, then three calls",
        task=f"Read the log. {ADDED} Then add 1 to that with the tool.",
        play=doing(_LOG, "It is 143."),
        tools=logging,
        right=r"\b143\b",
    ),
    _broken("usage missing", _sum(), usage=None),
    _broken("model times out once", timing_out),
)
