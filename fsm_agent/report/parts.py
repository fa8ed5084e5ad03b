"""What a report shows, before it is drawn. Frozen data; secrets are out of it already, and nothing in it is escaped yet."""

from __future__ import annotations

from dataclasses import dataclass

from fsm_agent.trail.audit import Audit

__all__ = [
    "Called",
    "Checked",
    "Ending",
    "Fact",
    "Message",
    "Question",
    "Refused",
    "Report",
    "Said",
    "Step",
    "Sum",
    "Turn",
    "Way",
]


@dataclass(frozen=True, slots=True)
class Fact:
    """A name with a value. `usual` is False for a limit that is not at its default."""

    name: str
    value: str
    usual: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the run stands: `status` and `reason` as words, the `sentence` that says so, and `detail` with guard, limit and value."""

    status: str
    reason: str = ""
    sentence: str
    detail: str = ""
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A guard that was asked, what it said, and what it compared."""

    name: str
    held: bool
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A model call and what came of it. `problem` says why its reply is none; `asked` are the tools that it calls."""

    purpose: str
    attempt: int
    text: str = ""
    asked: tuple[str, ...] = ()
    input: int = 0
    output: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call that was begun. `came` is "ok", "failed", "not executed", "under way" or "in doubt"; `whole` counts what was cut."""

    tool: str
    arguments: str
    came: str
    result: str = ""
    error: str = ""
    seconds: float | None = None
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that was asked for and refused before it ran."""

    tool: str
    arguments: str
    why: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a person was asked, and decided; `decided` is "" while it waits."""

    tool: str
    arguments: str
    why: str
    decided: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One transition, what was done before it, and what people did meanwhile. Without a `target` it is under way.

    `step` counts the steps so far, `tokens` are those that it added. `vouched` is False from the first
    entry on that the audit found fault with.
    """

    seq: int
    source: str
    event: str = ""
    target: str = ""
    guards: tuple[Checked, ...] = ()
    elapsed_ms: float = 0.0
    step: int = 0
    tokens: int = 0
    reason: str = ""
    error: str = ""
    repairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    said: Said | None = None
    calls: tuple[Called, ...] = ()
    refused: tuple[Refused, ...] = ()
    questions: tuple[Question, ...] = ()
    waited: float | None = None
    vouched: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The transitions of one round, the `number`th. `title` says what it did, `marks` what went wrong in it or had to be asked.

    `name` is "Step 3", or of a round that the run does not count as a step (a forced answer, a model call that failed) "After step 3".
    """

    number: int
    name: str
    turns: tuple[Turn, ...]
    title: str
    marks: tuple[str, ...] = ()

    @property
    def elapsed_ms(self) -> float:
        """How long it took."""
        return sum(one.elapsed_ms for one in self.turns)

    @property
    def tokens(self) -> int:
        """What it took."""
        return sum(one.tokens for one in self.turns)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: who it is from (`tool` says which, for a result), what it says, and the calls in it."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """A row of the table that the run took: how often, and for how long."""

    source: str
    event: str
    target: str
    guards: tuple[str, ...]
    count: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Sum:
    """A guard over the whole run: what it means, how often it was asked, and how often it held."""

    name: str
    sentence: str
    asked: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is shown of one run. `overlay` is an SVG image, or None, and `undrawn` then says why. Times are epoch seconds.

    `places` says of each state how it is drawn. `unread` are the entries that could not be shown, and why; `no_messages` why there
    are no messages.
    """

    run_id: str
    task: str
    language: str
    ending: Ending
    began: float
    updated: float
    facts: tuple[Fact, ...]
    limits: tuple[Fact, ...]
    tools: tuple[Fact, ...]
    steps: tuple[Step, ...]
    ways: tuple[Way, ...]
    guards: tuple[Sum, ...]
    messages: tuple[Message, ...]
    no_messages: str
    places: dict[str, str]
    overlay: str | None
    undrawn: str
    verdict: Audit
    unread: tuple[str, ...]
    unredacted: bool

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Those of all steps."""
        return tuple(turn for step in self.steps for turn in step.turns)

    @property
    def lang(self) -> str | None:
        """The language of what is said in the run, where it is not that of the page."""
        return self.language if self.language not in ("", "en") else None
