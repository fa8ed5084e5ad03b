"""Keys around whole runs: a run that is sealed and encrypted goes on where its keys are, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from fsm_agent import Agent, Approve, RunResult, Status, tool
from fsm_agent.errors import TrailDamaged, TrailError, UnknownRun
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import Ed25519Chain, FernetCipher, Stored, TrailStore, audit
from fsm_agent.trail.chain import broken
from fsm_agent.trail.reader import checked_entries
from tests.trail.conftest import Shelf

SIGN, ENCRYPT = (
    "FSM_AGENT_TRAIL_ED25519_KEY",
    "FSM_AGENT_TRAIL_ENCRYPTION_KEY",
)
SEED = bytes(range(32))
OLD, NEW = (base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2))
SECRETS = ("quarterly figures", "swordfish", "is on its way", "kept apart")


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send it."""
    # Longer than an entry may be, so that it is kept as a value.
    return f"sent to {to}, " + "kept apart " * 10_000


def agent_of(store: TrailStore, *script: Any) -> Agent:
    """An agent as one process after the other makes it: with the keys of its environment."""
    return Agent(ScriptedModel(script), tools=[send], store=store)


def suspended(store: TrailStore) -> tuple[str, list[Stored]]:
    """A run that waits for a person, and its entries."""
    result: RunResult = agent_of(store, call("send", to="swordfish")).invoke("Send the quarterly figures.")
    assert result.status is Status.SUSPENDED
    return result.run_id, list(store.read(result.run_id))


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys that a run begins with."""
    monkeypatch.setenv(SIGN, SEED.hex())
    monkeypatch.setenv(ENCRYPT, OLD)


def test_a_run_under_keys_goes_on_in_another_process_and_shows_nothing(shelf: Shelf) -> None:
    """Approved after a restart it ends; no word of it can be read in the store, and who has the public key can check it."""
    run_id, _ = suspended(shelf.store)
    store = shelf.store if shelf.kind == "memory" else shelf.reopen()
    result = agent_of(store, "It is on its way.").resume(run_id, decision=Approve())
    assert (result.status, result.answer) == (Status.COMPLETED, "It is on its way.")
    stored = list(store.read(run_id))
    digests = [found for one in stored for found in re.findall(r'"value":"([0-9a-f]{64})"', one.text)]
    kept = [*(one.text for one in stored), *(store.value(run_id, digest).decode() for digest in digests)]
    assert digests
    assert not [text for text in kept if any(secret in text for secret in SECRETS)]
    assert broken(Ed25519Chain(public=Ed25519Chain(private=SEED).public), stored) == ()


def test_a_new_encryption_key_in_front_reads_runs_of_the_old_one(
    trail_store: TrailStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotation in the middle of a run: it goes on, and what is written from then on is the new key's."""
    run_id, before = suspended(trail_store)
    monkeypatch.setenv(ENCRYPT, f"{NEW},{OLD}")
    result = agent_of(trail_store, "done").resume(run_id, decision=Approve())
    assert result.status is Status.COMPLETED
    monkeypatch.setenv(ENCRYPT, OLD)
    with pytest.raises(TrailError, match=ENCRYPT):
        agent_of(trail_store).resume(run_id)
    assert trail_store.read(run_id)[: len(before)] == tuple(before)


@pytest.mark.parametrize("key", [None, NEW], ids=["none", "another"])
def test_without_its_encryption_key_a_run_is_locked_and_left_alone(
    trail_store: TrailStore, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """No key, or another: the error names the variable, is neither damage nor an unknown run, and nothing is written."""
    run_id, before = suspended(trail_store)
    if key is None:
        monkeypatch.delenv(ENCRYPT)
    else:
        monkeypatch.setenv(ENCRYPT, key)
    with pytest.raises(TrailError, match=ENCRYPT) as caught:
        agent_of(trail_store, "done").resume(run_id, decision=Approve())
    assert not isinstance(caught.value, TrailDamaged | UnknownRun)
    assert list(trail_store.read(run_id)) == before
    monkeypatch.setenv(ENCRYPT, OLD)
    assert agent_of(trail_store, "done").resume(run_id, decision=Approve()).status is Status.COMPLETED


def test_an_audit_that_cannot_read_a_trail_with_its_keys_does_not_say_that_all_is_right(
    trail_store: TrailStore,
) -> None:
    """Whoever has no key may still check the seals, and is told so; what a key does not open may have been written by anybody."""
    run_id, _ = suspended(trail_store)
    journal = agent_of(trail_store).journal
    assert audit(journal, run_id).findings == ()
    without = audit(replace(journal, cipher=None), run_id)
    assert (without.ok, "the transitions were not checked" in " ".join(without.notes)) == (True, True)
    other = audit(replace(journal, cipher=FernetCipher([NEW])), run_id)
    (finding,) = other.findings
    assert "The seals hold, but what they cover could not be read" in finding.what


def test_with_another_seal_key_a_run_does_not_go_on(trail_store: TrailStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names both keys by their fingerprints, so that it is not taken for damage; nothing is written."""
    run_id, before = suspended(trail_store)
    monkeypatch.setenv(SIGN, bytes(32).hex())
    right, wrong = Ed25519Chain(private=SEED).name, Ed25519Chain(private=bytes(32)).name
    with pytest.raises(TrailError, match=f"{right}.*{wrong}"):
        agent_of(trail_store, "done").resume(run_id, decision=Approve())
    assert list(trail_store.read(run_id)) == before


def test_an_entry_that_was_changed_is_damage_and_not_a_wrong_key(trail_store: TrailStore) -> None:
    """With the right keys an edited token is found by its seal, at its entry, before anything is decrypted."""
    run_id, stored = suspended(trail_store)
    chain = Ed25519Chain(private=SEED)
    token = json.loads(stored[2].text)["body"]["sealed_body"]
    changed = stored[2].text.replace(token, token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:])
    with pytest.raises(TrailDamaged, match="was changed after it was sealed") as caught:
        checked_entries([*stored[:2], Stored(2, changed, stored[2].seal), *stored[3:]], run_id, chain)
    assert caught.value.seq == 2


def test_the_values_of_an_encrypted_run_are_named_by_what_is_stored(trail_store: TrailStore) -> None:
    """The digest in an entry is that of the encrypted bytes: it says nothing of the text, and needs no key to be checked."""
    run_id, _ = suspended(trail_store)
    agent_of(trail_store, "done").resume(run_id, decision=Approve())
    digests = [found for one in trail_store.read(run_id) for found in re.findall(r'"value":"([0-9a-f]{64})"', one.text)]
    assert digests
    for digest in digests:
        assert hashlib.sha256(trail_store.value(run_id, digest)).hexdigest() == digest
        assert trail_store.value(run_id, digest).startswith(b"gAAAA")
