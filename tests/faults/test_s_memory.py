"""Family S: what the model remembers, what that costs, and that no run remembers another's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Full, Status, Window
from fsm_agent.errors import RunBusy
from fsm_agent.history import estimate_text, estimate_tokens
from fsm_agent.testing import ScriptedModel, call, fault, server
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
            from fsm_agent.testing import reply

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


# ---------------------------------------------------------------- S04 what is never forgotten


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
    shared = make(ScriptedModel(["e"]), store=first._store)
    result = run(shared, "gamma", config=config)
    assert result.answer == "e"
