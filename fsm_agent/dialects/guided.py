"""The `guided_json` dialect: `json_action` with guidance from the engine, for models of one or two billion parameters.

Such models forget what they know, stop half way, repeat a call that failed or succeeded, and invent what they should look up. What can be
concluded without a model is therefore said in the prompt, and where a server takes a JSON schema, nothing else can be replied:

- A reply is a short thought, whether the task is solved, and an action that agrees with that.
- There is no answer before a tool was tried, nor before each code of the task (an id, a date, a file) was used. A task that needs no
  tool should be given to an agent without tools, or to `json_action`.
- Nor while a look-up (a tool declared `idempotent`, not `exclusive`, without approval) that was not tried is due: one that the task
  speaks of in words which no tool called so far accounts for (unless the task says what not to do); one that takes a number, or an amount
  and a unit, that no call has used; any, when the task asks how many and no result holds a number.
- The answer holds the newest result, where that is one short value.
- Codes like GBP are what a tool takes that needs as many texts as the task gives codes.
- Numbers and codes of the task that no call has used are named. What a look-up was asked about one code, it is asked about the next
  of the same form. While there is an unused number, a required one is that, or of a result.
- After a failed call whose value was a word of the task: the spelling that the error suggests, or else the tools that the task names, or
  else an answer and the look-ups that were not tried; after a value that was made up, the tools that the task speaks of rather. What these
  give is then tried in place of the value that failed.
- After the same call failed twice, the other look-ups.
- After an exact repeat of a call that succeeded, with the same result, the task is taken for solved.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from fsm_agent.dialects.base import Calls, Prompt, Purpose, Reading, merge_neighbours, one_system
from fsm_agent.dialects.guided_moves import (
    attempts_in,
    possible_replies,
    shared_with,
    shown_blocks,
    turn_of,
    unused_values,
)
from fsm_agent.dialects.guided_texts import GUIDES, Example, Guide
from fsm_agent.dialects.json_action import FINISH, JsonAction, action_format, answer_variant
from fsm_agent.dialects.repair import split_thinking
from fsm_agent.dialects.repair.strict import Value, strict_value
from fsm_agent.dialects.textual import call_text, describe, shortened
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.history import flatten
from fsm_agent.language import Texts

__all__ = ["GuidedJson"]


_PLAIN: Final = JsonAction()


@dataclass(frozen=True, slots=True)
class GuidedJson:
    """One JSON object a reply: thought, `solved`, action; without tools, as `json_action` does it.

    `constrain`: send a JSON schema of what may be replied as `response_format`, where the server takes one.
    """

    reserved: ClassVar[frozenset[str]] = JsonAction.reserved

    constrain: bool = True
    name: str = "guided_json"
    native_tools: bool = False

    def compose(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """System text and rules, worked examples, earlier turns, then the tools, the task and its calls, and what is to be asked now."""
        if not prompt.tools and prompt.purpose == "plan":
            return _PLAIN.compose(prompt)
        guide = GUIDES[prompt.texts.language]
        own = "" if prompt.system == prompt.texts.system else prompt.system
        system = f"{own}\n\n{guide.rules.format(finish=FINISH)}".strip()
        turn = turn_of(prompt)
        earlier = flatten([one for one in prompt.blocks if one.turn < turn])
        mine = flatten([one for one, again in shown_blocks(prompt) if not again])
        lead = (HumanMessage(_tools_text(guide, prompt)),)
        examples = [message for one in guide.examples for message in _worked(guide, one)]
        return merge_neighbours((*one_system(system), *examples, *earlier, *lead, *mine, *self.remind(prompt)))

    def remind(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """After a call: the task, what of it no call has used yet, and the question that is to be answered now."""
        attempts = attempts_in(prompt)
        if not attempts or (not prompt.tools and prompt.purpose == "plan"):
            return ()
        guide = GUIDES[prompt.texts.language]
        if prompt.purpose == "answer":
            return (HumanMessage(_situation(guide, prompt.task, (), guide.answer.format(finish=FINISH))),)
        if not attempts[-1].ok:
            return (HumanMessage(_situation(guide, prompt.task, (), guide.ask_first)),)
        return (HumanMessage(_situation(guide, prompt.task, unused_values(prompt), guide.ask)),)

    def response_format(self, prompt: Prompt) -> Mapping[str, Any] | None:
        """A schema of what may be replied now, with the tools' own arguments; see the module for what is left out when."""
        if not self.constrain:
            return None
        if not prompt.tools:
            return action_format([answer_variant()])
        return action_format(possible_replies(prompt))

    def read(self, reply: Replied, tools: Collection[str], purpose: Purpose) -> Reading:
        """As `json_action` reads it; thought and `solved` are for the model alone."""
        reading = _PLAIN.read(reply, tools, purpose)
        if not isinstance(reading, Calls):
            return reading
        beside = [tuple([key for key in one.beside if key not in ("thought", "solved")]) for one in reading.calls]
        calls = tuple([replace(one, beside=rest) for one, rest in zip(reading.calls, beside, strict=True)])
        return replace(reading, calls=calls)

    def keep_round(
        self, reply: Replied, calls: Sequence[Call], results: Sequence[Result], texts: Texts
    ) -> tuple[AnyMessage, ...]:
        """The action as clean JSON, behind its thought unless it failed (a wrong thought would be believed), and what came of it."""
        guide = GUIDES[texts.language]
        by_id = {call.id: call for call in calls}
        thought = _thought_of(reply) if len(calls) == 1 and all(one.ok for one in results) else {}
        said = "\n".join(
            json.dumps(
                {**thought, "action": call.name, "action_input": dict(call.arguments)}, ensure_ascii=False, default=str
            )
            for call in calls
        )
        told = "\n".join(_told(guide, by_id[one.call_id], one) for one in results)
        return (AIMessage(said), HumanMessage(told))

    def keep_rejected(self, reply: Replied, note: str) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_rejected(reply, note)

    def keep_note(self, note: str) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_note(note)

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_answer(text)


def _tools_text(guide: Guide, prompt: Prompt) -> str:
    """The tools, those that share most words with the task first: a small model tends to take the first one."""
    ranked = sorted(prompt.tools, key=lambda one: -shared_with(one, prompt.task))
    lines = [describe(one) for one in ranked]
    return "\n".join([guide.tools, *lines, "", guide.task.format(task="").rstrip()])


def _situation(guide: Guide, task: str, unused: Sequence[str], question: str) -> str:
    lines = [guide.task.format(task=shortened(task))]
    if unused:
        lines.append(guide.unused.format(values=guide.comma.join(unused)))
    return "\n".join([*lines, question])


def _told(guide: Guide, call: Call, result: Result) -> str:
    form = guide.result if result.ok else guide.failed if result.executed else guide.refused
    return form.format(call=call_text(call.tool, call.arguments), text=result.text or "(empty)")


def _thought_of(reply: Replied) -> dict[str, Any]:
    """What stood before the action of a reply, to be kept with it."""
    found = strict_value(split_thinking(reply.text)[1])
    value = found.value if isinstance(found, Value) else None
    thought = value.get("thought") if isinstance(value, dict) else None
    return {"thought": thought, "solved": False} if isinstance(thought, str) and thought else {}


def _worked(guide: Guide, example: Example) -> Iterator[AnyMessage]:
    """An example as the exchange that it would have been."""
    yield HumanMessage(f"{guide.tools}\n{example.tools}\n\n{guide.task.format(task=example.task)}")
    for turn in example.turns:
        solved = turn.action == FINISH
        said = {"thought": turn.thought, "solved": solved, "action": turn.action, "action_input": dict(turn.given)}
        yield AIMessage(json.dumps(said, ensure_ascii=False))
        if not solved:
            result = guide.result.format(call=call_text(turn.action, turn.given), text=turn.result)
            unused = (guide.unused.format(values=turn.unused),) if turn.unused else ()
            yield HumanMessage("\n".join([result, *unused, guide.ask]))
