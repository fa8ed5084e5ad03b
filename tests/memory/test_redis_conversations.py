"""Conversations in a real Redis: the newest messages and no torn ones, one step a turn, claims, time to live, lost connections."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Full, RedisConversations
from fsm_agent.errors import ConversationDamaged, ConversationError, DefinitionError, RunBusy
from fsm_agent.history import Block, block, flatten
from fsm_agent.memory import claims
from fsm_agent.memory.redis_store import newest
from fsm_agent.testing import ScriptedModel, call
from tests.core.validity import wrong_history
from tests.faults.kit import assert_sendable, in_thread, make, run
from tests.memory.kit import keep, kept, said, worked
from tests.memory.redis_server import RedisServer

KEY = "agent:memory:t"
CLAIM = "{agent:memory:t}:claim"


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RedisConversations]:
    """A store as it is by default."""
    with RedisConversations(redis_server.url) as opened:
        yield opened


def size(blocks: tuple[Block, ...]) -> int:
    """How many messages they hold."""
    return len(flatten(blocks))


def turns(count: int) -> tuple[Block, ...]:
    """Turns of two messages each."""
    return tuple(one for number in range(count) for one in said(number))


# ---------------------------------------------------------------- what is kept


def test_the_newest_twelve_messages_are_kept_in_order(store: RedisConversations, redis_server: RedisServer) -> None:
    """The list of a session is `agent:memory:<session>`; of twenty messages the newest twelve are there, equal ones too."""
    history: tuple[Block, ...] = ()
    for number in range(10):
        history = (*history, *said(number, "the same" if number % 2 else ""))
        keep(store, history)
    assert kept(store) == history[-12:]
    assert redis_server.client.llen(KEY) == 12
    assert redis_server.client.keys("*") == [KEY.encode()]


def test_a_prefix_and_a_size_of_ones_own(redis_server: RedisServer) -> None:
    """Two applications share a server without meeting."""
    with RedisConversations(redis_server.url, key_prefix="shop:", keep_messages=2) as shop:
        keep(shop, turns(3))
        with RedisConversations(redis_server.url) as other:
            assert kept(other) == ()
        assert kept(shop) == said(2)
    assert redis_server.client.exists("shop:t") == 1


@pytest.mark.parametrize(("messages", "left"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (100, 3)])
def test_exactly_as_many_as_fit(messages: int, left: int) -> None:
    """S06: not one too many, not one too few: whole turns of two, at least the answer with its question."""
    assert newest(turns(3), messages) == turns(3)[-2 * left :]


def test_a_long_turn_keeps_its_task_and_its_newest_rounds() -> None:
    """Of a turn larger than what is kept its task stays in front, so that what follows is an answer to something."""
    long = (*said(0), *worked(1, rounds=20))
    assert newest(long, 12) == (long[2], *long[-6:])
    assert size(newest(long, 12)) == 12
    assert newest(long, 11) == (long[2], *long[-5:])


def test_a_round_that_is_larger_than_the_window_stays_whole() -> None:
    """A call is never parted from its results, whatever the size."""
    large = worked(0, calls=20)[:2]
    assert newest((*said(0), *large), 12) == large


histories = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=8).map(
    lambda shapes: tuple(one for number, (rounds, calls) in enumerate(shapes) for one in worked(number, rounds, calls))
)


@given(histories, st.integers(1, 30))
def test_what_is_kept_is_valid_new_and_as_much_as_fits(history: tuple[Block, ...], messages: int) -> None:
    """Whole blocks in order, the last one among them, a conversation that strict providers take, and no block more would fit."""
    chosen = newest(history, messages)
    assert wrong_history(flatten(chosen)) == [] or not history
    assert [one for one in history if one in chosen] == list(chosen)
    assert chosen[-1:] == history[-1:]
    assert newest(chosen, messages) == chosen
    start = len(history) - len(chosen) + (len(chosen) > 1 and chosen[0] not in history[-len(chosen) :])
    assert size(chosen) <= messages or start >= len(history) - 2
    if start > 0:
        task = [one for one in history if one.kind == "task" and one.turn == history[start - 1].turn]
        more = history[start - 1 :] if history[start - 1].kind == "task" else (*task, *history[start - 1 :])
        assert size(more) > messages


def test_a_reader_never_sees_half_a_turn(store: RedisConversations, redis_server: RedisServer) -> None:
    """S06: trim and append are one step: whoever looks at any moment sees a valid conversation of twelve messages at most."""
    done, seen = threading.Event(), set()

    def look() -> None:
        client = redis.Redis(port=redis_server.port)
        while not done.is_set():
            bodies = [json.loads(text) for text in client.lrange(KEY, 0, -1)]
            assert sum(len(body["messages"]) for body in bodies) <= 12
            assert not bodies or (bodies[0]["kind"], bodies[-1]["kind"]) == ("task", "answer")
            seen.add(bodies[-1]["turn"] if bodies else -1)
        client.close()

    join = in_thread(look)
    try:
        for number in range(1, 61):
            keep(store, turns(number) if number % 3 else (*turns(number - 1), *worked(number - 1, rounds=9)))
    finally:
        done.set()
        join()
    assert len(seen) > 1


# ---------------------------------------------------------------- time to live


def test_every_turn_begins_the_time_to_live_anew(redis_server: RedisServer) -> None:
    """A conversation is forgotten so long after its last turn; a failed turn does not count, None is for ever."""
    client = redis_server.client
    with RedisConversations(redis_server.url, ttl=100) as store, RedisConversations(redis_server.url) as lasting:
        keep(store, turns(1))
        assert 90_000 < client.pttl(KEY) <= 100_000
        client.pexpire(KEY, 5_000)
        assert kept(store) == turns(1)
        assert client.pttl(KEY) <= 5_000
        keep(store, turns(2))
        assert client.pttl(KEY) > 90_000
        client.pexpire(KEY, 5_000)
        keep(store, turns(2))  # the same history again is a turn too
        assert client.pttl(KEY) > 90_000
        keep(lasting, turns(3))
        assert client.pttl(KEY) == -1


@pytest.mark.parametrize("keep_messages", [12, None])
def test_a_conversation_that_runs_out_within_a_run_leaves_no_orphan(
    redis_server: RedisServer, keep_messages: int | None
) -> None:
    """S08: the stored head expires while a run is under way; what the run gives back is whole all the same."""
    with RedisConversations(redis_server.url, ttl=60, keep_messages=keep_messages) as store:

        def expire(a: int) -> str:
            """Let it run out."""
            redis_server.client.pexpire(KEY, 1)
            while redis_server.client.exists(KEY):
                pass
            return f"gone {a}"

        config: RunnableConfig = {"configurable": {"thread_id": "t"}}
        with ScriptedModel(["one", call("expire", a=1), "two", "three"]) as model:
            agent = make(model, [expire], store=store, memory=Full())
            for task in ("first", "second", "third"):
                run(agent, task, config=config)
        assert_sendable(model.requests)
        assert wrong_history(flatten(kept(store))) == []
        assert [one.messages[0].text for one in kept(store) if one.kind == "task"] == ["first", "second", "third"]


# ---------------------------------------------------------------- connections


@pytest.mark.parametrize("keep_messages", [12, None])
def test_a_dropped_connection_is_opened_again(redis_server: RedisServer, keep_messages: int | None) -> None:
    """The server closes every connection, between turns and within one: nothing is lost and nothing is written twice."""
    with RedisConversations(redis_server.url, keep_messages=keep_messages) as store:
        for number in range(3):
            store.open("t", "run")
            redis_server.client.client_kill_filter(_type="normal", skipme=True)
            store.close("t", "run", turns(number + 1))
            redis_server.client.client_kill_filter(_type="normal", skipme=True)
        assert kept(store) == turns(3)


@pytest.mark.parametrize("keep_messages", [12, None])
def test_a_write_whose_reply_was_lost_is_sent_again_without_harm(
    redis_server: RedisServer, keep_messages: int | None
) -> None:
    """The client cannot know that the server had done it, and asks once more: the turn is there once."""
    with RedisConversations(redis_server.url, keep_messages=keep_messages) as store:
        keep(store, turns(1))
        send, answers = store._script, []

        def twice(*arguments: Any, **options: Any) -> Any:
            answers.append(send(*arguments, **options))
            answers.append(send(*arguments, **options))
            return answers[-1]

        store._script = twice  # type: ignore[assignment]  # a connection that fails in just that moment cannot be made to order
        keep(store, turns(2))
        assert [answer[0] for answer in answers] == [b"written", b"written"]
        assert kept(store) == turns(2)


def test_a_claim_whose_reply_was_lost_is_ours(store: RedisConversations, redis_server: RedisServer) -> None:
    """The second attempt to take a thread finds the first one's claim, and takes it for its own."""
    set_, calls = store._client.set, []

    def lost(*arguments: Any, **options: Any) -> Any:
        calls.append(set_(*arguments, **options))
        return set_(*arguments, **options)

    store._client.set = lost  # type: ignore[method-assign]  # as above
    assert store.open("t", "run") == ()
    assert calls == [True]


def test_a_server_that_was_started_again_is_used_again(redis_server: RedisServer) -> None:
    """It has forgotten conversations, scripts and claims: a new conversation goes on, one that it lost is refused by name."""
    with RedisConversations(redis_server.url) as store:
        keep(store, turns(1), "old")
        store.open("old", "run-1")
        store.open("new", "run-2")
        redis_server.stop()
        with pytest.raises(ConversationError, match="see that the server runs"):
            store.open("t", "run-3")
        store.renew()  # raises nothing: it is tried again
        redis_server.start()
        with pytest.raises(RunBusy, match="run-1 lost thread 'old'"):
            store.close("old", "run-1", turns(2))
        store.close("new", "run-2", turns(1))
        assert kept(store, "new") == turns(1)
        assert kept(store, "old") == ()


def test_a_turn_that_cannot_be_given_back_frees_the_thread(redis_server: RedisServer) -> None:
    """The error is the first one, the store goes on, and the claim that is left in Redis stops nobody of this store."""
    with RedisConversations(redis_server.url) as store:
        keep(store, turns(1))
        store.open("t", "run")
        odd = block("task", HumanMessage("x", additional_kwargs={"k": object()}), turn=1)
        with pytest.raises(ConversationError, match="object"):
            store.close("t", "run", (*turns(1), odd))
        assert kept(store) == turns(1)
        store.open("t", "run")
        store._held.clear()  # as a close that could not reach the server leaves it
        assert kept(store) == turns(1)


# ---------------------------------------------------------------- claims


def test_a_claim_names_its_run_and_runs_out(store: RedisConversations, redis_server: RedisServer) -> None:
    """The claim lies beside the list, with a lease that `renew` begins anew, and is gone with the run."""
    store.open("t", "run-1")
    assert json.loads(redis_server.client.get(CLAIM))["run_id"] == "run-1"
    assert 50_000 < redis_server.client.pttl(CLAIM) <= 60_000
    redis_server.client.pexpire(CLAIM, 5_000)
    store.renew()
    assert redis_server.client.pttl(CLAIM) > 50_000
    store.close("t", "run-1", None)
    assert redis_server.client.exists(CLAIM) == 0


def test_only_ones_own_claim_is_given_back(redis_server: RedisServer) -> None:
    """A run that lost its thread frees nothing, renews nothing and writes nothing of what another has now."""
    with RedisConversations(redis_server.url) as one, RedisConversations(redis_server.url) as other:
        for history in (None, turns(1)):
            one.open("t", "slow")
            redis_server.client.delete(CLAIM)  # its lease ran out
            other.open("t", "quick")
            redis_server.client.pexpire(CLAIM, 5_000)
            one.renew()
            assert redis_server.client.pttl(CLAIM) <= 5_000
            if history is None:
                one.close("t", "slow", None)
            else:
                with pytest.raises(RunBusy, match=r"run slow lost thread 't'.*run quick has it now"):
                    one.close("t", "slow", history)
            with pytest.raises(RunBusy, match="run quick"):
                one.open("t", "next")
            other.close("t", "quick", None)
        assert kept(one) == ()


def test_a_late_turn_is_kept_when_nothing_has_changed(redis_server: RedisServer) -> None:
    """A lease that ran out costs the turn only when another one was kept meanwhile."""
    with RedisConversations(redis_server.url) as one, RedisConversations(redis_server.url) as other:
        keep(one, turns(1))
        one.open("t", "slow")
        redis_server.client.delete(CLAIM)
        assert kept(other) == turns(1)
        one.close("t", "slow", turns(2))
        assert kept(one) == turns(2)
        one.open("t", "slow")
        redis_server.client.delete(CLAIM)
        # The other's turn ends in the very same answer, and is another one all the same.
        quick, slow = ((*turns(2), said(2, words)[0], said(2)[1]) for words in ("quick", "slow"))
        keep(other, quick, run_id="quick")
        with pytest.raises(RunBusy, match="another run has had it since"):
            one.close("t", "slow", slow)
        assert kept(one) == quick


def test_the_claim_of_a_dead_process_is_taken_over(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of this machine that is no more blocks nobody; one of another machine is left to its lease."""
    with RedisConversations(redis_server.url) as store:
        for name, where, free in (("_born", "1", True), ("_host", "elsewhere/boot/pid", False)):
            with monkeypatch.context() as there:
                there.setattr(claims, name, lambda *_, where=where: where)
                with RedisConversations(redis_server.url) as other:
                    other.open("t", "far")
                    other._held.clear()
            if free:
                assert store.open("t", "near") == ()
                store.close("t", "near", None)
            else:
                with pytest.raises(RunBusy, match="on elsewhere"):
                    store.open("t", "near")


def test_a_claim_that_somebody_else_wrote_is_respected(store: RedisConversations, redis_server: RedisServer) -> None:
    """What is not readable as a claim still says that the thread is taken."""
    redis_server.client.set(CLAIM, b"\xff?")
    with pytest.raises(RunBusy, match="unknown"):
        store.open("t", "run")


# ---------------------------------------------------------------- what is wrong

PLAIN = b'{"kind": "task", "turn": 0, "tokens": 1, "messages": [{"type": "human", "data": {"content": "x"}}]}'


@pytest.mark.parametrize("element", [b"x", b"\xff\xfe", b"{}", PLAIN[:-1]], ids=["text", "bytes", "empty", "cut"])
@pytest.mark.parametrize("decode", [False, True])
def test_damage_is_named_and_never_taken_for_less(redis_server: RedisServer, element: bytes, decode: bool) -> None:
    """An element that was not written here stops the thread by name, and it is not left claimed."""
    client = redis.Redis(port=redis_server.port, decode_responses=decode)
    store = RedisConversations(client)
    redis_server.client.rpush(KEY, PLAIN, element)
    with pytest.raises(ConversationDamaged, match="'t'"):
        store.open("t", "run")
    assert redis_server.client.exists(CLAIM) == 0
    if not decode or element.isascii():
        store.delete("t")
        assert kept(store) == ()
    store.dispose()
    client.close()


def test_a_key_of_another_type_is_a_named_error(store: RedisConversations, redis_server: RedisServer) -> None:
    """A key that another program uses is not overwritten, and the thread is not left claimed."""
    redis_server.client.set(KEY, "mine")
    with pytest.raises(ConversationError, match="'agent:memory:t'"):
        store.open("t", "run")
    assert redis_server.client.get(KEY) == b"mine"
    assert redis_server.client.exists(CLAIM) == 0


def test_half_a_character_is_no_name(store: RedisConversations) -> None:
    """A thread id that UTF-8 cannot write is refused by name."""
    with pytest.raises(ConversationError, match="half a character"):
        store.open("\ud800", "run")


def test_no_server_is_a_named_error_after_bounded_attempts() -> None:
    """A server that hangs up is called again, a few times; the error says what to look at, and never the password."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        calls: list[str] = []

        def hang_up() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    if connection.recv(1) == b"!":
                        return
                    calls.append("called")

        join = in_thread(hang_up)
        port = server.getsockname()[1]
        with (
            RedisConversations(f"redis://:hunter2@127.0.0.1:{port}/0") as store,
            pytest.raises(ConversationError, match="see that the server runs") as caught,
        ):
            store.open("t", "run")
        with socket.create_connection(("127.0.0.1", port)) as last:
            last.sendall(b"!")
        join()
    assert 3 <= len(calls) <= 20
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep_messages": 0}, "keep_messages=0"),
        ({"keep_messages": True}, "keep_messages=True"),
        ({"keep_messages": "12"}, "keep_messages='12'"),
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": -1.5}, "ttl=-1.5"),
        ({"lease": 0}, "lease=0"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    """The definition is wrong, not the first run."""
    with pytest.raises(DefinitionError, match=words):
        RedisConversations("redis://localhost", **options)


def test_what_is_no_server_is_refused_at_once() -> None:
    """A URL of something else, and a client of another kind, are named."""
    with pytest.raises(DefinitionError, match="URL"):
        RedisConversations("http://localhost")
    with pytest.raises(DefinitionError, match=r"redis\.asyncio"):
        RedisConversations(redis.asyncio.Redis())  # type: ignore[arg-type]  # that is what is tested


def test_without_redis_py_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is an extra."""
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(DefinitionError, match=r"pip install 'fsm-agent\[redis\]'"):
        RedisConversations("redis://localhost")


@pytest.mark.parametrize("decode", [False, True])
def test_a_client_of_ones_own_is_used_and_left_open(redis_server: RedisServer, decode: bool) -> None:
    """With its own settings, whether it decodes or not; it is not ours to close."""
    client = redis.Redis(port=redis_server.port, decode_responses=decode)
    with RedisConversations(client) as store:
        history = (*turns(1), block("task", HumanMessage("汉 👀"), turn=1), block("answer", AIMessage("é"), turn=1))
        keep(store, history)
        assert kept(store) == history
        store.open("t", "run")
        with RedisConversations(client) as other, pytest.raises(RunBusy, match="run"):
            other.open("t", "else")
    assert client.ping()
    client.close()
