"""A stored run as a test: a pytest file that scripts its model and its tools, and holds the path that it took."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fsm_agent import dialects, memory, reflection, temperature
from fsm_agent.alphabet import TERMINAL
from fsm_agent.errors import RunError
from fsm_agent.ladder import LADDER
from fsm_agent.language import Language, texts_for
from fsm_agent.limits import Limits
from fsm_agent.records import RunResult
from fsm_agent.redact import redact
from fsm_agent.testing.asserts import describe_run
from fsm_agent.testing.code import Code, call_of, literal
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.forms import reading
from fsm_agent.trail.story import Act, Story, story_of
from fsm_agent.trail.toolset import parameters_of

__all__ = ["as_test"]

_REFUSED: Final = {
    "cancelled": "it was cancelled",
    "broke": "the engine broke off",
    "doubted": "a crash left calls in doubt",
    "expired": "nobody decided in time",
}
_OPTIONS: Final = {
    "idempotent": False,
    "repeatable": False,
    "once": False,
    "default": None,
    "retry": None,
    "timeout": None,
    "max_result_chars": None,
    "lax": False,
    "exclusive": False,
}
_HOPELESS: Final = "insufficient_quota"
_OVERFLOW: Final = "context_length_exceeded"
_KIT: Final = ("FakeClock", "ScriptedModel", "assert_reason", "assert_transitions")


def as_test(entries: Sequence[Entry], *, secrets: bool = False) -> str:
    """The text of a pytest file with one test, which replays the run of these entries with scripts and holds its path, reason and answer.

    Raises `fsm_agent.errors.RunError` for a run that scripts cannot replay (it has not ended, was cancelled, crashed, forked or changed,
    or follows from code that no trail holds), and, without `secrets`, for one that holds what looks like a secret; `TrailDamaged` for what
    no trail of an agent holds.
    """
    story = story_of(entries)
    with reading(story.entries[0]):
        _check(story)
        draft = _Draft(story)
        result = draft.played()
    held = [story.header["task"], draft.seen]
    if not secrets and redact(held) != held:
        raise RunError(
            "the run holds what looks like a secret, and a test of it would too: give --unredacted to write it all the same"
        )
    taken, recorded = [
        [(one.source, one.event, one.target) for one in run] for run in (result.transitions, story.transitions)
    ]
    if taken != recorded:
        raise RunError(
            f"this run cannot be made a test: replayed with scripts it takes another path. {describe_run(result)}"
        )
    return draft.text(result)


def _check(story: Story) -> None:
    """Refuse what scripts cannot replay, with why."""
    header, last = story.header, story.transitions[-1:]
    kinds = {entry.kind for entry in story.entries}
    outcomes = [str(act.outcome.body.get("kind")) for act in story.acts if act.outcome is not None]
    why = next((_REFUSED[kind] for kind in outcomes if kind in _REFUSED), "")
    if not last or last[0].target not in TERMINAL:
        why = "it has not ended"
    elif header.get("table"):
        why = "it went by a table of its own, which the test could not make"
    elif header.get("forked"):
        why = "it is a fork: its beginning is in another run"
    elif "changed" in kinds:
        why = "a person changed it on its way"
    mapped = [one["name"] for one in header["setup"]["tools"] if one["code"]]
    if not why and mapped:
        why = f"the arguments of the fallback of {', '.join(mapped)} come from code, which no trail holds"
    if why:
        raise RunError(f"this run cannot be made a test: {why}")


@dataclass
class _Tool:
    """A tool of the run, and what it gave, in order."""

    kept: Mapping[str, Any]
    variable: str
    entries: list[Code] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)


class _Draft:
    """The parts of the test while they are collected from the run. `seen` is everything of the run that is written into it."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.setup: Mapping[str, Any] = story.header["setup"]
        self.language: Language = story.header["language"]
        self.kit: set[str] = set(_KIT)
        self.public: set[str] = set()
        self.model: list[Code] = []
        self.decisions: list[Code] = []
        self.tools = {one["name"]: _Tool(one, f"tool_{_variable(one['name'])}") for one in self.setup["tools"]}
        self.seen: list[Any] = []
        self.one_by_one = False
        self.limits = Limits(**self.setup["limits"])
        self._now = 0.0
        for act in story.acts:
            if act.outcome is not None:
                with reading(act.outcome):
                    self._take(act, act.outcome.body)

    def _take(self, act: Act, body: Mapping[str, Any]) -> None:
        match body["kind"]:
            case "replied":
                self.model.append(self._after(body["at"], self._replied(body)))
            case "model_failed":
                self.model.append(self._after(body["at"], self._failed(body)))
            case "returned":
                self._returned(act, body)
            case "answered":
                self._answered(act, body)
            case "waited":
                self._now += float(act.started[-1].body["seconds"])

    def _after(self, at: float, entry: Code) -> Code:
        """`entry` as late as it came under a deadline; without one the time decides nothing."""
        if self.limits.deadline is None:
            return entry
        seconds = max(round(at - self._now, 3), 0.0)
        self._now = max(at, self._now)
        self.kit.add("Delay")
        return Code(f"Delay({seconds!r}, {entry})")

    # ------------------------------------------------------------ the model

    def _replied(self, body: Mapping[str, Any]) -> Code:
        if body["unreadable"] or body["refusal"]:
            raise RunError("this run cannot be made a test: a reply of the model was refused, or could not be read")
        self.seen.append([body["text"], [one["arguments"] for one in body["calls"]]])
        calls = [call_of("Call", one["name"], one["arguments"], one["id"] or None) for one in body["calls"]]
        usage = (body["usage"]["input"], body["usage"]["output"])
        finish = body["finish"] or ("length" if body["truncated"] else "stop")
        plain = finish in ("stop", "tool_calls")
        self.kit |= {"reply", *(["Call"] if calls else [])}
        return call_of("reply", body["text"], *calls, usage=usage, **({} if plain else {"finish_reason": finish}))

    def _failed(self, body: Mapping[str, Any]) -> Code:
        self.seen.append(body["message"])
        if body["error"] == "TimeoutError" and body["status"] is None and body["message"].startswith("no reply within"):
            self.kit |= {"Delay"}
            return Code(f"Delay({self.limits.model_timeout + 1!r}, 'too late')")
        passing = body["status"] is None or body["retryable"]
        code = _OVERFLOW if body["overflow"] else None if passing or body["status"] < 500 else _HOPELESS  # noqa: PLR2004 - HTTP
        given = {"status": body["status"], "retry_after": body["retry_after"], "code": code}
        self.kit.add("model_error")
        return call_of(
            "model_error", body["error"], body["message"], **{k: v for k, v in given.items() if v is not None}
        )

    # ------------------------------------------------------------ tools and people

    def _returned(self, act: Act, body: Mapping[str, Any]) -> None:
        names = [act.results[call_id].body["tool"] for call_id in body["calls"]]
        self.one_by_one |= len(names) > 1
        last = body["calls"][-1]
        for call_id in body["calls"]:
            result = act.results[call_id].body
            entry = self._result(result)
            self.tools[result["tool"]].entries.append(self._after(body["at"], entry) if call_id == last else entry)
        arguments = [one["arguments"] for entry in act.started for one in entry.body["calls"]]
        self.seen.append(arguments)

    def _result(self, result: Mapping[str, Any]) -> Code:
        text = result["text"] if result["full"] is None else result["full"]
        self.seen.append(text)
        if result["ok"]:
            return literal(text)
        if not result["executed"]:
            raise RunError(f"this run cannot be made a test: the tool {result['tool']} was taken away while it ran")
        if result["error"] == "timeout":
            kept = self.tools[result["tool"]].kept
            self.kit.add("Delay")
            return Code(f"Delay({(kept['timeout'] or self.limits.tool_timeout) + 1!r}, 'too late')")
        self.kit.add("tool_error")
        if result["error"] == "failed":
            return call_of("tool_error", "ToolRefusal", text, retryable=False)
        words = self._words(result)
        given = {} if result["retryable"] else {"retryable": False}
        return call_of("tool_error", result["error"], words, **given)

    def _words(self, result: Mapping[str, Any]) -> str:
        """What the exception said, out of what the model read of it."""
        before, _, after = texts_for(self.language).tool_error.format(tool=result["tool"], error="\0").partition("\0")
        said = str(result["text"]).removeprefix(before).removesuffix(after)
        return said.removeprefix(str(result["error"])).removeprefix(": ")

    def _answered(self, act: Act, body: Mapping[str, Any]) -> None:
        for call in act.started[-1].body["calls"]:
            self.tools[call["tool"]].asked.append(call["arguments"])
            decision = dict(body["decisions"].get(call["id"], {"kind": "deny"}))
            self.seen.append(decision)
            kind = str(decision.pop("kind")).capitalize()
            decision.pop("digest", None)
            self.public.add(kind)
            self.decisions.append(call_of(kind, **{name: one for name, one in decision.items() if one}))
        self._now = max(self._now, body["at"])

    # ------------------------------------------------------------ the text

    def played(self) -> RunResult:
        """The result of the run when its scripts replay it, with no model, tool or network."""
        body = self._body()
        names: dict[str, Any] = {}
        exec(compile("\n".join([*self._imports(body), *body]), "<trail-to-test>", "exec"), names)  # noqa: S102 - literals in calls of the kit
        result: RunResult = names["result"]
        return result

    def _body(self) -> list[str]:
        return [*self._scripts(), *self._tools(), *self._agent(str(self.story.header["task"]))]

    def text(self, result: RunResult) -> str:
        """The whole file, which holds what `result` came to."""
        run_id, task = self.story.entries[0].run_id, str(self.story.header["task"])
        if result.answer is not None:
            self.kit.add("assert_answer")
        body = [*self._body(), *self._asserts(result)]
        name = _variable(run_id.partition("-")[0] if re.fullmatch(r"[0-9a-f]{8}-.*", run_id) else run_id)
        lines = [
            f'"""{_line(f"Run {run_id}, as it went: {task}")}',
            "",
            "Written by fsm-agent trail-to-test. It holds what the model said, and what tools and people gave, exactly as the trail has",
            "them: keep it only where the trail itself may be kept. What the model was sent is no part of it.",
            '"""',
            "",
            *self._imports(body),
            "",
            "",
            f"def test_run_{name}() -> None:",
            f'    """{_line(f"The run takes the path that it took: {task}")}"""',
            *(f"    {line}" for line in body),
        ]
        return "\n".join(lines) + "\n"

    def _imports(self, body: Sequence[str]) -> Iterator[str]:
        said = "\n".join(body)
        top = ["Agent", *sorted(self.public), "Limits"]
        yield f"from fsm_agent import {', '.join(sorted(top))}"
        for package, module in (("dialects", dialects), ("memory", memory)):
            used = [name for name in module.__all__ if re.search(rf"\b{name}\(", said)]
            if used:
                yield f"from fsm_agent.{package} import {', '.join(sorted(used))}"
        yield "from fsm_agent.observe import silent_logger"
        if self.setup.get("policy"):
            yield "from fsm_agent.policy import ToolPolicy"
        kit = self.kit | ({"ScriptedTool"} if self.tools else set())
        yield "from fsm_agent.testing import (\n" + "".join(f"    {name},\n" for name in sorted(kit)) + ")"

    def _scripts(self) -> Iterator[str]:
        yield "clock = FakeClock()"
        yield from _listed("model = ScriptedModel(", self.model, ", clock=clock)")
        if self.decisions:
            yield from _listed("decisions = iter(", self.decisions, ")")

    def _tools(self) -> Iterator[str]:
        """The tools, those that only stand in for others first."""
        for one in sorted(self.tools.values(), key=lambda one: not one.kept["hidden"]):
            kept = one.kept
            given: dict[str, Any] = {
                name: kept[name] for name, usual in _OPTIONS.items() if kept.get(name, usual) != usual
            }
            given |= {"not_for": kept["not_for"]} if kept["not_for"] else {}
            if kept["volatile"]:
                given["volatile"] = Code(f"frozenset({kept['volatile']!r})")
            if kept["ignore_extra"]:
                extra = kept["ignore_extra"]
                given["ignore_extra"] = True if extra is True else Code(f"frozenset({extra!r})")
            if kept["requires_approval"] is True:
                given["requires_approval"] = True
            elif kept["requires_approval"]:
                given["requires_approval"] = Code(f"lambda given: given in {literal(one.asked)}")
            if kept["fallback"]:
                behind = self.tools[kept["fallback"]]
                given["fallback"] = Code(behind.variable) if behind.kept["hidden"] else kept["fallback"]
            rest = "".join(f", {name}={literal(value)}" for name, value in given.items())
            yield from _listed(f"{one.variable} = ScriptedTool({kept['name']!r}, ", one.entries, ",")
            yield f"    args={literal(parameters_of(kept))},"
            yield f"    description={literal(kept['description'])}, clock=clock{rest},"
            yield ")"

    def _agent(self, task: str) -> Iterator[str]:
        shown = ", ".join(one.variable for one in self.tools.values() if not one.kept["hidden"])
        usual = Limits()
        limits = {name: value for name, value in self.limits if value != getattr(usual, name)}
        limits |= {"max_parallel": 1} if self.one_by_one else {}
        yield "agent = Agent("
        yield f"    model, tools=[{shown}],"
        yield f"    limits={call_of('Limits', **limits)},"
        yield f"    dialect={_made(self.setup['dialect'], dialects)}, memory={_made(self.setup['memory'], memory)},"
        if self.setup["system"] is not None:
            yield f"    system={literal(self.setup['system'])},"
        if tuple(self.setup["ladder"]) != LADDER:
            yield f"    ladder={literal(list(self.setup['ladder']))},"
        if self.setup.get("simpler") or self.setup.get("withhold"):
            simpler, withhold = list(self.setup["simpler"]), bool(self.setup["withhold"])
            yield f"    simpler={literal(simpler)}, withhold={withhold},"
        for name, package in (("temperature", temperature), ("reflect", reflection)):
            if (kept := self.setup.get(name)) is not None:
                yield f"    {name}={self._of(kept, package)},"
        if self.setup.get("policy"):
            yield f"    policy=ToolPolicy.of({literal(self.setup['policy'])}),"
        if self.decisions:
            yield "    approve=lambda call: next(decisions),"
        yield f"    language={self.language!r}, clock=clock, logger=silent_logger(),"
        yield ")"
        yield f"result = agent.invoke({literal(task)})"

    def _of(self, kept: Any, package: Any) -> Code:
        """The code of a part of the agent that is a number, or a value whose class `fsm_agent` has too."""
        if not isinstance(kept, Mapping):
            return literal(kept)
        made = _made(kept, package)
        self.public.add(str(kept["class"]))
        return made

    def _asserts(self, result: RunResult) -> Iterator[str]:
        steps = [literal(f"{one.source} --{one.event}--> {one.target}") for one in result.transitions]
        yield from _listed("assert_transitions(result, ", steps, ")")
        yield f"assert_reason(result, {str(result.reason)!r})"
        if result.answer is not None:
            yield f"assert_answer(result, {literal(result.answer)})"
        yield "model.assert_exhausted()"
        for one in self.tools.values():
            yield f"{one.variable}.assert_used_up()"


def _listed(before: str, items: Sequence[Code], after: str) -> Iterator[str]:
    """A list with one item a line."""
    if not items:
        yield f"{before}[]{after}"
        return
    yield f"{before}["
    yield from (f"    {item}," for item in items)
    yield f"]{after}"


def _made(data: Mapping[str, Any], package: Any) -> Code:
    """The code that makes a dialect or memory of this package again. Raises `RunError` for anybody else's."""
    name = data.get("class")
    if name not in package.__all__:
        raise RunError(
            f"this run cannot be made a test: {data.get('custom') or name} is not of this package, so the test could not make it"
        )
    usual = {one.name: one.default for one in dataclasses.fields(getattr(package, str(name)))}
    fields = {
        key: _made(value, package) if isinstance(value, Mapping) else value
        for key, value in data["fields"].items()
        if key not in usual or usual[key] != value
    }
    return call_of(str(name), **fields)


def _variable(name: str) -> str:
    """`name` with what cannot stand in a Python name taken out, to stand behind a prefix."""
    return re.sub(r"\W", "_", name)


def _line(text: str) -> str:
    """One line of a docstring: short, and nothing in it ends the string."""
    plain = "".join(one if one.isprintable() else " " for one in text).replace("\\", "/").replace('"', "'")
    plain = " ".join(plain.split())
    return plain if len(plain) <= 100 else f"{plain[:99]}…"  # noqa: PLR2004 - a line
