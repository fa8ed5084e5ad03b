"""What a small model may reply at each point of a task: the rules of the `guided_json` dialect, on the prompt alone. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

from fsm_agent.dialects.base import Prompt
from fsm_agent.dialects.guidance import (
    codes,
    corrections,
    form_of,
    marks,
    named_by,
    new_words,
    number_in,
    offered_by,
    shared_words,
    wants_number,
    without_own_name,
    without_used,
)
from fsm_agent.dialects.guided_texts import GUIDES
from fsm_agent.dialects.json_action import answer_variant, variant
from fsm_agent.dialects.textual import without_examples
from fsm_agent.history import Block
from fsm_agent.tools.spec import Tool

__all__ = ["Attempt", "attempts_in", "possible_replies", "shared_with", "shown_blocks", "turn_of", "unused_values"]

Schemas = dict[str, dict[str, Any]]
_PLAIN_VALUE: Final = re.compile(r"[\w .,:;@+%/-]+")
_SPECIAL: Final = re.compile(r"[.+]")
_QUOTED: Final = r"\\\g<0>"
_ANY: Final = r'[^"\\{}\x00-\x1f]'
_AROUND: Final = {"en": "{0,120}", "zh": "{0,40}"}
"""Characters before and after the value. Bounded, as a model that does not think of it would go on for ever, and say anything."""
_MOST_IN_ORDER: Final = 3
_WHOLE: Final = re.compile(r"(?<=\d)\.0$")
_THOUGHT: Final = {"type": "string", "maxLength": 160}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of this turn as the history shows it. `error` is what the model reads of a call that was executed and failed."""

    tool: str
    arguments: Mapping[str, Any]
    ok: bool
    error: str = ""

    @property
    def strings(self) -> dict[str, str]:
        """The arguments that are text."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, str) and value.strip()}


def turn_of(prompt: Prompt) -> int:
    """The user turn that the prompt is about."""
    return prompt.blocks[-1].turn if prompt.blocks else 0


def shown_blocks(prompt: Prompt) -> Iterator[tuple[Block, bool]]:
    """The blocks of this turn, each with whether it only repeats a round that is shown already."""
    shown: set[tuple[str, str]] = set()
    for one in prompt.blocks:
        if one.turn < turn_of(prompt):
            continue
        again = False
        if one.kind == "round" and (action := _action_of(one)) is not None:
            key = (json.dumps(action, sort_keys=True), str(one.messages[1].content).partition("\n")[0])
            again = key in shown
            shown.add(key)
        yield one, again


def _action_of(one: Block) -> tuple[str, dict[str, Any]] | None:
    """The call of a round with one call, as `keep_round` wrote it."""
    try:
        value = json.loads(str(one.messages[0].content))
        return str(value["action"]), dict(value["action_input"])
    except (ValueError, KeyError, TypeError):
        return None


def attempts_in(prompt: Prompt) -> list[Attempt]:
    """The calls of this turn, as far as the memory shows them, in order; rounds with several calls are not among them."""
    worked = {(one.call.tool, json.dumps(dict(one.call.arguments), sort_keys=True, default=str)) for one in prompt.done}
    failed = GUIDES[prompt.texts.language].failed.partition("{")[0]
    found = []
    for one, _ in shown_blocks(prompt):
        if one.kind == "round" and (action := _action_of(one)) is not None:
            told = str(one.messages[1].content)
            ok = (action[0], json.dumps(action[1], sort_keys=True)) in worked
            found.append(Attempt(*action, ok, told if not ok and told.startswith(failed) else ""))
    return found


def possible_replies(prompt: Prompt) -> list[dict[str, Any]]:
    """The replies that are possible now, while there are tools."""
    tools = {one.name: without_examples(one.parameters()) for one in prompt.tools}
    attempts = attempts_in(prompt)
    _hold_capitals(prompt, tools)
    if not prompt.done and not attempts:
        return _calls(tools)
    if attempts and not attempts[-1].ok:
        return _after_failure(prompt, attempts, tools)
    repeated = _repeated(prompt)
    wanted = "" if repeated else _tried_once(prompt, attempts, tools) or _next_sibling(prompt, tools)
    if wanted:
        return _calls({wanted: tools[wanted]})
    if due := _due(prompt, attempts):
        _hold_numbers(prompt, tools)
        return _calls({name: tools[name] for name in due})
    if repeated:
        return [_answering(prompt)]
    _hold_numbers(prompt, tools)
    takes_text = any(_fields(one.parameters(), "string") for one in prompt.tools)
    if takes_text and without_used(codes(prompt.task), _given(prompt)):
        return _calls(tools)
    return [*_calls(tools), _finishing(prompt)]


def _after_failure(prompt: Prompt, attempts: Sequence[Attempt], tools: Schemas) -> list[dict[str, Any]]:
    """The same tool with a value that the error suggests; or other tools that the task names, or speaks of rather; or everything.

    After a value of the task, everything is the look-ups that were not tried yet, where there are any; after the same failure twice, the
    other look-ups. An answer is not possible when the call was refused, or its value was of the wrong form, so that the call is corrected.
    """
    last = attempts[-1]
    if not last.error or last.tool not in tools:
        return _calls(tools)
    harmless = {one.name: tools[one.name] for one in prompt.tools if _harmless(one) and one.name != last.tool}
    again = any((one.tool, one.arguments) == (last.tool, last.arguments) for one in attempts[:-1])
    if again and harmless:
        return _calls(harmless)
    meant = {name: found for name, value in last.strings.items() if (found := corrections(name, value, last.error))}
    if meant:
        for name, values in meant.items():
            tools[last.tool]["properties"][name] = {"enum": list(values)}
        return _calls({last.tool: tools[last.tool]})
    if not _copied(last, prompt.task):
        return _calls(_fitting_better(prompt, last, tools) or tools)
    safe = {one.name for one in prompt.tools if not one.requires_approval}
    others = {name: tools[name] for name in tools if name in safe - {last.tool} and named_by(name, prompt.task)}
    for schema in others.values():
        for name, field in _fields(schema, "string"):
            short = [kept for value in last.strings.values() if (kept := without_own_name(value, name))]
            if short:
                schema["properties"][name] = {**_meaning(field), "enum": short}
    if others:
        return _calls(others)
    fresh = {name: schema for name, schema in harmless.items() if all(one.tool != name for one in attempts)}
    return [*_calls(fresh or tools), _behind_thought(answer_variant(), solved=True)]


def _fitting_better(prompt: Prompt, last: Attempt, tools: Schemas) -> Schemas:
    """After a value that was made up: the tools that share more words with the task. A value with digits was rather misspelt."""
    if not last.strings or any(one.isdigit() for value in last.strings.values() for one in value):
        return {}
    shared = {one.name: shared_with(one, prompt.task) for one in prompt.tools if not one.requires_approval}
    least = max(shared.get(last.tool, 0), 1)
    return {name: schema for name, schema in tools.items() if shared.get(name, 0) > least}


def shared_with(tool: Tool, task: str) -> int:
    """How many words a task shares with a tool; those of its name count twice more."""
    return 2 * shared_words(task, tool.name.replace("_", " ")) + shared_words(task, tool.full_description)


def _tried_once(prompt: Prompt, attempts: Sequence[Attempt], tools: Schemas) -> str:
    """The tool whose call failed once for a value of the task and was not tried since, now that another one has given values for it."""
    for last in reversed(attempts):
        mine = [one for one in attempts if one.tool == last.tool]
        if len(mine) > 1 or last.ok or not last.error or last.tool not in tools or not _copied(last, prompt.task):
            continue
        values = [one for done in prompt.done for one in offered_by(done.result.text)]
        values = [one for one in dict.fromkeys(values) if one not in last.strings.values()]
        properties = tools[last.tool]["properties"]
        for name, field in _fields(tools[last.tool], "string"):
            if values and name in last.strings:
                properties[name] = {**_meaning(field), "enum": values}
        return last.tool if values else ""
    return ""


def _due(prompt: Prompt, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """The tools that may be called while one is due: harmless, not tried yet, and the task cannot be solved without it, as far as it shows.

    Due is what the task speaks of in words which no tool called so far accounts for (where that is several, any tool may be called);
    else, while a number of the task is unused, what needs a number; while GBP and the like are, what takes an amount and a text; while it
    asks for a number and no result holds one, anything.
    """
    tried = {one.tool for one in attempts} | {one.call.tool for one in prompt.done}
    fresh = [one for one in prompt.tools if one.name not in tried and _harmless(one)]
    if not fresh:
        return ()
    known = " ".join(_described(one) for one in prompt.tools if one.name in tried)
    spoken = {one.name: new_words(prompt.task, _described(one), known) for one in fresh}
    named = [name for name, count in spoken.items() if count]
    if named:
        # Which of several comes first is for the model to say.
        return tuple(named) if len(named) == 1 else tuple(one.name for one in prompt.tools)
    unused = unused_values(prompt)
    numeric = [one for one in fresh if _required_number(one.parameters())]
    if numeric and any(number_in(one) is not None for one in unused):
        return tuple(one.name for one in numeric)
    if any(one.isalpha() and one.isupper() for one in unused):
        return tuple(one.name for one in numeric if _fields(one.parameters(), "string"))
    answered = any(one.isdigit() for done in prompt.done for one in done.result.text)
    return () if answered or not wants_number(prompt.task) else tuple(one.name for one in fresh)


def _harmless(tool: Tool) -> bool:
    """A look-up, which may be pressed on the model: declared `idempotent`, shares what it works on with others, needs no approval."""
    return tool.idempotent and not tool.exclusive and tool.requires_approval is False


def _described(tool: Tool) -> str:
    return f"{tool.name.replace('_', ' ')} {tool.full_description}"


def _required_number(schema: Mapping[str, Any]) -> bool:
    named = [name for kind in ("number", "integer") for name, _ in _fields(schema, kind)]
    return any(name in schema.get("required", ()) for name in named)


def _hold_capitals(prompt: Prompt, tools: Schemas) -> None:
    """Where a task gives as many codes like GBP as a tool needs texts (two or more), hold those to these."""
    found = [one for one in marks(prompt.task, capitals=True) if one.isalpha() and one.isupper()]
    for schema in tools.values() if len(found) > 1 else ():
        texts = [(name, one) for name, one in _fields(schema, "string") if name in schema.get("required", ())]
        if len(texts) == len(found):
            for name, field in texts:
                schema["properties"][name] = {**_meaning(field), "enum": found}


def _next_sibling(prompt: Prompt, tools: Schemas) -> str:
    """The look-up that was asked about one code of the task, while another code of the same form was used by no call yet."""
    harmless = {one.name for one in prompt.tools if _harmless(one)}
    unused = unused_values(prompt)
    for done in reversed(prompt.done):
        for name, value in done.call.arguments.items() if done.call.tool in harmless else ():
            siblings = [one for one in unused if isinstance(value, str) and form_of(value) == form_of(one) != ""]
            if siblings and name in tools[done.call.tool].get("properties", {}):
                tools[done.call.tool]["properties"][name] = {"enum": siblings}
                return done.call.tool
    return ""


def _hold_numbers(prompt: Prompt, tools: Schemas) -> None:
    """While a number of the task is unused, hold required numbers to those, and to results that no call has used.

    A tool that needs as many numbers as there are (two or three) gets each of them once.
    """
    numbers = [one for text in unused_values(prompt) if (one := number_in(text)) is not None]
    if not numbers:
        return
    offered = [text for done in prompt.done for text in offered_by(done.result.text) if number_in(text) is not None]
    numbers += [one for text in without_used(offered, _given(prompt)) if (one := number_in(text)) is not None]
    values = [int(one) if one.is_integer() else one for one in dict.fromkeys(numbers)]
    for tool, schema in tools.items():
        held = {}
        for kind in ("number", "integer"):
            for name, field in _fields(schema, kind):
                fitting = [one for one in values if kind == "number" or isinstance(one, int)]
                if name in schema.get("required", ()) and fitting:
                    held[name] = {**_meaning(field), "enum": fitting}
        tools[tool] = {**schema, "properties": {**schema["properties"], **held}} if held else schema
        if 1 < len(held) == len(values) <= _MOST_IN_ORDER and all(
            len(one["enum"]) == len(values) for one in held.values()
        ):
            tools[tool] = {"anyOf": [_with(schema, held, given) for given in permutations(values)]}


def _with(schema: Mapping[str, Any], held: Mapping[str, dict[str, Any]], given: Sequence[Any]) -> dict[str, Any]:
    """The schema with one value for each of these arguments."""
    named = {name: {**one, "enum": [value]} for (name, one), value in zip(held.items(), given, strict=True)}
    return {**schema, "properties": {**schema["properties"], **named}}


def _fields(schema: Mapping[str, Any], kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The arguments of this JSON type that leave the value open."""
    fields = schema.get("properties", {}).items()
    return [
        (name, one) for name, one in fields if isinstance(one, dict) and one.get("type") == kind and "enum" not in one
    ]


def _meaning(field: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field[name] for name in ("title", "description") if name in field}


def _copied(attempt: Attempt, task: str) -> bool:
    """True when a text that the call was given stands in the task like that: it may be of the wrong kind, not of the wrong form."""
    return any(value.casefold() in task.casefold() for value in attempt.strings.values())


def _given(prompt: Prompt) -> list[Any]:
    return [value for one in prompt.done for value in one.call.arguments.values()]


def unused_values(prompt: Prompt) -> tuple[str, ...]:
    """What the task gives letter for letter and no call has used; GBP and the like only while a tool that takes text was never called."""
    called = {one.call.tool for one in prompt.done}
    fresh = [one.parameters() for one in prompt.tools if one.name not in called]
    capitals = any(_fields(schema, "string") for schema in fresh)
    return without_used(marks(prompt.task, capitals=capitals), _given(prompt))


def _repeated(prompt: Prompt) -> bool:
    """True when the newest call had been made before, with the same result, by a tool that is not there to be asked again."""
    if not prompt.done:
        return False
    *before, newest = prompt.done
    polls = any(one.name == newest.call.tool and one.repeatable for one in prompt.tools)
    same = [one for one in before if one.call.signature == newest.call.signature]
    return bool(same) and same[-1].result.digest == newest.result.digest and not polls


def _calls(tools: Schemas) -> list[dict[str, Any]]:
    return [_behind_thought(variant(name, schema), solved=False) for name, schema in tools.items()]


def _behind_thought(action: Mapping[str, Any], *, solved: bool) -> dict[str, Any]:
    first = {"thought": _THOUGHT, "solved": {"const": solved}}
    return {**action, "properties": {**first, **action["properties"]}, "required": [*first, *action["required"]]}


def _answering(prompt: Prompt) -> dict[str, Any]:
    """The final answer after a repeat, behind a thought that is given: what the newest result is, so that it is told."""
    texts = GUIDES[prompt.texts.language]
    values = offered_by(prompt.done[-1].result.text)
    known = texts.known.format(value=values[0]) if len(values) == 1 else texts.nothing
    schema = _finishing(prompt)
    return {**schema, "properties": {**schema["properties"], "thought": {"const": known}}}


def _finishing(prompt: Prompt) -> dict[str, Any]:
    """The final answer; where the newest result is one short value, it holds that value."""
    schema = _behind_thought(answer_variant(), solved=True)
    values = offered_by(prompt.done[-1].result.text) if prompt.done else ()
    if len(values) != 1 or _PLAIN_VALUE.fullmatch(values[0]) is None:
        return schema
    value = _WHOLE.sub("", values[0])
    around = f"{_ANY}{_AROUND[prompt.texts.language]}"
    told = {"type": "string", "pattern": f"^{around}{_SPECIAL.sub(_QUOTED, value)}{around}$"}
    action = schema["properties"]["action_input"]
    return {
        **schema,
        "properties": {**schema["properties"], "action_input": {**action, "properties": {"answer": told}}},
    }
