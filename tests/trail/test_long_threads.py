"""The trails of a long conversation: each run has all of it to read, and the store keeps it once."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest

from fsm_agent import Agent, Approve, tool
from fsm_agent.errors import TrailDamaged
from fsm_agent.memory import InMemoryConversations
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import FernetCipher, HmacChain, JsonLinesTrail, MemoryTrail, TrailStore, audit, fork, replay
from fsm_agent.trail.chain import GENESIS, Sha256Chain
from fsm_agent.trail.entries import SCHEMA_VERSION, SHARED_SCHEMA, Stored, canonical_json
from fsm_agent.trail.store import Batch
from fsm_agent.trail.writer import PART_CHARS

LONG = "A long answer." + " It goes on." * 200
TURNS = 40


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def talked(store: TrailStore, *more: Any, turns: int = TURNS, **options: Any) -> Agent:
    """An agent after a conversation of so many turns; `more` is what its model says after them."""
    model = ScriptedModel([*(f"{turn}: {LONG}" for turn in range(turns)), *more])
    kept: dict[str, Any] = {
        "conversations": InMemoryConversations(),
        "logger": silent_logger(),
        "store": store,
    } | options
    agent = Agent(model, [send], **kept)
    for turn in range(turns):
        agent.invoke(f"Question {turn}", thread(f"r{turn}"))
    return agent


def thread(run_id: str) -> Any:
    """The config of a run of the conversation."""
    return {"configurable": {"run_id": run_id, "thread_id": "t"}}


def kept_header(agent: Agent, run_id: str) -> Any:
    """The body of a header as the store has it."""
    return json.loads(agent.journal.store.read(run_id)[0].text)["body"]


def referred(body: Mapping[str, Any]) -> list[str]:
    """The digests of the parts that a header refers to."""
    return [one["value"] for one in body["earlier"] if "value" in one]


def test_each_run_of_a_long_conversation_has_all_of_it(trail_store: TrailStore) -> None:
    """Whatever the store: entries are read whole, the audit finds nothing, and a run replays, forks and is resumed as any."""
    agent = talked(trail_store, call("send", to="Ana"), "Sent.", "Sent again.")
    waiting = agent.invoke("Write to Ana.", thread("last"))
    for turn in (0, 1, 20, TURNS - 1):
        earlier = agent.journal.entries(f"r{turn}")[0].body["earlier"]
        said = [one["messages"][0]["data"]["content"] for one in earlier if one["kind"] == "answer"]
        assert said == [f"{before}: {LONG}" for before in range(turn)]
        assert audit(agent.journal, f"r{turn}", agent.setup).ok
    fork(agent.journal, "last", at=2, new_run_id="again")
    agent.resume("again")
    for run_id in ("last", "again"):
        assert agent.resume(run_id, decision={waiting.requests[0].call_id: Approve()}).ok
        assert audit(agent.journal, run_id, agent.setup).ok
        assert replay(agent.journal.entries(run_id), agent.setup).folded.ended


def test_what_runs_share_is_kept_once() -> None:
    """A store that says that it shares values grows with the conversation, not with its square; headers refer to parts in order."""
    store = MemoryTrail()
    agent = talked(store, chain=HmacChain(b"sixteen bytes or more"))
    headers = [kept_header(agent, f"r{turn}") for turn in range(TURNS)]
    assert {one["schema"] for one in (headers[0], headers[-1])} == {SCHEMA_VERSION, SHARED_SCHEMA}
    parts = [referred(one) for one in headers]
    assert all(later[: len(before)] == before for before, later in pairwise(parts))
    assert set(parts[-1]) == set(store._values)
    spoken = TURNS * (len(LONG) + 1000)
    assert sum(map(len, store._values.values())) < spoken
    assert max(len(canonical_json(one)) for one in headers) < 3 * PART_CHARS


@pytest.mark.parametrize("kind", ["a file a run", "encrypted"])
def test_what_cannot_be_shared_is_kept_as_before(kind: str, tmp_path: Any) -> None:
    """A store with the values of each run apart gets a header as one value, and so does one that keeps only what is encrypted."""
    cipher = FernetCipher([base64.urlsafe_b64encode(bytes(32)).decode()])
    store: TrailStore = JsonLinesTrail(tmp_path) if kind == "a file a run" else MemoryTrail()
    agent = talked(store, cipher=cipher if kind == "encrypted" else None)
    body = kept_header(agent, f"r{TURNS - 1}")
    assert set(body) == {"schema", "chain", "value", "bytes"}
    assert body["schema"] == SCHEMA_VERSION
    assert len(agent.journal.entries(f"r{TURNS - 1}")[0].body["earlier"]) == 2 * (TURNS - 1)


# ---------------------------------------------------------------- parts that are not what was written


@functools.cache
def conversation() -> MemoryTrail:
    """The trails of a conversation, made once: nobody changes it."""
    store = MemoryTrail()
    talked(store)
    return store


def with_header(change: Any) -> Agent:
    """An agent whose store has a run `bad`, of the conversation, with its header changed and all seals right."""
    whole, store = conversation(), MemoryTrail()
    for name in ("_entries", "_infos", "_values"):
        setattr(store, name, dict(getattr(whole, name)))
    agent = Agent(ScriptedModel([]), [send], store=store, logger=silent_logger())
    chain, seal, entries = Sha256Chain(), GENESIS, []
    for one in store.read(f"r{TURNS - 1}"):
        data = json.loads(one.text) | {"run": "bad"}
        if one.seq == 0:
            change(data["body"], store)
        text = canonical_json(data)
        seal = chain.seal(seal, text)
        entries.append(Stored(one.seq, text, seal))
    store.append(
        Batch(run_id="bad", owner="me", lease=0.0, time=1.0, status="completed", entries=tuple(entries))
    ).result()
    return agent


def _put(store: MemoryTrail, text: str) -> dict[str, Any]:
    value = text.encode()
    digest = hashlib.sha256(value).hexdigest()
    store._values[digest] = value
    return {"value": digest, "bytes": len(value)}


def _gone(body: dict[str, Any], store: MemoryTrail) -> None:
    del store._values[body["earlier"][0]["value"]]


def _changed(body: dict[str, Any], store: MemoryTrail) -> None:
    store._values[body["earlier"][0]["value"]] += b" "


def _twice(body: dict[str, Any], store: MemoryTrail) -> None:
    body["earlier"].insert(0, body["earlier"][0])


def _holding(text: str) -> Any:
    def change(body: dict[str, Any], store: MemoryTrail) -> None:
        body["earlier"][0] = _put(store, text)

    return change


def _earlier(value: Any) -> Any:
    def change(body: dict[str, Any], store: MemoryTrail) -> None:
        body["earlier"] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_gone, "is gone, or is another"),
        (_changed, "is gone, or is another"),
        (_twice, "a part of its conversation twice"),
        (_holding("no JSON"), "not written as this package writes"),
        (_holding("{}"), "not written as this package writes"),
        (_holding("[ ]"), "not written as this package writes"),
        (_holding("[" * 100_000), "not written as this package writes"),
        (_earlier([{"value": "0" * 64, "bytes": 1}]), "is gone, or is another"),
    ],
    ids=["gone", "changed", "twice", "no JSON", "no list", "with a space", "nested", "never kept"],
)
def test_a_part_that_is_not_what_was_written_is_named(change: Any, says: str) -> None:
    """Who reads the run is told, the audit finds it, and other runs are read as before."""
    agent = with_header(change)
    with pytest.raises(TrailDamaged, match=says):
        agent.journal.entries("bad")
    assert [one.what for one in audit(agent.journal, "bad", agent.setup).findings if says in one.what]
    assert audit(agent.journal, "r1", agent.setup).ok


@pytest.mark.parametrize("earlier", [None, 3, {}, "x", [3], [None], [{"value": 3, "bytes": 1}], [[]]], ids=str)
def test_a_header_whose_conversation_is_none_is_a_finding(earlier: Any) -> None:
    """Any JSON may stand in its place: the audit says so, and raises nothing."""
    agent = with_header(_earlier(earlier))
    found = cast(Sequence[Any], audit(agent.journal, "bad", agent.setup).findings)
    assert found
