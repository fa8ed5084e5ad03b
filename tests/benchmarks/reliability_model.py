"""The simulated model of the reliability benchmark: a competent policy, and a layer that disturbs what it says.

The policy reads the messages that it is sent, as a real model does: it makes the first call whose result it does not see, tries a
call that failed once more, takes the backup after that or when it is told to do something else, and answers from what it sees. It
never looks at which loop it talks to. The layer then disturbs each reply by a draw from (seed, task, number of the reply), so that
the same reply of the same task is disturbed in the same way for everybody, in the form which that has in each protocol.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from langchain_core.messages import AIMessage

from fsm_agent.history import estimate_text
from fsm_agent.testing import Call, ModelRequest, Reply, reply
from tests.benchmarks.reliability_tasks import Task

__all__ = [
    "CAP",
    "HONEST",
    "RATES",
    "Capped",
    "Fault",
    "JsonProtocol",
    "Native",
    "Protocol",
    "ReAct",
    "Simulated",
    "prompt_tokens",
    "reply_tokens",
]

CAP: Final = 40
"""Replies after which a run that has no cap of its own counts as endless."""
HONEST: Final = "I could not finish the task"
_TOLD: Final = re.compile(
    r"same call|refused|not executed again|different way|no more tools|do not (make|call)|limit (reached|exceeded)",
    re.IGNORECASE,
)
_NO_TOOLS: Final = re.compile(r"no more tools can be used", re.IGNORECASE)
_ELSE: Final = re.compile(r"different way|keeps failing", re.IGNORECASE)


class Fault(StrEnum):
    """One way in which a reply is not what the model meant."""

    FENCED = "fenced"
    PROSE = "not JSON: prose around it"
    QUOTES = "not JSON: single quotes"
    COMMA = "not JSON: trailing comma"
    WORDS = "not JSON: words"
    REPEAT = "repeats its last call"
    TALK = "talks to itself: invents the result and goes on"
    EMPTY = "empty"
    CUT = "cut off"


RATES: Final = {
    Fault.FENCED: 0.08,
    # The 18 % of replies that are not JSON, in the forms that they take.
    Fault.PROSE: 0.05,
    Fault.QUOTES: 0.05,
    Fault.COMMA: 0.04,
    Fault.WORDS: 0.04,
    Fault.REPEAT: 0.04,
    Fault.TALK: 0.04,
    Fault.EMPTY: 0.03,
    Fault.CUT: 0.03,
}
"""The share of replies that each fault strikes. The first 26 % are what practitioners reported; the others are chosen."""
_BURSTS: Final = (1, 1, 1, 2, 4, 7, 14, 18)
"""How often the last call is repeated, once it is; 7, 14 and 18 are what practitioners reported. It ends when the model is told."""


class Capped(BaseException):
    """The run was ended by the benchmark."""


@dataclass(frozen=True)
class Seen:
    """What a request shows to a model: everything that it did not write itself, what is new, and whether it may call tools."""

    told: str
    newest: str
    may_call: bool

    @classmethod
    def of(cls, request: ModelRequest, *, native: bool) -> Seen:
        """A request as it is read."""
        texts = [message.text for message in request.messages if not isinstance(message, AIMessage)]
        own = max((place for place, one in enumerate(request.messages) if isinstance(one, AIMessage)), default=-1)
        # A protocol that sends everything as one text has what is new at its end.
        newest = "\n".join(message.text for message in request.messages[own + 1 :])[-2_000:]
        return cls("\n".join(texts), newest, not _NO_TOOLS.search(newest) and (bool(request.tools) or not native))


def next_move(task: Task, seen: Seen) -> Call | str:
    """What a competent model does next: a call, or its answer."""
    have = [step.mark in seen.told for step in task.steps]
    known = max((place for place, there in enumerate(have) if there), default=-1) + 1
    due = known if task.chain else next((place for place, there in enumerate(have) if not there), len(have))
    if due >= len(task.steps):
        return f"The result is {task.value}."
    if not seen.may_call:
        return f"{HONEST}: a result is missing."
    step = task.steps[due]
    # A failed call is tried once more; a warning to do something else is heeded at once.
    failures = seen.told.count(f"{step.tool} is down") + seen.told.count(f"{step.tool} gave no result")
    if step.tool == task.broken and (failures > 1 or (failures and _ELSE.search(seen.newest))):
        return Call(task.backup, step.args) if task.backup else f"{HONEST}: {step.tool} does not work."
    return Call(step.tool, step.args)


class Protocol:
    """How a model says what it means to say, and what its faults look like there."""

    native = False

    def say(self, move: Call | str, fault: Fault | None) -> Reply:
        """The reply for a move, disturbed."""
        if fault is Fault.EMPTY:
            return reply("")
        text = self.call(move, fault) if isinstance(move, Call) else self.answer(move, fault)
        return reply(text[: len(text) // 2], finish_reason="length") if fault is Fault.CUT else reply(text)

    def call(self, move: Call, fault: Fault | None) -> str:
        """The text of a call."""
        raise NotImplementedError

    def answer(self, text: str, fault: Fault | None) -> str:
        """The text of an answer."""
        raise NotImplementedError


class Native(Protocol):
    """The provider's own tool calls: the faults are in the text of the arguments."""

    native = True

    def say(self, move: Call | str, fault: Fault | None) -> Reply:
        """A call beside an empty text, or the answer as text."""
        if fault is Fault.EMPTY:
            return reply("")
        if isinstance(move, str):
            if fault is Fault.CUT:
                return reply(move[: len(move) // 2], finish_reason="length")
            return reply(f"```\n{move}\n```" if fault is Fault.FENCED else move)
        said, written = "", _disturbed(move.args, fault)
        if fault is Fault.CUT:
            return reply("", Call(move.name, written[: len(written) // 2]), finish_reason="length")
        if fault is Fault.TALK:
            said = "Observation: it is 7777.\nFinal Answer: The result is 7777."
        return reply(said, Call(move.name, written))


@dataclass(frozen=True)
class JsonProtocol(Protocol):
    """One JSON object a reply. `finish` names the final action, `plain` says that its input is the answer itself.

    `fenced`: the prompt asks for a fence, so that one is no fault.
    """

    finish: str = "FINISH"
    plain: bool = False
    fenced: bool = False

    def call(self, move: Call, fault: Fault | None) -> str:
        """The object, and after self-talk the final action with an invented answer."""
        text = self._written(move.name, dict(move.args), fault)  # type: ignore[arg-type]  # a move has a mapping
        if fault is Fault.TALK:
            invented = self._written(self.finish, self._final("The result is 7777."), None)
            return f"{text}\nObservation: it is 7777.\n{invented}"
        return text

    def answer(self, text: str, fault: Fault | None) -> str:
        """The final action."""
        return self._written(self.finish, self._final(text), fault)

    def _final(self, text: str) -> Any:
        return text if self.plain else {"answer": text}

    def _written(self, name: str, given: Any, fault: Fault | None) -> str:
        if fault is Fault.WORDS:
            return f"Next comes {name} with {_in_words(given)}."
        text = _disturbed({"action": name, "action_input": given}, None if fault is Fault.FENCED else fault)
        return (
            f"Action:\n```\n{text}\n```" if self.fenced else f"```json\n{text}\n```" if fault is Fault.FENCED else text
        )


class ReAct(Protocol):
    """Labelled lines: Thought, Action, Action Input, Final Answer."""

    def call(self, move: Call, fault: Fault | None) -> str:
        """A thought and an action; after self-talk an invented observation and answer."""
        text = f"Thought: the next result is needed.\nAction: {move.name}\nAction Input: {_disturbed(move.args, fault)}"
        if fault is Fault.TALK:
            return f"{text}\nObservation: it is 7777.\nThought: that is it.\nFinal Answer: The result is 7777."
        return text

    def answer(self, text: str, fault: Fault | None) -> str:
        """The final answer, in a fence when that is the fault."""
        said = f"Thought: everything is known.\nFinal Answer: {text}"
        return f"```\n{said}\n```" if fault is Fault.FENCED else said


def _disturbed(given: Any, fault: Fault | None) -> str:
    """JSON as it is written under a fault."""
    text = json.dumps(given)
    if fault is Fault.FENCED:
        return f"```json\n{text}\n```"
    if fault is Fault.PROSE:
        return f"Sure, here it is: {text} Let me know how it goes."
    if fault is Fault.QUOTES:
        return str(given)
    if fault is Fault.COMMA:
        return f"{text[:-1]},}}"
    return _in_words(given) if fault is Fault.WORDS else text


def _in_words(given: Any) -> str:
    return " and ".join(f"{key} as {value}" for key, value in given.items()) if isinstance(given, dict) else str(given)


class Simulated:
    """The script of one run: counts what it is asked and what it says, tools and prompts by one rule for everybody."""

    def __init__(self, task: Task, protocol: Protocol, seed: int) -> None:
        self._task = task
        self._protocol = protocol
        self._seed = seed
        self._last: Call | None = None
        self._again = 0
        self.calls = 0
        self.tokens = 0
        self.faults: list[Fault] = []

    def __call__(self, request: ModelRequest) -> Reply:
        """The reply to one request. Raises `Capped` after `CAP` of them."""
        self.calls += 1
        if self.calls > CAP:
            raise Capped(f"{CAP} replies")
        said = self._reply(Seen.of(request, native=self._protocol.native))
        said = _stopped(said, request.kwargs.get("stop") or ())
        self.tokens += prompt_tokens(request) + reply_tokens(said)
        return said

    def _reply(self, seen: Seen) -> Reply:
        draw = random.Random(f"{self._seed}/{self._task.number}/{self.calls}")
        fault = draw.choices((*RATES, None), (*RATES.values(), 1 - sum(RATES.values())))[0]
        move = next_move(self._task, seen)
        if fault is Fault.REPEAT and self._last is not None and not self._again:
            self._again = draw.choice(_BURSTS)
        if self._again and (not seen.may_call or _TOLD.search(seen.newest)):
            self._again = 0
        if self._again and self._last is not None:
            self._again -= 1
            self.faults.append(Fault.REPEAT)
            return self._protocol.say(self._last, None)
        fault = None if fault is Fault.REPEAT else fault
        if fault is not None:
            self.faults.append(fault)
        if isinstance(move, Call) and fault not in {Fault.EMPTY, Fault.CUT, Fault.WORDS}:
            self._last = move
        return self._protocol.say(move, fault)


def _stopped(said: Reply, stops: Sequence[str]) -> Reply:
    """The reply as a server cuts it at a stop sequence."""
    text = said.text if isinstance(said.text, str) else ""
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return reply(text[: min(ends)]) if ends else said


def prompt_tokens(request: ModelRequest) -> int:
    """All that is sent, tool schemas included, estimated by one rule."""
    calls: Callable[[Any], list[Any]] = lambda message: getattr(message, "tool_calls", [])  # noqa: E731 - read at one place
    asked = [f"{one['name']}{one['args']}" for message in request.messages for one in calls(message)]
    texts = [message.text for message in request.messages]
    tools = json.dumps(request.tools) if request.tools else ""
    return sum(map(estimate_text, [*texts, *asked, tools]))


def reply_tokens(said: Reply) -> int:
    """All that is said, calls included, by the same rule."""
    text = said.text if isinstance(said.text, str) else ""
    return estimate_text(text) + sum(estimate_text(f"{one.name}{one.args}") for one in said.calls)
