"""Reads the text protocol `Thought: / Action: / Action Input: {json}` and `Final Answer:`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsm_agent.dialects.repair import Fault, Malformed, Parsed, Repair, parse_arguments, split_thinking
from fsm_agent.dialects.repair.scan import past_object

__all__ = ["ReactReply", "parse_react"]


@dataclass(frozen=True, slots=True)
class ReactReply:
    """What one reply says. At most one of `action` and `answer` is given; neither when only a thought was written.

    With an action, `arguments` is never None: without its `Action Input`, or with several, it is `Malformed`. An input without an
    action, and two different answers, are `Malformed` too, beside `action=None`.
    """

    thought: str
    action: str | None
    arguments: Parsed | Malformed | None
    answer: str | None
    repairs: tuple[str, ...] = ()
    labelled: bool = True
    """False when the text has no label at all."""
    written: str = ""
    """With an action that begins with a brace: the text from that brace on."""


_LABEL: Final = re.compile(
    r"^[ \t>#*_-]*+(?:(?P<thought>thought)|(?P<input>action[ \t_]*+input)|(?P<action>action)|(?P<answer>final[ \t_]*+answer)"
    r"|(?P<observation>observation))(?:[ \t]*+[0-9]{1,3})?+[ \t*_]*+[:：]\**+",
    re.IGNORECASE | re.MULTILINE,
)
_CHINESE_LABEL: Final = re.compile(
    r"^[ \t>#*_-]*+(?:(?P<thought>思考|想法)|(?P<input>(?:行动|动作|操作)(?:的)?(?:输入|参数))|(?P<action>行动|动作|操作)"
    r"|(?P<answer>最终(?:答案|回答|答复))|(?P<observation>观察(?:结果)?))[ \t*_]*+[:：]\**+",
    re.MULTILINE,
)
_INPUT_ON_THE_LINE: Final = re.compile(
    r"[^\n{]*?[ \t](?P<input>\**action[ \t_]*+input)[ \t*_]*+[:：]\**+", re.IGNORECASE
)
_NO_ACTION: Final = frozenset(
    {"", "-", "none", "n/a", "na", "null", "no action", "no action needed", "none needed", "无", "没有", "不需要"}
)


@dataclass(frozen=True, slots=True)
class _Section:
    """One labelled part, `text[start:end]` without its label (a group of `_LABEL`). The part before any label has the label `""`."""

    label: str
    start: int
    end: int


def parse_react(text: str, *, truncated: bool = False) -> ReactReply:
    """Read a reply. Never raises. `repairs` names what was passed over; `arguments` has the repairs of the input.

    The first action counts, and it outweighs a final answer. What follows an `Observation:` was invented by the model
    and is dropped. After `Final Answer:` only an action with an input is one; everything else belongs to the answer.
    Labels inside the JSON of an input are text. `truncated` says that the reply was cut, as for `parse_arguments`. Labels that a
    model put into Chinese with the rest of its reply are read too.
    """
    _, body = split_thinking(text)
    repairs: list[str] = [Repair.THINKING] if body != text else []
    labels = _CHINESE_LABEL if _in_chinese(body) else _LABEL
    repairs += [Repair.TRANSLATED_LABELS] if labels is _CHINESE_LABEL else []
    sections = _sections(body, labels)
    kept = _before_observation(sections)
    if any(body[section.start : section.end].strip() for section in sections[len(kept) :]):
        repairs.append(Repair.DROPPED_OBSERVATION)
    actions = _actions(body, kept)
    answers = [section for section in kept if section.label == "answer"]
    until = actions[0][0] if actions else next(iter(answers), None)
    thought = _thought(body, kept, until)
    if actions:
        repairs += [Repair.FIRST_OF_SEVERAL] if len(actions) > 1 else []
        repairs += [Repair.ACTION_OVER_ANSWER] if answers else []
        arguments = _arguments(body, *actions[0], truncated=truncated)
        name, rest = _name(body, actions[0][0]), body[actions[0][0].start :].lstrip()
        written = rest if name.startswith("{") else ""
        return ReactReply(thought, name, arguments, None, tuple(repairs), written=written)
    if answers:
        return _answered(thought, _answers(body, answers, kept[-1].end), repairs)
    stray = any(section.label == "input" for section in kept)
    lost = Malformed(Fault.MISSING, "there is an Action Input without an Action") if stray else None
    labelled = any(section.label for section in sections)
    return ReactReply(thought, None, lost, None, tuple(repairs), labelled)


def _answered(thought: str, answers: list[str], repairs: list[str]) -> ReactReply:
    """The final answer; two different ones are none."""
    if len(answers) > 1:
        lost = Malformed(Fault.AMBIGUOUS, "two different final answers; send one")
        return ReactReply(thought, None, lost, None, tuple(repairs))
    return ReactReply(thought, None, None, answers[0] if answers else None, tuple(repairs))


def _answers(body: str, labelled: list[_Section], end: int) -> list[str]:
    """The different texts that stand behind the labels of a final answer, each to the next such label."""
    ends = [body.rindex("\n", 0, one.start) for one in labelled[1:]]
    texts = [body[one.start : until].strip() for one, until in zip(labelled, [*ends, end], strict=True)]
    return list(dict.fromkeys([text for text in texts if text]))


def _in_chinese(body: str) -> bool:
    """True when the text goes by Chinese labels, and has no English ones.

    One label of the kind can stand in any text: it takes an action with an input, an answer, or a thought to begin with.
    """
    if body.isascii() or _LABEL.search(body) is not None:
        return False
    found = [one.lastgroup for one in _CHINESE_LABEL.finditer(body)]
    begins = _CHINESE_LABEL.match(body.lstrip())
    thinks = begins is not None and begins.lastgroup == "thought"
    return thinks or "answer" in found or {"action", "input"} <= set(found)


def _sections(body: str, labels: re.Pattern[str]) -> list[_Section]:
    """The labelled parts in order. The JSON of an input is walked over first, so that a label inside it is text."""
    sections: list[_Section] = []
    label, start, search = "", 0, 0
    while True:
        inline = _INPUT_ON_THE_LINE.match(body, start) if label == "action" else None
        found = inline or labels.search(body, search)
        if found is None:
            return [*sections, _Section(label, start, len(body))]
        sections.append(_Section(label, start, found.start("input") if inline else found.start()))
        label = str(found.lastgroup)
        start = found.end()
        search = _behind_input(body, start, labels) if label == "input" else start


def _behind_input(body: str, start: int, labels: re.Pattern[str]) -> int:
    following = labels.search(body, start)
    brace = body.find("{", start, len(body) if following is None else following.start())
    behind = start if brace < 0 else past_object(body, brace)
    return len(body) if behind is None else behind


def _before_observation(sections: list[_Section]) -> list[_Section]:
    """The sections up to an observation; one in a final answer is a word of that answer."""
    for index, section in enumerate(sections):
        if section.label == "answer":
            break
        if section.label == "observation":
            return sections[:index]
    return sections


def _actions(body: str, kept: list[_Section]) -> list[tuple[_Section, list[_Section]]]:
    """The actions, each with the inputs that belong to it: those before the next action or answer. After an answer it takes an input."""
    found: list[tuple[_Section, list[_Section], bool]] = []
    inputs: list[_Section] | None = None
    answered = False
    for section in kept:
        if section.label == "input" and inputs is not None:
            inputs.append(section)
        elif section.label in ("action", "answer"):
            answered = answered or section.label == "answer"
            named = section.label == "action" and _name(body, section).strip(" .*`").lower() not in _NO_ACTION
            inputs = [] if named else None
            found += [] if inputs is None else [(section, inputs, answered)]
    return [(action, given) for action, given, late in found if given or not late]


def _arguments(body: str, action: _Section, given: list[_Section], *, truncated: bool) -> Parsed | Malformed:
    cut = truncated and (given[-1] if given else action).end == len(body)
    texts = dict.fromkeys([body[one.start : one.end].strip() for one in given])
    if len(texts) > 1:
        return Malformed(Fault.AMBIGUOUS, f"the Action has {len(texts)} different Action Inputs; send one")
    if given:
        return parse_arguments(body[given[0].start : given[0].end], truncated=cut)
    if cut:
        return Malformed(Fault.TRUNCATED, "the reply was cut off before its Action Input")
    return Malformed(Fault.MISSING, "the Action has no Action Input (write {} when the tool needs none)")


def _thought(body: str, kept: list[_Section], until: _Section | None) -> str:
    """What was thought before the action or answer, or all of it when there is neither."""
    parts: list[str] = []
    for section in kept:
        if section is until:
            break
        if section.label in ("", "thought"):
            parts.append(body[section.start : section.end].strip())
    return "\n".join(part for part in parts if part)


def _name(body: str, action: _Section) -> str:
    """The name of an action: the first line that is not blank."""
    return body[action.start : action.end].strip().partition("\n")[0].strip()
