"""Hypothesis strategies for what a run meets: replies, results, decisions, limits, histories. Needs the extra `testing`.

`outcomes(effect)` is whatever can come of an effect, so that a property test can drive a state, or a whole run, through anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.effects import (
    Answer,
    Answered,
    Approve,
    AskHuman,
    Call,
    CallModel,
    CallTools,
    Decision,
    Deny,
    Doubted,
    Edit,
    Effect,
    Expired,
    ModelFailed,
    Outcome,
    RawCall,
    Replied,
    Result,
    Returned,
    Usage,
    Wait,
    Waited,
)
from fsm_agent.history import Block, block
from fsm_agent.ladder import LADDER, Rung
from fsm_agent.language import EN
from fsm_agent.limits import Limits
from fsm_agent.tools.signature import digest
from fsm_agent.tools.spec import Tool

__all__ = [
    "Round",
    "answers",
    "arguments",
    "calls",
    "decisions",
    "doubts",
    "histories",
    "history_of",
    "ladders",
    "limits",
    "outcomes",
    "rarely",
    "replies",
    "returns",
    "rounds",
    "turns",
]

_TEXTS: Final = st.sampled_from(["", " ", "It is 3.", "<think>hm</think>", "<think>hm</think>It is 3."])
_WILD: Final[st.SearchStrategy[Any]] = st.sampled_from([{}, None, "", "{", '{"q": "x"', '{"q": "x"}', "[1]"])
_IDS: Final = st.sampled_from(["", "", "call_0", "call_1"])
_USAGES: Final = st.builds(lambda tokens: Usage(tokens, 0, tokens), st.integers(0, 600))
_SCALARS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "string": st.sampled_from(["", "x", "y", "a longer text"]),
    "integer": st.integers(0, 5),
    "number": st.integers(0, 5) | st.floats(0, 5),
    "boolean": st.booleans(),
    "null": st.none(),
}


def rarely(strategy: st.SearchStrategy[Any], often: Any, *, one_in: int = 4) -> st.SearchStrategy[Any]:
    """`often` most of the time, and one time in so many what `strategy` draws."""
    kinds = st.sampled_from([False, *[False] * (one_in - 2), True])
    return kinds.flatmap(lambda rare: strategy if rare else st.just(often))


def limits() -> st.SearchStrategy[Limits]:
    """Limits that are reached: small numbers, most of them now and then without a bound."""
    return st.builds(
        lambda degrade_after, more, **given: Limits(
            degrade_after=degrade_after, abort_after=degrade_after + more, **given
        ),
        degrade_after=st.sampled_from([1, 1, 2, 3]),
        more=st.sampled_from([1, 3, 0]),
        max_steps=st.sampled_from([9, 9, 6, 4, 2, 1, "adaptive"]),
        base_steps=st.sampled_from([3, 1]),
        most_steps=st.sampled_from([9, 4]),
        max_tool_calls=st.sampled_from([50, 50, 50, 9, 3, 1, 0]),
        token_budget=rarely(st.sampled_from([6_000, 3_000, 1_500, 700, 1]), None, one_in=5),
        deadline=rarely(st.sampled_from([60.0, 20.0, 5.0, 0.5]), None, one_in=5),
        repeat_threshold=st.sampled_from([2, 1, 3]),
        repeats=st.sampled_from(["any", "in_a_row"]),
        no_progress_steps=st.sampled_from([9, 9, 3, 2, 1]),
        max_retries=st.sampled_from([1, 1, 2, 0]),
        backoff=st.sampled_from([0.0, 1.0, 5.0]),
        backoff_max=rarely(st.sampled_from([3.0, 0.0]), 30.0),
        max_nudges=st.integers(0, 2),
        max_degradations=st.sampled_from([3, 2, 1, 0]),
        approval_timeout=st.none() | st.just(5.0),
        on_limit=st.sampled_from(["answer", "stop"]),
        in_doubt=st.sampled_from(["review", "review", "tell"]),
    )


def ladders() -> st.SearchStrategy[Iterable[str]]:
    """The rungs that there are: mostly all of them."""
    return rarely(st.lists(st.sampled_from(tuple(Rung)), unique=True), LADDER, one_in=3)


# ---------------------------------------------------------------- what a model says


def arguments(tool: Tool) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments for a tool, of the types that its schema names; optional ones may be left out. What the schema bounds is not looked at."""
    schema = tool.parameters()
    fields = {name: _value(kind) for name, kind in schema.get("properties", {}).items()}
    required = [name for name in schema.get("required", ()) if name in fields]
    optional = {name: fields[name] for name in fields if name not in required}
    return st.fixed_dictionaries({name: fields[name] for name in required}, optional=optional)


def _value(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(list(schema["enum"]))
    kind = schema.get("type", "string")
    if kind == "array":
        return st.lists(_value(schema.get("items", {})), max_size=2)
    if kind == "object":
        return st.dictionaries(st.sampled_from("ab"), _SCALARS["integer"], max_size=2)
    return st.one_of(*(_SCALARS[one] for one in ([kind] if isinstance(kind, str) else kind) if one in _SCALARS))


def calls(tools: Iterable[Tool] = ()) -> st.SearchStrategy[RawCall]:
    """Calls as a model asks for them: of these tools with fitting arguments, now and then of none, or with arguments that are broken."""
    known = tuple(tools)
    names = st.sampled_from([*(one.name for one in known), "nothing", ""])
    wrong = st.builds(RawCall, _IDS, names, _WILD)
    right = [st.builds(RawCall, _IDS, st.just(one.name), arguments(one)) for one in known]
    return st.one_of(*right, wrong)


def replies(
    tools: Iterable[Tool] = (),
    *,
    calls_of: st.SearchStrategy[RawCall] | None = None,
    texts: st.SearchStrategy[str] = _TEXTS,
    at: float = 0.0,
) -> st.SearchStrategy[Replied | ModelFailed]:
    """What comes of a model call: calls, texts, both, replies that were cut or cannot be read, and failures of every kind.

    `calls_of` and `texts` take the place of what it says; `at` is when, in seconds since the run began.
    """
    return _replies(calls(tools) if calls_of is None else calls_of, texts, at)


_OPAQUES: Final = st.sampled_from(
    [
        *[None] * 4,
        {"content": [{"signature": "c2ln", "thinking": "so", "type": "thinking"}]},
        {"additional_kwargs": {"reasoning_content": "so"}},
    ]
)
_REPLIES: Final = st.sampled_from([*["calls"] * 12, "text", "text", "failure", "failure", "cut", "unreadable", "both"])


@st.composite
def _replies(
    draw: st.DrawFn, calls: st.SearchStrategy[RawCall], texts: st.SearchStrategy[str], at: float
) -> Replied | ModelFailed:
    kind = draw(_REPLIES)
    if kind == "failure":
        return ModelFailed(
            error="APIError",
            message="no luck",
            retryable=draw(st.sampled_from([True, True, False])),
            overflow=draw(st.sampled_from([False, False, True])),
            context_tokens=draw(st.sampled_from([None, 100, 4_000])),
            prompt_tokens=draw(st.sampled_from([None, 200, 8_000])),
            gives_way=draw(st.sampled_from([False, False, True])),
            retry_after=draw(st.sampled_from([None, None, 0.0, 1.0, 90.0])),
            usage=draw(_USAGES),
            at=at,
        )
    return Replied(
        text=draw(texts) if kind in ("text", "cut", "both") else "",
        calls=tuple(draw(st.lists(calls, min_size=1, max_size=3))) if kind in ("calls", "cut", "both") else (),
        usage=draw(_USAGES),
        prompt_tokens=draw(st.sampled_from([None, None, 0, 100, 2_000])),
        truncated=kind == "cut",
        unreadable="no message" if kind == "unreadable" else "",
        opaque=draw(_OPAQUES) if kind in ("calls", "cut", "both") else None,
        at=at,
    )


# ---------------------------------------------------------------- what tools and people do


def decisions(edits: st.SearchStrategy[dict[str, Any]] | None = None) -> st.SearchStrategy[Decision]:
    """What a person decides about a call; `edits` are the arguments that an edit gives."""
    return st.one_of(
        st.builds(Approve),
        st.builds(Deny, st.just("no"), st.sampled_from([False, False, False, True])),
        st.builds(Edit, st.just({}) if edits is None else edits),
        st.builds(Answer, st.sampled_from(["it was done", ""])),
    )


def outcomes(
    effect: Effect,
    tools: Iterable[Tool] = (),
    *,
    at: float = 0.0,
    waited: float = 0.0,
    crashes: bool = False,
    decided: st.SearchStrategy[Decision] | None = None,
) -> st.SearchStrategy[Outcome]:
    """Whatever can come of `effect`: replies with calls of `tools`, results, decisions (or `decided`), or that nobody decides in time.

    With `crashes`, a batch of calls may also leave some of them in doubt. `at` is when it comes, in seconds since the run began, and
    `waited` how long a person was waited for.
    """
    match effect:
        case CallModel():
            return replies(tools, at=at)
        case CallTools():
            returned = returns(effect, at)
            return st.one_of(returned, returned, doubts(effect, at)) if crashes and effect.calls else returned
        case AskHuman():
            return answers(effect, decisions() if decided is None else decided, at, waited)
        case Wait(seconds=seconds):
            return st.just(Waited(at + seconds))


@st.composite
def returns(draw: st.DrawFn, effect: CallTools, at: float) -> Returned:
    """What comes of a batch: one result for each call, in order."""
    return Returned(results=tuple(draw(_result(call)) for call in effect.calls), at=at)


@st.composite
def doubts(draw: st.DrawFn, effect: CallTools, at: float) -> Doubted:
    """What is known of a batch after a crash: at least one call is in doubt, the others too, or known, or not begun."""
    sure = draw(st.integers(0, len(effect.calls) - 1))
    unknown, known = [], []
    for index, call in enumerate(effect.calls):
        fate = "doubt" if index == sure else draw(st.sampled_from(["doubt", "known", "known", "waiting"]))
        if fate == "doubt":
            unknown.append(call.id)
        elif fate == "known":
            known.append(draw(_result(call)))
    return Doubted(calls=tuple(unknown), results=tuple(known), at=at)


@st.composite
def _result(draw: st.DrawFn, call: Call) -> Result:
    """What comes of one call."""
    kind = draw(st.sampled_from(["same", "new", "new", "failed", "failed", "retryable", "retryable", "gone"]))
    text = draw(st.sampled_from("abcdefgh")) if kind == "new" else kind
    if kind == "gone":
        return Result(call_id=call.id, tool=call.tool, ok=False, text=text, error="unregistered", executed=False)
    ok = kind in ("same", "new")
    error = "" if ok else "ValueError"
    return Result(
        call_id=call.id,
        tool=call.tool,
        ok=ok,
        text=text,
        digest=digest(text),
        error=error,
        retryable=kind == "retryable",
    )


@st.composite
def answers(
    draw: st.DrawFn, effect: AskHuman, decisions: st.SearchStrategy[Decision], at: float, waited: float
) -> Answered | Expired:
    """What a person decides, if at all; a call may be left out."""
    if draw(st.sampled_from(["decides", *["decides"] * 8, "expires"])) == "expires":
        return Expired(waited, at)
    silent = draw(st.sampled_from([False] * 8 + [True]))
    decided = {call.id: draw(decisions) for call in effect.calls[1 if silent else 0 :]}
    return Answered(decisions=decided, waited=waited, at=at)


# ---------------------------------------------------------------- histories


@dataclass(frozen=True)
class Round:
    """One round of a made-up history: how many calls, whether the model spoke beside them, whether a note follows."""

    calls: int
    speaks: bool
    note: bool


def histories(dialect: str | Dialect = "native") -> st.SearchStrategy[list[Block]]:
    """Histories of conversations in a dialect: whole blocks, in order, every text in them once. The last turn is still open."""
    return st.builds(lambda made: history_of(dialect_for(dialect), made), turns)


rounds = st.builds(Round, st.integers(0, 4), st.booleans(), st.booleans())
turns = st.lists(st.tuples(st.lists(rounds, max_size=5), st.booleans()), min_size=1, max_size=4)
"""For each turn its rounds, and whether it was answered; the last turn is still open."""


def history_of(dialect: Dialect, made: Sequence[tuple[Sequence[Round], bool]]) -> list[Block]:
    """The blocks that such a conversation leaves in this dialect; every text in it occurs once."""
    blocks: list[Block] = []
    for turn, (made_rounds, answered) in enumerate(made):
        blocks.append(block("task", HumanMessage(f"task {turn}."), turn=turn))
        for number, one in enumerate(made_rounds):
            blocks.append(round_of(dialect, one, turn, f"{turn}-{number}"))
        if answered and turn < len(made) - 1:
            blocks.append(block("answer", *dialect.keep_answer(f"answer {turn}."), turn=turn))
    return blocks


def round_of(dialect: Dialect, one: Round, turn: int, name: str) -> Block:
    """The block of one round: calls with their results, or a reply that was no use with what the model was told."""
    said = f"said {name}." if one.speaks else ""
    note = dialect.keep_note(f"note {name}.") if one.note else ()
    if not one.calls:
        return block("note", *dialect.keep_rejected(_reply(said), f"told {name}."), *note, turn=turn)
    made = [
        Call(id=f"id-{name}-{n}", name="look", tool="look", arguments={"q": f"q {name}-{n}."}) for n in range(one.calls)
    ]
    results = [_gave(call.id, f"result {call.id}.") for call in made]
    reply = _reply(said, *(RawCall("", "look", call.arguments) for call in made))
    return block("round", *dialect.keep_round(reply, made, results, EN), *note, turn=turn)


def _reply(text: str, *calls: RawCall) -> Replied:
    return Replied(text=text, calls=calls, usage=Usage(15, 0, 15))


def _gave(call_id: str, text: str) -> Result:
    return Result(call_id=call_id, tool="look", ok=True, text=text, digest=digest(text))
