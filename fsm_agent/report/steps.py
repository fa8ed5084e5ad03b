"""The transitions of a run with what was done before each, and the steps that they make up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fsm_agent.alphabet import INITIAL, Event, State
from fsm_agent.records import Transitioned
from fsm_agent.redact import redact
from fsm_agent.report.parts import Called, Checked, Question, Refused, Said, Step, Turn
from fsm_agent.trail.story import Act, Asked, Story
from fsm_agent.trail.story import Called as Begun
from fsm_agent.trail.wording import human_actions, human_entry, utc_text

__all__ = ["steps_of", "turns_of", "written_out"]

_VALUE_CHARS: Final = 200
_TITLE_CHARS: Final = 110
_LINE_CHARS: Final = 90
_AGAIN: Final = (State.PLAN, State.RETRY)
"""From these a run comes back to its first state without a new step."""
_TITLES: Final[Mapping[str, str]] = {
    Event.ANSWERED: "answers",
    Event.THOUGHT: "thinks",
    Event.REJECTED: "asks for what cannot be done",
    Event.MODEL_FAILED: "gets no reply",
    Event.WITHHELD: "gets no reply",
    Event.COMPACTED: "sums up what was done",
    Event.CANCELLED: "is cancelled",
    Event.BROKE: "breaks",
}


def turns_of(
    story: Story,
    made: Sequence[Transitioned],
    *,
    running: bool,
    refused: Mapping[int, tuple[Refused, ...]],
    sound_to: int | None,
    unredacted: bool,
) -> tuple[Turn, ...]:
    """Every transition in order, and last the effect that is under way, when there is one.

    `made` are its transitions, `refused` calls by the number of the transition that refused them. From entry `sound_to` on
    nothing is vouched for.
    """
    notes = _notes(story, unredacted=unredacted)
    turns: list[Turn] = []
    before: Transitioned | None = None
    records = iter(made)
    for act in story.acts:
        entry = act.transition
        if entry is None:
            state = str(before.target) if before is not None else str(INITIAL)
            turn = Turn(seq=len(turns) + 1, source=state, notes=notes.get(None, ()))
        else:
            record = next(records)
            turn = _turn(record, before)
            turn = replace(
                turn,
                notes=notes.get(entry.seq, ()),
                refused=refused.get(record.seq, ()),
                vouched=sound_to is None or entry.seq < sound_to,
            )
            before = record
        turns.append(_with_effect(turn, act, running=running))
    if None in notes and (not turns or turns[-1].target):
        state = str(before.target) if before is not None else str(INITIAL)
        turns.append(Turn(seq=len(turns) + 1, source=state, notes=notes[None]))
    return tuple(turns)


def _notes(story: Story, *, unredacted: bool) -> dict[int | None, tuple[str, ...]]:
    """What people did before each transition, by its entry; None: since the newest one."""
    found: dict[int | None, tuple[str, ...]] = {}
    told: list[str] = []
    done = human_actions(story.entries, unredacted=unredacted)
    for entry in story.entries:
        if entry.seq in done:
            told.append(f"{done[entry.seq]}, {utc_text(entry.time)}")
        elif entry.kind == "transition" and told:
            found[entry.seq] = tuple(told)
            told = []
    return found | ({None: tuple(told)} if told else {})


def _turn(record: Transitioned, before: Transitioned | None) -> Turn:
    return Turn(
        seq=record.seq,
        source=str(record.source),
        event=str(record.event),
        target=str(record.target),
        guards=tuple(
            Checked(
                one.guard, bool(one.result), tuple((str(name), _value(value)) for name, value in one.values.items())
            )
            for one in record.guards
        ),
        elapsed_ms=record.elapsed_ms,
        step=record.step,
        tokens=record.tokens - (before.tokens if before is not None else 0),
        reason="" if record.reason is None else str(record.reason),
        error=record.error,
        repairs=tuple(str(one) for one in record.repairs),
    )


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(redact(value), ensure_ascii=False, default=str)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


# ---------------------------------------------------------------- effects


def _with_effect(turn: Turn, act: Act, *, running: bool) -> Turn:
    match act.effect:
        case "call_model":
            return replace(turn, said=_said(act))
        case "call_tools":
            return replace(turn, calls=tuple(_called(one, act, running=running) for one in act.calls()))
        case "wait":
            return replace(turn, waited=float(act.started[-1].body.get("seconds") or 0.0))
        case "ask_human":
            return replace(turn, questions=tuple(_question(one, act) for one in act.asked()))
        case _:
            return turn


def _said(act: Act) -> Said:
    begun = act.started[-1].body
    purpose, attempt = str(begun.get("purpose") or "plan"), int(begun.get("attempt") or 1)
    if act.outcome is None:
        return Said(purpose=purpose, attempt=attempt)
    came = act.outcome.body
    usage = came.get("usage") or {}
    return Said(
        purpose=purpose,
        attempt=attempt,
        text=str(came.get("text") or came.get("refusal") or ""),
        asked=tuple(str(one["name"]) for one in came.get("calls") or ()),
        input=usage.get("input", 0),
        output=usage.get("output", 0),
        problem=_problem(came),
    )


def _problem(came: Mapping[str, Any]) -> str:
    match came.get("kind"):
        case "replied":
            said = [name for name in ("truncated", "refusal") if came.get(name)]
            return "; ".join([*said, *([str(came["unreadable"])] if came.get("unreadable") else [])])
        case "cancelled":
            return str(came.get("why") or "cancelled")
        case _:
            return f"{came.get('error', '')}: {came.get('message', '')}"


def _arguments(given: object) -> str:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return str(given)
    return "" if given is None else written_out(given)


def written_out(value: object) -> str:
    """JSON on one line where it is short, else a line for each part."""
    line = json.dumps(value, ensure_ascii=False, default=str)
    return line if len(line) <= _LINE_CHARS else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _called(call: Begun, act: Act, *, running: bool) -> Called:
    made = Called(tool=call.tool, arguments=_arguments(dict(call.arguments)), came="in doubt")
    result = call.result
    if result is None:
        open_ = act.outcome is None and act.transition is None
        return replace(made, came="under way") if open_ and running else made
    came = "ok" if result["ok"] else "failed" if result.get("executed", True) else "not executed"
    full = result.get("full")
    return replace(
        made,
        came=came,
        result=str(result["text"]),
        error="" if (error := str(result.get("error") or "")) in str(result["text"]) else error,
        seconds=float(result.get("seconds") or 0.0),
        whole=len(full) if isinstance(full, str) else 0,
    )


def _question(one: Asked, act: Act) -> Question:
    why = "a crash left open whether it ran" if one.request.why == "in_doubt" else "it needs a person's approval"
    return Question(one.request.tool, _arguments(dict(one.request.arguments)), why, _decided(one, act))


def _decided(one: Asked, act: Act) -> str:
    """What was decided; a decision that was made in place, by `approve=`, stands in the outcome alone. "" while it waits."""
    entry = one.decided
    if entry is None and act.outcome is not None:
        came, call_id = act.outcome.body, one.request.call_id
        decision = came["decisions"].get(call_id) if came.get("kind") == "answered" else None
        if decision is None:
            return "by nobody"
        entry = replace(act.outcome, kind="decided", body={"decision": decision, "call_id": call_id})
    return "" if entry is None else f"{human_entry(entry)}, {utc_text(entry.time)}"


# ---------------------------------------------------------------- steps


def steps_of(turns: Sequence[Turn]) -> tuple[Step, ...]:
    """The turns in rounds: each begins where the run comes back to its first state for something new."""
    rounds: list[list[Turn]] = []
    for turn in turns:
        before = rounds[-1][-1] if rounds else None
        if before is None or (turn.source == INITIAL and before.source not in _AGAIN):
            rounds.append([])
        rounds[-1].append(turn)
    return tuple(
        Step(number=number, name=name, turns=_told_once(own), title=_title(own), marks=tuple(_marks(own)))
        for number, (name, own) in enumerate(zip(_names(rounds), rounds, strict=True), 1)
    )


def _names(rounds: Sequence[Sequence[Turn]]) -> list[str]:
    """What the rounds are called: by the steps that the run has counted, which its limits go by."""
    names, before = [], 0
    for own in rounds:
        counted = max(turn.step for turn in own)
        # An open round has not been counted yet.
        reached = before + 1 if not any(turn.target for turn in own) else counted
        names.append(f"Step {reached}" if reached > before else f"After step {before}" if before else "Before step 1")
        before = max(before, counted)
    return names


def _told_once(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """A failure stands where it happened; the transitions that follow from it name it again."""
    said = {text for turn in turns for call in turn.calls for text in (call.result, call.error)}
    said |= {turn.said.problem for turn in turns if turn.said is not None}
    return tuple(replace(turn, error="") if turn.error in said else turn for turn in turns)


def _title(turns: Sequence[Turn]) -> str:
    calls = [call for turn in turns for call in turn.calls]
    others = [(one.tool, one.arguments) for turn in turns for one in turn.questions]
    others += [(one.tool, one.arguments) for turn in turns for one in turn.refused]
    asked = list(dict.fromkeys([(one.tool, one.arguments) for one in calls] or others))
    if asked:
        tool, arguments = asked[0]
        more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
        return f"{_cut(f'{tool}({_inline(arguments)})')}{more}"
    said = [_TITLES[turn.event] for turn in turns if turn.event in _TITLES]
    return said[-1] if said else "is under way" if not turns[-1].target else "goes on"


def _inline(arguments: str) -> str:
    try:
        data = json.loads(arguments)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return " ".join(arguments.split())
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in data.items())


def _cut(text: str) -> str:
    return text if len(text) <= _TITLE_CHARS else f"{text[:_TITLE_CHARS]}…"


def _marks(turns: Sequence[Turn]) -> list[str]:
    calls = [call for turn in turns for call in turn.calls]
    found = [one.came for one in calls if one.came != "ok"]
    found += ["model failed" for turn in turns if turn.event == Event.MODEL_FAILED]
    found += ["refused" for turn in turns if turn.refused or turn.event == Event.REJECTED]
    found += ["asked a person" for turn in turns if turn.questions]
    found += ["retried" for turn in turns if turn.source == State.RETRY]
    found += ["degraded" for turn in turns if turn.source == State.DEGRADE]
    found += ["stopped" for turn in turns if turn.target == State.ABORT]
    found += ["not vouched for" for turn in turns if not turn.vouched]
    return list(dict.fromkeys(found))
