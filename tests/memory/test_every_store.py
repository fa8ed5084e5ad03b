"""The contract of a conversation store, held by every one of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Agent, DualBuffer, Full, KeyFacts, MessageWindow, Status, Window
from fsm_agent.errors import RunBusy
from fsm_agent.history import Block, block
from fsm_agent.memory import Conversations, InMemoryConversations
from fsm_agent.testing import ScriptedModel, call
from tests.faults.kit import WAYS, Ledger, assert_sendable, in_thread, make, run
from tests.memory.kit import Opener, Shelf, keep, kept, said, worked

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> str:
    """Add."""
    return f"sum {a + b}"


# ---------------------------------------------------------------- open and close


def test_what_a_run_gives_back_is_what_the_next_one_gets(shelf: Shelf) -> None:
    """Blocks come back equal and in order, turn after turn; another thread has nothing of them."""
    history: tuple[Block, ...] = ()
    for number in range(3):
        assert shelf.open("t", f"run-{number}") == history
        history = (*history, *(worked(number) if number == 1 else said(number)))
        shelf.close("t", f"run-{number}", history)
    assert kept(shelf) == history
    assert kept(shelf, "u") == ()


def test_none_leaves_what_is_stored(shelf: Shelf) -> None:
    """A turn that is not to be kept changes nothing."""
    keep(shelf, said(0))
    shelf.open("t", "failed")
    shelf.close("t", "failed", None)
    assert kept(shelf) == said(0)


def test_equal_messages_are_both_kept(shelf: Shelf) -> None:
    """The same words said twice, in the same instant, were said twice; the same history kept again is there once."""
    twice = (*said(0, "ok"), *said(1, "ok"))
    keep(shelf, said(0, "ok"))
    keep(shelf, twice)
    keep(shelf, twice)
    assert kept(shelf) == twice
    assert [message.text for one in kept(shelf) for message in one.messages] == ["ok"] * 4


def test_one_run_at_a_time_has_a_thread(shelf: Shelf) -> None:
    """A second run is refused by the name of the first, whose own second call is not; a stranger's close changes nothing."""
    shelf.open("t", "run-1")
    with pytest.raises(RunBusy, match=r"'t' is in use by run run-1"):
        shelf.open("t", "run-2")
    assert shelf.open("t", "run-1") == ()
    shelf.close("t", "run-2", said(9))
    with pytest.raises(RunBusy):
        shelf.open("t", "run-2")
    assert shelf.open("u", "run-2") == ()
    shelf.close("t", "run-1", said(0))
    shelf.close("t", "run-1", said(5))  # it has given the thread back already
    assert shelf.open("t", "run-2") == said(0)


def test_of_many_runs_at_once_one_gets_the_thread(shelf: Shelf) -> None:
    """The claim is atomic."""
    barrier, got = threading.Barrier(8), []

    def claim(number: int) -> None:
        barrier.wait()
        try:
            shelf.open("t", f"run-{number}")
        except RunBusy:
            return
        got.append(number)

    for join in [in_thread(lambda number=number: claim(number)) for number in range(8)]:  # type: ignore[misc]  # a default binds it
        join()
    assert len(got) == 1


def test_another_history_takes_the_place_of_the_stored_one(shelf: Shelf) -> None:
    """What does not go on from what is stored replaces it, from the first difference on; nothing at all removes it."""
    keep(shelf, (*said(0), *worked(1), *said(2)))
    keep(shelf, (*said(0), *said(1, "other")))
    assert kept(shelf) == (*said(0), *said(1, "other"))
    keep(shelf, said(0, "new"))
    assert kept(shelf) == said(0, "new")
    keep(shelf, ())
    assert kept(shelf) == ()


def test_a_conversation_can_be_deleted_when_no_run_has_it(shelf: Shelf) -> None:
    """Forgetting is one call; a run under way is not left without its thread."""
    keep(shelf, said(0))
    keep(shelf, said(0), "u")
    shelf.open("t", "run-1")
    with pytest.raises(RunBusy, match="run-1"):
        shelf.delete("t")
    shelf.close("t", "run-1", None)
    shelf.delete("t")
    shelf.delete("never there")
    assert kept(shelf) == ()
    assert kept(shelf, "u") == said(0)


NAMES = [
    "",
    "a:b",
    "a",
    "b",
    "{a}",
    "{a}:claim",
    "汉字 👨‍👩‍👧",
    'it\'s "quoted"; DROP TABLE',
    "line\nbreak",
    "x" * 3000,
    "T",
    "t ",
]


def test_any_text_names_a_thread_of_its_own(shelf: Shelf) -> None:
    """Ids with colons, braces, quotes, breaks, in any script and of any length are kept apart."""
    for number, name in enumerate(NAMES):
        assert shelf.open(name, f"run-{number}") == ()
    for number, name in enumerate(NAMES):
        shelf.close(name, f"run-{number}", said(0, f"words {number}"))
    assert [kept(shelf, name) for name in NAMES] == [said(0, f"words {number}") for number in range(len(NAMES))]


def test_every_kind_of_message_comes_back(shelf: Shelf) -> None:
    """All that a message may carry is kept: names, ids, usage, pictures, artifacts, nested arguments, any script."""
    picture: list[str | dict[Any, Any]] = [
        {"type": "text", "text": "看 👀"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    arguments = {"深": [{"é": [1, 2.5, None, True, {"x": "\x00\u2028"}]}], "": {}}
    asked = AIMessage(
        "I look.",
        id="m1",
        name="bob",
        tool_calls=[{"name": "f", "args": arguments, "id": "c1"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "x"},
        additional_kwargs={"reasoning_content": "hm"},
    )
    told = ToolMessage("no", tool_call_id="c1", status="error", artifact={"rows": [1]}, additional_kwargs={"k": 1})
    history = (
        block("task", HumanMessage(picture, name="ann", id="m0")),
        block("round", asked, told),
        block("note", HumanMessage("note"), SystemMessage("s"), ChatMessage(content="c", role="critic")),
        block("summary", FunctionMessage(content="f", name="f")),
        Block("answer", (AIMessage([{"type": "text", "text": "ok"}]),), tokens=7),
    )
    keep(shelf, history)
    assert kept(shelf) == history
    assert [type(message) for one in kept(shelf) for message in one.messages] == [
        type(message) for one in history for message in one.messages
    ]


# ---------------------------------------------------------------- stores whose object goes


def test_a_conversation_outlives_the_store_object(opener: Opener) -> None:
    """Another object on the same place goes on where the first one left off."""
    keep(opener.open(), said(0))
    second = opener.open()
    assert kept(second) == said(0)
    keep(second, (*said(0), *worked(1)))
    assert kept(opener.open()) == (*said(0), *worked(1))


@pytest.mark.parametrize("opener", ["sqlite", "redis"], indirect=True)
def test_two_objects_on_one_place_share_its_claims(opener: Opener) -> None:
    """A thread that a run has through one store is busy in the other, and free when it is given back."""
    one, other = opener.open(), opener.open()
    one.open("t", "run-1")
    with pytest.raises(RunBusy, match="run-1"):
        other.open("t", "run-2")
    with pytest.raises(RunBusy, match="run-1"):
        other.delete("t")
    one.close("t", "run-1", said(0))
    assert kept(other) == said(0)


@pytest.mark.parametrize("opener", ["sqlite", "redis"], indirect=True)
def test_a_run_that_goes_on_elsewhere_takes_its_thread_along(opener: Opener) -> None:
    """The same run, resumed by another object, has the thread; what the first one gives back too late changes nothing."""
    one, other = opener.open(), opener.open()
    one.open("t", "run-1")
    assert other.open("t", "run-1") == ()
    other.close("t", "run-1", said(0))
    with pytest.raises(RunBusy):
        one.close("t", "run-1", said(1))
    assert kept(opener.open()) == said(0)


@pytest.mark.parametrize("opener", ["sqlite", "redis"], indirect=True)
def test_a_thread_is_free_for_every_run_once_its_run_has_ended_elsewhere(opener: Opener) -> None:
    """Whoever uses the store of the process in which that run began, an agent of its own say, does not wait for it for ever."""
    here, elsewhere = opener.open(), opener.open()
    here.open("t", "run-1")
    with pytest.raises(RunBusy):
        here.open("t", "run-2")
    keep(elsewhere, said(0), run_id="run-1")
    assert here.open("t", "run-2") == said(0)
    with pytest.raises(RunBusy):
        elsewhere.open("t", "run-3")
    with pytest.raises(RunBusy):
        here.delete("t")
    here.close("t", "run-1", None)
    here.close("t", "run-2", (*said(0), *said(1)))
    here.open("t", "run-4")
    keep(elsewhere, said(2), run_id="run-4")
    here.delete("t")
    assert kept(elsewhere) == ()


# ---------------------------------------------------------------- agents


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_turn_never_poisons_the_next(shelf: Shelf, way: str) -> None:
    """A turn that failed before anything happened is forgotten; one whose tools ran is kept, without error texts."""
    script = [ValueError("no"), call("add", a=1, b=2), ValueError("no"), "fine", "and so on"]
    with ScriptedModel(script) as model:
        agent = make(model, [add], limits={"max_retries": 0}, store=shelf)
        for task in ("one", "two", "three", "four"):
            run(agent, task, way, CONFIG)
    sent = [(message.type, message.text) for message in model.requests[4].messages[1:]]
    before = [("human", "two"), ("ai", ""), ("tool", "sum 3"), ("human", "three")]
    assert sent == [*before, ("ai", "fine"), ("human", "four")]
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_turn_never_poisons_the_next(shelf: Shelf, way: str) -> None:
    """Of a run that was cancelled inside its tools every call is answered, and the thread goes on."""
    agents: list[Agent] = []

    def stop(a: int) -> str:
        """Stop."""
        if a == 1:
            agents[0].cancel("r")
        return f"stopped {a}"

    script = [[call("stop", a=1), call("stop", a=2)], "fine"]
    with ScriptedModel(script) as model:
        agents.append(make(model, [stop], store=shelf))
        first = run(agents[0], "one", way, {**CONFIG, "configurable": {"thread_id": "t", "run_id": "r"}})
        second = run(agents[0], "two", way, CONFIG)
    assert (first.status, second.answer) == (Status.CANCELLED, "fine")
    assert [message.type for message in model.requests[1].messages[1:]] == ["human", "ai", "tool", "tool", "human"]
    assert_sendable(model.requests)


STRATEGIES = [
    Full(),
    Window(1),
    Window(2),
    Window(5),
    MessageWindow(3),
    DualBuffer(2, 1, max_tokens=500),
    KeyFacts(Window(1)),
]


@pytest.mark.parametrize("memory", STRATEGIES, ids=repr)
def test_a_strategy_sees_the_same_on_every_store(opener: Opener, memory: Any) -> None:
    """S08: what each turn is sent is the same, message by message, as with the store in memory."""

    def sent(opened: Callable[[], Conversations]) -> list[list[tuple[str, str]]]:
        script = ["one", call("add", a=1, b=2), "two", [call("add", a=3, b=4), call("add", a=5, b=6)], "three", "four"]
        with ScriptedModel(script) as model:
            for task in ("first", "second", "second", "last"):
                # A new store each time, as after a restart.
                run(make(model, [add], memory=memory, store=opened()), task, config=CONFIG)
        assert_sendable(model.requests)
        return [[(message.type, message.text) for message in request.messages] for request in model.requests]

    in_memory = InMemoryConversations()
    assert sent(opener.open) == sent(lambda: in_memory)


async def test_concurrent_threads_never_mix(shelf: Shelf) -> None:
    """Twenty conversations of three turns at once on one agent and one store, each with its own secret word."""
    ledger = Ledger()

    async def tell(word: str) -> str:
        """Tell a word."""
        await asyncio.sleep(0)
        ledger.note(word=word)
        return f"told {word}"

    size = 20

    def acts(request: Any) -> Any:
        secret = [message.text for message in request.messages if message.type == "human"][-1]
        return f"a{secret}" if request.messages[-1].type == "tool" else call("tell", word=f"w{secret}")

    with ScriptedModel(acts) as model:
        agent = make(model, [tell], store=shelf, memory=Full())
        for turn in range(3):
            results = await asyncio.gather(
                *(agent.ainvoke(f"secret-{n:02}-{turn}", {"configurable": {"thread_id": f"t{n}"}}) for n in range(size))
            )
            assert [result.answer for result in results] == [f"asecret-{n:02}-{turn}" for n in range(size)]
    for request in model.requests:
        numbers = {n for n in range(size) if f"secret-{n:02}-" in request.text}
        assert len(numbers) == 1
    assert len(ledger) == 3 * size
    for n in range(size):
        tasks = [one.messages[0].text for one in kept(shelf, f"t{n}") if one.kind == "task"]
        assert tasks == [f"secret-{n:02}-{turn}" for turn in range(3)]


def test_concurrent_threads_of_the_system_never_mix(shelf: Shelf) -> None:
    """The same from twenty threads of the operating system, two turns each."""
    with ScriptedModel(lambda request: f"heard {request.messages[-1].text}") as model:
        agent = make(model, store=shelf)

        def talk(number: int) -> None:
            for turn in range(2):
                run(agent, f"secret-{number:02}-{turn}", config={"configurable": {"thread_id": f"t{number}"}})

        for join in [in_thread(lambda number=number: talk(number)) for number in range(20)]:  # type: ignore[misc]  # a default binds it
            join()
    for number in range(20):
        texts = [message.text for one in kept(shelf, f"t{number}") for message in one.messages]
        words = [f"secret-{number:02}-{turn}" for turn in range(2)]
        assert texts == [text for word in words for text in (word, f"heard {word}")]


@pytest.mark.parametrize("dialect", ["json_action", "react"])
def test_a_text_dialect_gets_its_own_words_back(opener: Opener, dialect: str) -> None:
    """Rounds that are written as text are still rounds when they come back, not turns of the user."""
    scripts = {
        "json_action": [
            '{"action": "add", "action_input": {"a": 1, "b": 2}}',
            '{"action": "FINISH", "action_input": {"answer": "3"}}',
        ],
        "react": ['Thought: add\nAction: add\nAction Input: {"a": 1, "b": 2}', "Thought: done\nFinal Answer: 3"],
    }
    with ScriptedModel(scripts[dialect] * 2) as model:
        for task in ("one", "two"):
            run(make(model, [add], dialect=dialect, store=opener.open()), task, config=CONFIG)
    history = kept(opener.open())
    assert [(one.kind, one.turn) for one in history] == [
        (kind, turn) for turn in range(2) for kind in ("task", "round", "answer")
    ]
    assert_sendable(model.requests)
