"""Family S: what the model remembers, what that costs, and that no run remembers another's."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import (
    DualBuffer,
    Event,
    Full,
    KeyFacts,
    MessageWindow,
    State,
    Status,
    StopReason,
    SummaryWindow,
    Token,
    Window,
)
from fsm_agent.errors import RunBusy
from fsm_agent.history import estimate_text, estimate_tokens
from fsm_agent.language import EN
from fsm_agent.overflow import read_overflow
from fsm_agent.testing import ScriptedModel, call, fault, forever, reply, server
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from tests.faults.kit import (
    WAYS,
    Ledger,
    Seen,
    assert_sendable,
    client,
    consistent,
    in_thread,
    make,
    run,
)


def add(a: int, b: int) -> str:
    """Add."""
    return f"sum {a + b}"


# ---------------------------------------------------------------- S01 the estimate


FAMILY = "👨‍👩‍👧‍👦"


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("汉" * 400, 400),
        ("０１２３４５６７８９" * 10, 100),
        (FAMILY * 40, 160),
        ("カタカナ" * 100, 400),
        ("한국어" * 100, 300),
        ("😀" * 40, 40),
        (json.dumps("汉" * 100), 100),
        ("абв" * 100, 100),
    ],
    ids=["chinese", "full-width", "families", "katakana", "korean", "emoji", "escaped-json", "cyrillic"],
)
def test_s01_wide_text_is_not_undercounted(text: str, least: int) -> None:
    """A wide character is about a token, not a quarter; the estimate errs on the dear side, within its bytes."""
    assert least <= estimate_text(text) <= len(text.encode())


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 400, 4001])
def test_s01_ascii_is_four_characters_a_token(size: int) -> None:
    """Plain English costs what the usual rule says."""
    assert estimate_text("x" * size) == (size + 3) // 4


def test_s01_mixed_text_costs_at_least_its_parts() -> None:
    """Chinese inside English costs its own tokens, in messages and in the arguments of calls."""
    assert estimate_text("a" * 400 + "汉" * 100) >= 200
    said = AIMessage("", tool_calls=[{"name": "save", "args": {"text": "汉" * 100}, "id": "c"}])
    assert estimate_tokens([said]) >= 100
    assert estimate_tokens([HumanMessage("汉" * 100)]) >= 100


@pytest.mark.parametrize("way", WAYS)
def test_s01_a_chinese_task_meets_its_budget(way: str) -> None:
    """Without usage from the server, 400 Chinese characters do not slip under a budget of 300."""
    with ScriptedModel([], usage=None) as model:
        result = run(make(model, limits={"token_budget": 300}), "汉" * 400, way)
    assert (result.status, model.count, result.usage.total) == (Status.FAILED, 0, 0)


def test_s01_the_servers_own_count_corrects_the_estimate() -> None:
    """A server that counts twice what was estimated makes the next estimate twice as large, within bounds."""

    def next_prompts(factor: int) -> list[int]:
        def counts(request: Any) -> Any:
            prompt = factor * 100
            return reply("", call("add", a=request.number, b=1), usage=(prompt, 1)) if request.number < 4 else "ok"

        result = run(make(ScriptedModel(counts), [add], memory=Window(1)), "go")
        return [
            guard.values["next_prompt"]
            for record in result.transitions
            for guard in record.guards
            if guard.guard == "token_budget_spent"
        ]

    low, high, absurd = next_prompts(1), next_prompts(2), next_prompts(1000)
    assert all(1.5 < two / one < 2.5 for one, two in zip(low, high, strict=True))
    assert max(absurd) < 10 * max(low)


def test_s01_a_context_overflow_is_surfaced_with_the_servers_words() -> None:
    """A provider that says the prompt is too long is not asked the same again; the person reads the numbers."""
    with server([fault.context_length_exceeded(limit=8192, requested=9000)]) as s:
        result = run(make(client(s)), "hi")
    assert (result.status, s.count) == (Status.FAILED, 1)
    assert "8192" in result.detail


class SmallContext:
    """A server with room for so many characters in a request, that says so in the words of one of the servers there are."""

    def __init__(self, limit: int, says: Callable[[int, int], Any], *, rounds: int = 8, size: int = 600) -> None:
        self.limit, self.says, self.rounds, self.size = limit, says, rounds, size
        self.refused: list[int] = []
        self.taken: list[int] = []

    def __call__(self, request: Any) -> Any:
        """Refuse what is too long; else ask for the next long result, and at last answer."""
        length = len(request.text)
        if length > self.limit:
            self.refused.append(length)
            return self.says(self.limit // 4, length // 4)
        self.taken.append(length)
        number = len(self.taken)
        return call("read", part=number) if number <= self.rounds else "done"

    def tool(self) -> Any:
        """A tool with results of this size."""

        def read(part: int) -> str:
            """Read a part."""
            return f"part {part} " + "x" * self.size

        return read


def llama(limit: int, sent: int) -> Any:
    """What llama.cpp says."""
    error = {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": sent,
        "n_ctx": limit,
    }
    return fault.raw(json.dumps({"error": error}).encode(), status=400)


def vague(limit: int, sent: int) -> Any:
    """A server that gives no numbers."""
    return fault.http_error(400, "Prompt is too long", kind="invalid_request_error")


def gemini(limit: int, sent: int) -> Any:
    """A server whose errors are in a list, which the client finds no words in."""
    said = f"The input token count ({sent}) exceeds the maximum number of tokens allowed ({limit})."
    return fault.raw(json.dumps([{"error": {"code": 400, "message": said}}]).encode(), status=400)


def late(limit: int, sent: int) -> Any:
    """A server that has begun its reply with status 200 when it sees that there is no room; streamed, as an event."""
    error = {"code": 400, "message": "the request exceeds the available context size", "type": "invalid_request_error"}
    sending = fault.error_in_stream()
    assert sending.trouble is not None
    return replace(sending, trouble=replace(sending.trouble, error={"error": error}))


SERVERS = {"openai": fault.context_length_exceeded, "llama": llama, "vague": vague, "gemini": gemini, "late": late}


@pytest.mark.parametrize("dialect", ["native", "json_action"])
@pytest.mark.parametrize("says", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize("way", WAYS)
def test_s01_after_a_context_overflow_less_is_sent(way: str, says: Any, dialect: str) -> None:
    """The run is asked again with a smaller view instead of dying, and from then on stays small; each overflow is a record."""
    context = SmallContext(6_000, says, size=900)
    if dialect == "json_action":
        context = JsonContext(context)
    with server(context) as s:
        agent = make(client(s), [context.tool()], dialect=dialect, memory=Full(), limits={"max_steps": 20})
        result = run(agent, "Read it all.", way)
        assert s.count == result.model_calls == len(context.refused) + len(context.taken)
    assert (result.status, result.answer, result.steps) == (Status.COMPLETED, "done", 9)
    overflows = [record for record in result.transitions if record.event is Event.OVERFLOWED]
    assert len(overflows) == len(context.refused) in (1, 2, 3)
    assert all(record.target is State.PLAN and record.error for record in overflows)
    assert max(context.taken) <= 6_000
    assert "part 1 " in result.messages[2].text, "the history has all that happened"


class JsonContext(SmallContext):
    """The same, spoken to in JSON."""

    def __init__(self, like: SmallContext) -> None:
        super().__init__(like.limit, like.says, rounds=like.rounds, size=like.size)

    def __call__(self, request: Any) -> Any:
        """The call or the answer as an action."""
        number, said = len(self.taken) + 1, super().__call__(request)
        if isinstance(said, str):
            return json.dumps({"action": "FINISH", "action_input": {"answer": said}})
        if len(self.taken) < number:
            return said
        return json.dumps({"action": "read", "action_input": {"part": number}})


@pytest.mark.parametrize("dialect", ["json_action", "guided_json"])
def test_s01_a_long_task_is_sent_whole_only_once(dialect: str) -> None:
    """The text dialects repeat the task below the results: of one that fills half of the context, its beginning and end."""
    task = f"Read part 1 of this: {'word ' * 800}. Say what it says."
    action = {"action": "read", "action_input": {"part": 1}}
    asked = {"thought": "I look.", "solved": False, **action} if dialect == "guided_json" else action

    def read(part: int) -> str:
        """Read a part."""
        return f"part {part} " + "x" * 400

    model = ScriptedModel([json.dumps(asked), forever("Final Answer: x")])
    run(make(model, [read], dialect=dialect, memory=Window(1)), task)
    last = model.requests[1].text
    assert (last.count("word " * 800), last.count("Say what it says.")) == (1, 2)


def test_s01_a_result_that_alone_is_too_large_is_cut_and_the_model_told() -> None:
    """One result larger than the whole context: its beginning is sent, with a mark where it was cut."""
    context = SmallContext(2_000, fault.context_length_exceeded, rounds=1, size=7_000)
    with server(context) as s:
        result = run(make(client(s), [context.tool()]), "Read it.")
        last = s.requests[-1]
    assert (result.status, len(context.refused)) == (Status.COMPLETED, 1)
    assert "part 1 xxx" in last.text
    assert "[cut here: the rest does not fit]" in last.text


@pytest.mark.parametrize("way", WAYS)
def test_s01_a_server_that_always_overflows_is_not_asked_for_ever(way: str) -> None:
    """At most three times less is tried in a run; then the run ends with the server's words."""
    context = SmallContext(4_000, fault.context_length_exceeded, size=2_000)
    always = SmallContext(0, lambda *_: fault.context_length_exceeded(limit=8192, requested=9000))
    with server(lambda request: context(request) if len(context.taken) < 2 else always(request)) as s:
        result = run(make(client(s), [context.tool()]), "Read it.", way)
        assert s.count <= 2 + 3 + 1
    assert (result.status, result.reason) == (Status.FAILED, StopReason.MODEL_FAILED)
    assert "8192" in result.detail


@pytest.mark.parametrize(
    ("status", "code", "words", "expected"),
    [
        (
            400,
            "context_length_exceeded",
            "maximum context length is 8192 tokens. ... resulted in 9000 tokens",
            (8192, 9000),
        ),
        (400, None, "maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in", (4096, 5000)),
        (400, None, "request (5000 tokens) exceeds the available context size (4096 tokens), try", (4096, 5000)),
        (400, None, "{'type': 'exceed_context_size_error', 'n_prompt_tokens': 513, 'n_ctx': 512}", (512, 513)),
        (500, None, "the request exceeds the available context size. try increasing the context size", (None, None)),
        (400, None, "prompt is too long: 210000 tokens > 200000 maximum", (200000, 210000)),
        (
            400,
            None,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            (1048576, 1200000),
        ),
        (400, "context_length_exceeded", "no numbers", (None, None)),
        (400, None, "maximum context length is 9000 tokens, resulted in 8000 tokens", (9000, None)),
        (400, None, "Invalid value for 'messages'", None),
        (429, None, "maximum context length is 8192 tokens", None),
        (None, None, "Input is too long for requested model.", (None, None)),
        (None, None, "the connection was closed", None),
        (404, "model_not_found", "no such model", None),
    ],
)
def test_s01_an_overflow_is_read_from_what_servers_say(
    status: int | None, code: str | None, words: str, expected: tuple[int | None, int | None] | None
) -> None:
    """OpenAI, vLLM, llama.cpp old and new, Anthropic, Gemini and Bedrock (without a status); contradicting numbers are not believed."""
    assert read_overflow(status, code, words) == expected


# ---------------------------------------------------------------- S03 the real text is summarised


class Summarised:
    """A model that calls so many times and keeps notes when it is asked to; `notes` makes them from the request's text."""

    def __init__(self, rounds: int, notes: Callable[[int, str], Any], final: str = "done") -> None:
        self.rounds, self.notes, self.final = rounds, notes, final
        self.summaries: list[Any] = []
        self.plans: list[Any] = []

    def __call__(self, request: Any) -> Any:
        """Notes for a request that asks for them; else a call, and at last the answer."""
        if request.messages[0].text == EN.summarise:
            self.summaries.append(request)
            return self.notes(len(self.summaries), request.text)
        self.plans.append(request)
        number = len(self.plans)
        return call("add", a=number, b=1) if number <= self.rounds else self.final


def compactions(result: Any) -> list[Any]:
    """The records of summaries, kept or failed."""
    return [one for one in result.transitions if one.event in (Event.COMPACTED, Event.SUMMARY_FAILED)]


@pytest.mark.parametrize("way", WAYS)
def test_s03_one_user_turn_and_thirty_pairs_are_summarised_with_their_text(way: str) -> None:
    """The summariser is given every result that leaves, once, and the summary before; the prompt stays flat."""
    model = Summarised(30, lambda number, _: f"Notes {number}.")
    with ScriptedModel(model) as scripted:
        agent = make(scripted, [add], memory=SummaryWindow(rounds=3, every=3), limits={"max_steps": 40})
        result = run(agent, "Add it all up.", way)
    assert (result.status, result.answer, result.steps) == (Status.COMPLETED, "done", 31)
    told = [sorted(int(n) for n in re.findall(r"sum (\d+)", request.text)) for request in model.summaries]
    assert [n for one in told for n in one] == list(range(2, 29)), "each result once, in order, until three are left"
    for number, request in enumerate(model.summaries[1:], start=1):
        assert f"Notes {number}." in request.text
    assert all(request.tools == () for request in model.summaries)
    assert_sendable([*model.summaries, *model.plans])
    assert max(len(request.messages) for request in model.plans) <= 2 + 2 * 5
    assert f"Notes {len(model.summaries)}." in model.plans[-1].text
    records = compactions(result)
    assert len(records) == len(model.summaries) == 9
    assert all((one.source, one.target, one.event) == (State.PLAN, State.PLAN, Event.COMPACTED) for one in records)
    assert result.model_calls == 31 + 9
    assert len([one for one in result.messages if one.type == "tool"]) == 30, "the history is whole"
    assert not any("Notes" in one.text for one in result.messages)


FAILING: dict[str, Any] = {
    "down": RuntimeError("secret-free outage"),
    "empty": "",
    "blank": "  ",
    "thinking": "<think>hm</think>",
    "cut": reply("Notes that are c", finish_reason="length"),
    "long": "word " * 3_000,
    "call": call("add", a=0, b=0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("said", FAILING.values(), ids=FAILING)
def test_s03_a_summary_that_fails_loses_nothing(said: Any, way: str) -> None:
    """The rounds stay in the prompt, the failure is a record with its reason, no tool runs, and the run goes on."""
    model = Summarised(8, lambda number, _: said)
    with ScriptedModel(model) as scripted:
        agent = make(scripted, [add], memory=SummaryWindow(rounds=2, every=2))
        result = run(agent, "Add it all up.", way)
    assert (result.status, result.answer, result.steps, result.tool_calls) == (Status.COMPLETED, "done", 9, 8)
    records = compactions(result)
    assert [one.event for one in records] == [Event.SUMMARY_FAILED] * 3
    assert all(one.error for one in records)
    assert all(one.failures == 0 for one in result.transitions), "it is no failure of the run's"
    assert [int(n) for n in re.findall(r"sum (\d+)", model.plans[-1].text)] == list(range(2, 10))
    assert_sendable(model.plans)


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_s03_notes_are_not_streamed_as_if_they_were_the_answer(way: str) -> None:
    """Pieces of a summary are for nobody: only what the model says to the user is handed out."""
    model = Summarised(4, lambda number, _: "Notes of the engine's own.", final="The answer.")
    with ScriptedModel(model) as scripted:
        agent = make(scripted, [add], memory=SummaryWindow(rounds=1, every=1))
        if way == "stream":
            items = list(agent.stream("Add."))
        else:
            items = asyncio.run(collected(agent, "Add."))
    assert "".join(item.text for item in items if isinstance(item, Token)) == "The answer."
    assert model.summaries


async def collected(agent: Any, task: str) -> list[Any]:
    """Everything that `astream` yields."""
    return [item async for item in agent.astream(task)]


def test_s03_no_summary_is_made_that_the_budget_has_no_room_for() -> None:
    """Close to the budget the rounds stay as they are; the summary never eats what the next step needs."""
    model = Summarised(6, lambda number, _: "Notes.")
    scripted = ScriptedModel(model, usage=(100, 10))
    agent = make(scripted, [add], memory=SummaryWindow(rounds=1, every=1), limits={"token_budget": 900})
    result = run(agent, "Add it all up. " * 20)
    assert result.usage.total <= 900
    assert 0 < len(model.summaries) < 5
    assert_sendable(model.plans)


def test_s03_a_long_conversation_is_summarised_before_it_is_sent() -> None:
    """Forty turns that the caller brings are summarised piece by piece; first and current task are sent as they are."""
    turns: list[Any] = []
    for number in range(40):
        turns += [HumanMessage(f"question {number}"), AIMessage(f"answer {number}: " + "word " * 200)]
    model = Summarised(0, lambda number, _: f"Notes {number}.")
    with ScriptedModel(model) as scripted:
        memory = SummaryWindow(rounds=2, every=2, chunk_tokens=2_000)
        result = run(make(scripted, memory=memory), [*turns, HumanMessage("and now?")])
    assert result.answer == "done"
    assert len(model.summaries) > 1
    assert all(estimate_text(request.text) < 4_000 for request in model.summaries)
    (prompt,) = model.plans
    assert [number for number in range(40) if f"answer {number}:" in prompt.text] == [38, 39]
    assert "question 0\n" in prompt.text
    assert prompt.text.endswith("and now?")
    assert_sendable([prompt])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("several", [False, True], ids=["one round of many results", "many rounds"])
def test_s03_a_summary_that_is_too_much_for_the_server_is_asked_for_in_less(several: bool, way: str) -> None:
    """Fewer rounds are summarised at once, or less of each result: else no summary would ever be made again."""
    earlier = [kind(f"turn {n} " + "word " * 60) for n in range(40) for kind in (HumanMessage, AIMessage)]
    asked: list[Any] = [] if several else [[call("read", part=part) for part in range(6)], [call("read", part=9)]]
    refused: list[int] = []
    summaries: list[str] = []

    def narrow(request: Any) -> Any:
        if len(request.text) > 8_000:
            refused.append(len(request.text))
            return fault.context_length_exceeded(2_000, len(request.text) // 4)
        if request.messages[0]["content"] == EN.summarise:
            summaries.append(request.text)
            return f"Notes {len(summaries)}."
        return asked.pop(0) if asked else "done"

    def read(part: int) -> str:
        """Read a part."""
        return f"part {part} " + "x" * 3_000

    with server(narrow) as s:
        agent = make(client(s), [read], memory=SummaryWindow(rounds=1, every=1))
        result = run(agent, [*(earlier if several else ()), HumanMessage("and now?")], way)
    assert (result.status, result.answer) == (Status.COMPLETED, "done")
    assert [one.event for one in compactions(result)] == [Event.COMPACTED] * len(summaries)
    assert len(refused) == 1, "the numbers of the server say how much less"
    told = {int(number) for text in summaries for number in re.findall(r"(?:turn|part) (\d+) ", text)}
    assert told >= set(range(39 if several else 6)), "nothing that leaves is left out"
    assert ("[...]" in "".join(summaries)) is not several, "no message is cut where fewer rounds will do"


def test_s03_a_thread_keeps_its_summary() -> None:
    """The next turn of a conversation begins with the summary of the one before, and summarises on from there."""
    model = Summarised(5, lambda number, _: f"Notes {number}.")
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    agent = make(ScriptedModel(model), [add], memory=SummaryWindow(rounds=1, every=1))
    run(agent, GOAL, config=config)
    before = len(model.summaries)
    run(agent, "And then?", config=config)
    assert f"Notes {len(model.summaries)}." in model.plans[-1].text
    assert all("sum 2" not in request.text for request in model.summaries[before:])
    assert "XYZZY-4711" in model.plans[-1].text
    assert_sendable(model.plans)


@pytest.mark.parametrize(
    "memory",
    [Full(), MessageWindow(6), DualBuffer(2, 1, max_tokens=60), SummaryWindow(1, 1), KeyFacts(SummaryWindow(2, 1))],
    ids=str,
)
def test_s03_a_run_with_any_memory_is_replayed_from_its_trail(memory: Any) -> None:
    """Summaries, failed ones and overflows are folded from their outcomes: an audit without the agent gives the same transitions."""

    def acts(request: Any) -> Any:
        too_long = request.number == 8 and request.messages[0].text != EN.summarise
        return TooLong("maximum context length is 4000 tokens") if too_long else model(request)

    class TooLong(RuntimeError):
        status_code = 400

    def add(a: int, b: int) -> str:
        """Add, at length."""
        return f"sum {a + b} " + "x" * 800

    model = Summarised(9, lambda number, _: "" if number % 3 == 0 else f"Notes {number}.")
    store = MemoryTrail()
    agent = make(ScriptedModel(acts), [add], memory=memory, store=store)
    result = run(agent, GOAL)
    assert (result.status, result.answer) == (Status.COMPLETED, "done")
    journal = agent._journal
    assert journal is not None
    assert audit(journal, result.run_id).findings == ()
    events = [record.event for record in result.transitions]
    assert {Event.OVERFLOWED} <= {*events} or {Event.COMPACTED, Event.SUMMARY_FAILED} <= {*events}


# ---------------------------------------------------------------- S04 what is never forgotten


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_s04_after_summaries_system_text_and_goal_are_verbatim(dialect: str) -> None:
    """Many compactions later the code word of the goal, which no summary repeats, is still in every prompt."""
    model = Summarised(20, lambda number, _: f"Notes {number}.")

    def acts(request: Any) -> Any:
        said = model(request)
        if dialect == "native" or request.messages[0].text == EN.summarise:
            return said
        if said == "done":
            return '{"action": "FINISH", "action_input": {"answer": "done"}}'
        return json.dumps({"action": "add", "action_input": {"a": len(model.plans), "b": 1}})

    memory = KeyFacts(SummaryWindow(rounds=2, every=2))
    agent = make(ScriptedModel(acts), [add], system=SYSTEM, memory=memory, dialect=dialect, limits={"max_steps": 40})
    result = run(agent, GOAL)
    assert (result.status, result.answer) == (Status.COMPLETED, "done")
    assert len(model.summaries) >= 8
    assert_sendable([*model.summaries, *model.plans])
    for request in model.plans:
        assert request.messages[0].text.startswith(SYSTEM)
        assert GOAL in request.messages[1].text
    assert [n for n in range(2, 22) if f"sum {n}" in model.plans[-1].text] == list(range(2, 22)), "key facts stay"


GOAL = "Find out what XYZZY-4711 costs, and add the sums."
SYSTEM = "You are the accountant. Code word: PLUGH."


@pytest.mark.parametrize("memory", [Window(1), Window(2), Window(5), Full()], ids=["1", "2", "5", "full"])
@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_s04_system_text_and_goal_are_in_every_prompt(memory: Any, dialect: str) -> None:
    """Thirty rounds later system text and goal are still there, verbatim, and the prompt has stopped growing."""

    def acts(request: Any) -> Any:
        number = request.number
        if number > 30:
            return "done" if dialect == "native" else '{"action": "FINISH", "action_input": {"answer": "done"}}'
        if dialect == "native":
            return call("add", a=number, b=1)
        return f'{{"action": "add", "action_input": {{"a": {number}, "b": 1}}}}'

    model = ScriptedModel(acts)
    result = run(make(model, [add], system=SYSTEM, memory=memory, dialect=dialect, limits={"max_steps": 40}), GOAL)
    assert (result.status, result.answer) == (Status.COMPLETED, "done")
    assert_sendable(model.requests)
    for request in model.requests:
        first, second = request.messages[:2]
        assert isinstance(first, SystemMessage)
        assert first.text.startswith(SYSTEM)
        assert second.text == GOAL
    sizes = [len(request.messages) for request in model.requests]
    if isinstance(memory, Window):
        assert max(sizes) == sizes[-1] == 2 + 2 * memory.rounds
    assert "sum 31" in model.requests[-1].text, "the newest result is always sent"


def test_s04_the_first_goal_of_a_conversation_stays_too() -> None:
    """In a long conversation the first task, the current task and the system text are in every prompt."""
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    model = ScriptedModel(lambda request: f"answer {request.number}")
    agent = make(model, system=SYSTEM, memory=Window(2))
    run(agent, GOAL, config=config)
    for number in range(20):
        run(agent, f"turn {number}", config=config)
    assert_sendable(model.requests)
    last = model.requests[-1]
    assert "XYZZY-4711" in last.text
    assert "turn 19" in last.text
    assert "answer 20" in last.text
    assert "turn 5\n" not in last.text
    assert len(last.messages) <= 8


def test_s04_what_left_the_window_is_still_in_the_result() -> None:
    """A window forgets for the model only: the run's own history is whole."""
    model = ScriptedModel(lambda request: call("add", a=request.number, b=1) if request.number <= 8 else "done")
    result = run(make(model, [add], memory=Window(1)), GOAL)
    assert [message.text for message in result.messages if message.type == "tool"] == [f"sum {n}" for n in range(2, 10)]


# ---------------------------------------------------------------- S07 one agent, many sessions


@pytest.mark.parametrize("size", [20, 50])
async def test_s07_concurrent_runs_know_only_their_own_words(size: int) -> None:
    """Many runs at once on one agent, each with its own secret word and thread: no prompt holds another's."""
    ledger, seen = Ledger(), Seen()

    async def tell(word: str) -> str:
        """Tell a word."""
        await asyncio.sleep(0)
        ledger.note(word=word)
        return f"told {word}"

    by_task: dict[str, Any] = {
        f"secret-{n:02}-": [
            call("tell", word=f"w{n:02}-"),
            [call("tell", word=f"x{n:02}-"), call("tell", word=f"y{n:02}-")],
            f"a{n:02}-",
        ]
        for n in range(size)
    }
    with ScriptedModel(by_task=by_task) as model:
        agent = make(model, [tell], observers=[seen])
        results = await asyncio.gather(
            *(agent.ainvoke(f"secret-{n:02}-", {"configurable": {"thread_id": f"t{n}"}}) for n in range(size))
        )
    assert [result.answer for result in results] == [f"a{n:02}-" for n in range(size)]
    assert len(model.requests) == 3 * size
    for request in model.requests:
        words = {
            number
            for number in range(size)
            for letter in ("secret-", "w", "x", "y")
            if f"{letter}{number:02}-" in request.text
        }
        assert len(words) == 1
    assert len(ledger) == 3 * size
    assert len({result.run_id for result in results}) == size
    assert all(consistent(seen.of(result.run_id)) for result in results)


def test_s07_concurrent_runs_in_threads_know_only_their_own_words() -> None:
    """The same in threads."""
    by_task: dict[str, Any] = {f"secret-{n:02}-": [call("add", a=n, b=0), f"a{n:02}-"] for n in range(20)}
    with ScriptedModel(by_task=by_task) as model:
        agent = make(model, [add])
        joins = [in_thread(lambda n=n: run(agent, f"secret-{n:02}-")) for n in range(20)]  # type: ignore[misc]  # a default binds it
        assert [join().answer for join in joins] == [f"a{n:02}-" for n in range(20)]
    for request in model.requests:
        assert sum(f"secret-{n:02}-" in request.text for n in range(20)) == 1


async def test_s07_a_thread_in_use_is_refused_by_name() -> None:
    """A second run on the same thread at the same time is a named error before any model call; afterwards it works."""
    started, go = asyncio.Event(), asyncio.Event()

    async def waits(_: Any) -> str:
        started.set()
        await go.wait()
        return "first"

    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([waits, "second"]) as model:
        agent = make(model)
        task = asyncio.ensure_future(agent.ainvoke("one", config))
        await started.wait()
        with pytest.raises(RunBusy, match="'t'"):
            await agent.ainvoke("two", config)
        with pytest.raises(RunBusy):
            agent.invoke("two", config)
        assert model.count == 1
        go.set()
        assert (await task).answer == "first"
        assert (await agent.ainvoke("two", config)).answer == "second"
    assert "one" in model.requests[1].text
    assert "first" in model.requests[1].text


def test_s07_threads_and_no_thread_are_kept_apart() -> None:
    """Threads with different ids, and runs without one, never see each other."""
    model = ScriptedModel(lambda _: "ok")
    agent = make(model)
    for thread in ("a", "b", None, 1, "1"):
        config: Any = {} if thread is None else {"configurable": {"thread_id": thread}}
        run(agent, f"word of {thread!r}", config=config)
    texts = [request.text for request in model.requests]
    assert [text.count("word of") for text in texts] == [1, 1, 1, 1, 2], (
        "1 and '1' are the same id, as LangChain's are text"
    )


def test_s07_two_agents_with_their_own_stores_share_no_thread() -> None:
    """The same thread id in two agents is two conversations, unless they share a store."""
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    one, other = ScriptedModel(["a", "b"]), ScriptedModel(["c", "d"])
    first, second = make(one), make(other)
    run(first, "alpha", config=config)
    run(second, "beta", config=config)
    assert "alpha" not in other.requests[0].text
    shared = make(ScriptedModel(["e"]), store=first.conversations)
    result = run(shared, "gamma", config=config)
    assert result.answer == "e"
