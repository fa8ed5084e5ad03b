"""Seals: what a chain shows of a trail that was changed, what it cannot show, and the keys that it takes."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import DefinitionError
from fsm_agent.trail.chain import (
    GENESIS,
    Chain,
    Ed25519Chain,
    HmacChain,
    Sha256Chain,
    broken,
    chain_from_env,
)
from fsm_agent.trail.entries import Stored

SEED = bytes(range(32))
KEYED: dict[str, Callable[[], Chain]] = {
    "hmac": lambda: HmacChain(b"sixteen bytes or more"),
    "ed25519": lambda: Ed25519Chain(private=SEED),
}
CHAINS: dict[str, Callable[[], Chain]] = {"sha256": Sha256Chain, **KEYED}
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=30), min_size=1, max_size=6)


@pytest.fixture(params=CHAINS)
def chain(request: pytest.FixtureRequest) -> Chain:
    """Each kind of chain."""
    return CHAINS[request.param]()


def sealed(chain: Chain, texts: Sequence[str]) -> list[Stored]:
    """A trail of these texts."""
    entries, before = [], GENESIS
    for seq, text in enumerate(texts):
        before = chain.seal(before, text)
        entries.append(Stored(seq, text, before))
    return entries


LINES = [f'{{"body":{{"n":{n}}},"kind":"started","run":"r","seq":{n},"time":{n}.5}}' for n in range(4)]


# ---------------------------------------------------------------- what is found, and where


@given(texts=TEXTS, kind=st.sampled_from(sorted(CHAINS)))
def test_a_trail_as_it_was_written_holds(texts: list[str], kind: str) -> None:
    """Any texts, sealed in order, hold."""
    assert broken(CHAINS[kind](), sealed(CHAINS[kind](), texts)) == ()


def test_any_single_byte_changed_is_found_where_it_was_changed(chain: Chain) -> None:
    """Each byte of each text and each seal, changed in each of its bits: the first broken entry is that one."""
    entries = sealed(chain, LINES)
    for position, entry in enumerate(entries):
        for field in ("text", "seal"):
            raw = getattr(entry, field).encode()
            for at in range(len(raw)):
                for bit in (0, 5):  # the second makes a capital letter of a small one
                    changed = bytes([*raw[:at], raw[at] ^ 1 << bit, *raw[at + 1 :]]).decode()
                    damaged = [*entries]
                    damaged[position] = (
                        replace(entry, text=changed) if field == "text" else replace(entry, seal=changed)
                    )
                    assert broken(chain, damaged)[0] == position, (field, at, bit)


@given(data=st.data(), texts=TEXTS, kind=st.sampled_from(sorted(CHAINS)))
def test_any_character_cut_out_or_put_in_is_found_where_it_was(
    data: st.DataObject, texts: list[str], kind: str
) -> None:
    """A text or a seal with one character more or less is broken at that entry, blanks and lone surrogates included."""
    chain = CHAINS[kind]()
    entries = sealed(chain, texts)
    position = data.draw(st.integers(0, len(texts) - 1))
    field = data.draw(st.sampled_from(["text", "seal"]))
    old = getattr(entries[position], field)
    at = data.draw(st.integers(0, len(old)))
    if at < len(old) and data.draw(st.booleans()):
        new = old[:at] + old[at + 1 :]
    else:
        new = old[:at] + data.draw(st.characters() | st.sampled_from(" \n\0\ud800")) + old[at:]
    old_entry = entries[position]
    entries[position] = replace(old_entry, text=new) if field == "text" else replace(old_entry, seal=new)
    assert broken(chain, entries)[0] == position


@given(data=st.data(), texts=st.lists(st.text(max_size=9), min_size=2, max_size=6, unique=True))
@pytest.mark.parametrize("kind", CHAINS)
def test_an_entry_taken_out_is_found_at_the_one_that_followed(kind: str, data: st.DataObject, texts: list[str]) -> None:
    """What follows a gap does not hold; only the newest can be missing unseen, which takes a seal kept elsewhere."""
    chain = CHAINS[kind]()
    entries = sealed(chain, texts)
    gone = data.draw(st.integers(0, len(texts) - 2))
    head = entries[-1].seal
    assert broken(chain, entries[:gone] + entries[gone + 1 :]) == (gone,)
    assert broken(chain, entries[:-1]) == ()
    assert entries[-2].seal != head


@given(data=st.data(), texts=st.lists(st.text(max_size=9), min_size=2, max_size=6, unique=True))
@pytest.mark.parametrize("kind", CHAINS)
def test_entries_in_another_order_are_found_at_the_first(kind: str, data: st.DataObject, texts: list[str]) -> None:
    """Any reordering is broken at the first entry that is not in its place."""
    chain = CHAINS[kind]()
    entries = sealed(chain, texts)
    moved = data.draw(st.permutations(entries).filter(lambda order: order != entries))
    first = next(at for at, (one, other) in enumerate(zip(entries, moved, strict=True)) if one != other)
    assert broken(chain, moved)[0] == first


def test_an_entry_put_in_or_appended_without_its_seal_is_found(chain: Chain) -> None:
    """A copy of an entry, an entry of another trail, or one with a made-up seal does not hold, at the end either."""
    entries = sealed(chain, LINES)
    other = sealed(chain, ["another", *LINES[1:]])
    for put_in in (entries[-1], entries[0], other[1], Stored(4, "x", "0" * len(entries[0].seal)), Stored(4, "x", "")):
        assert broken(chain, [*entries, put_in]) == (4,)
        assert broken(chain, [entries[0], put_in, *entries[1:]])[0] == 1


def test_the_end_of_a_seal_and_the_beginning_of_a_text_cannot_be_moved(chain: Chain) -> None:
    """What is hashed says where the seal before ends, line breaks in a damaged one included."""
    assert chain.seal("ab", "\nc") != chain.seal("ab\n", "c")
    assert chain.seal("", "ab\nc") != chain.seal("ab", "c")
    assert not chain.holds("a\n", "b", chain.seal("a", "\nb"))


def test_a_seal_has_one_spelling(chain: Chain) -> None:
    """Capital letters, blanks and what is no hexadecimal number at all are no seal, and no error."""
    seal = chain.seal(GENESIS, "x")
    assert seal == seal.lower()
    for other in (
        seal.upper(),
        f" {seal}",
        f"{seal}\n",
        seal[:2] + " " + seal[2:],
        "",
        "\ud800",
        "é" * len(seal),
        "\0",
    ):
        assert not chain.holds(GENESIS, "x", other)


def test_a_text_that_no_encoding_holds_is_sealed_all_the_same(chain: Chain) -> None:
    """A lone surrogate, which a damaged store may give back, is neither an error nor the same as the character of two."""
    assert chain.holds(GENESIS, "\ud800", chain.seal(GENESIS, "\ud800"))
    assert not chain.holds(GENESIS, "\U0001f600", chain.seal(GENESIS, "\ud83d\ude00"))


def test_a_seal_is_what_it_has_been_since_the_first_version() -> None:
    """The bytes that are hashed, with what they are for in front: a trail of today is checked by every later version."""
    first = hashlib.sha256(b"fsm-agent trail seal 1\n0\n\n{}")
    second = hashlib.sha256(b"fsm-agent trail seal 1\n64\n" + first.hexdigest().encode() + b"\n[]")
    assert [one.seal for one in sealed(Sha256Chain(), ["{}", "[]"])] == [first.hexdigest(), second.hexdigest()]
    key = b"sixteen bytes or more"
    assert HmacChain(key).seal(GENESIS, "{}") == hmac.new(key, first.digest(), hashlib.sha256).hexdigest()
    signature = ed25519.Ed25519PrivateKey.from_private_bytes(SEED).sign(first.digest())
    assert Ed25519Chain(private=SEED).seal(GENESIS, "{}") == signature.hex()


# ---------------------------------------------------------------- what a key is for


def test_a_bare_chain_cannot_show_a_full_rewrite() -> None:
    """Without a key, whoever writes all seals anew leaves no trace: this is its limit, and the reason for a key."""
    forged = sealed(Sha256Chain(), [line.replace("started", "outcome") for line in LINES])
    assert broken(Sha256Chain(), forged) == ()


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize("forger", [Sha256Chain(), HmacChain(b"a guess at the key!"), Ed25519Chain(private=bytes(32))])
def test_a_keyed_chain_shows_a_full_rewrite(kind: str, forger: Chain) -> None:
    """Whoever has not got the key can make no entry that holds, with seals of any kind."""
    assert broken(KEYED[kind](), sealed(forger, LINES)) == (0, 1, 2, 3)


def test_the_public_key_checks_and_cannot_write() -> None:
    """Who checks an Ed25519 chain cannot forge it; the two keys give one name."""
    writer = Ed25519Chain(private=SEED)
    checker = Ed25519Chain(public=writer.public)
    assert broken(checker, sealed(writer, LINES)) == ()
    assert checker.name == writer.name
    with pytest.raises(DefinitionError, match="give the private key"):
        checker.seal(GENESIS, "x")


@pytest.mark.parametrize("kind", KEYED)
def test_another_key_breaks_every_entry_and_damage_does_not(kind: str) -> None:
    """The wrong key is told apart from damage: it breaks all, and its name is another than the one in the header."""
    right: Chain = KEYED[kind]()
    wrong: Chain = HmacChain(b"x" * 16) if kind == "hmac" else Ed25519Chain(private=bytes(32))
    entries = sealed(right, LINES)
    assert broken(wrong, entries) == tuple(range(len(LINES)))
    assert wrong.name != right.name
    damaged = [*entries[:1], replace(entries[1], text=entries[1].text + " "), *entries[2:]]
    assert broken(right, damaged) == (1,)


# ---------------------------------------------------------------- keys


def test_the_name_of_a_key_does_not_give_it_away() -> None:
    """The fingerprint is made with the key for nothing else: no hash of it, no seal, and another for another key."""
    key = b"sixteen bytes or more"
    name = HmacChain(key).name
    assert name.startswith("hmac-sha256:")
    fingerprint = name.partition(":")[2]
    assert len(fingerprint) == 16
    assert fingerprint not in hashlib.sha256(key).hexdigest()
    assert not HmacChain(key).seal(GENESIS, "").startswith(fingerprint)
    assert HmacChain(key + b"!").name != name


@pytest.mark.parametrize("length", [0, 1, 15])
def test_a_short_secret_is_refused(length: int) -> None:
    """A key of fewer than 16 bytes can be guessed; the message says how long it is, and not what."""
    with pytest.raises(DefinitionError, match=f"{length} bytes; give at least 16") as caught:
        HmacChain(b"k" * length)
    assert "kkk" not in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"k" * 31, b"k" * 33, b"k" * 64])
def test_an_ed25519_key_has_32_bytes(raw: bytes) -> None:
    """Any other length is refused with its length, for both keys."""
    for keys in ({"private": raw}, {"public": raw}):
        with pytest.raises(DefinitionError, match=f"{len(raw)} bytes; give the 32 raw ones"):
            Ed25519Chain(**keys)


def test_one_of_the_two_ed25519_keys_is_given() -> None:
    """Neither, or both, is a mistake that is named."""
    for private, public in ((None, None), (SEED, SEED)):
        with pytest.raises(DefinitionError, match="give the private key"):
            Ed25519Chain(private=private, public=public)


def test_no_key_is_shown() -> None:
    """`repr` and the attributes that logs print have no key in them."""
    assert "sixteen" not in repr(HmacChain(b"sixteen bytes or more"))
    assert SEED.hex() not in repr(Ed25519Chain(private=SEED))


HMAC, PRIVATE, PUBLIC = (
    "FSM_AGENT_TRAIL_HMAC_KEY",
    "FSM_AGENT_TRAIL_ED25519_KEY",
    "FSM_AGENT_TRAIL_ED25519_PUBLIC_KEY",
)


def test_the_environment_names_the_chain() -> None:
    """No variable, no key; each variable, its chain."""
    public = Ed25519Chain(private=SEED).public.hex()
    assert chain_from_env({}).name == "sha256"
    assert chain_from_env({HMAC: "ключ от хроники"}).name == HmacChain("ключ от хроники".encode()).name
    assert chain_from_env({PRIVATE: SEED.hex()}).name == Ed25519Chain(private=SEED).name
    assert chain_from_env({PUBLIC: public}).name == Ed25519Chain(private=SEED).name
    with pytest.raises(DefinitionError, match="give the private key"):
        chain_from_env({PUBLIC: public}).seal(GENESIS, "x")


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the variables of this process count."""
    assert chain_from_env().name == "sha256"
    monkeypatch.setenv(HMAC, "sixteen bytes or more")
    assert chain_from_env().name == HmacChain(b"sixteen bytes or more").name


def test_bytes_that_are_no_text_are_a_key_too() -> None:
    """The environment may hold random bytes; the key is those bytes."""
    assert chain_from_env({HMAC: "\udcff" * 16}).name == HmacChain(b"\xff" * 16).name


@pytest.mark.parametrize("variable", [HMAC, PRIVATE, PUBLIC])
@pytest.mark.parametrize("value", ["", "  ", " " * 40, "short"])
def test_a_variable_that_is_no_key_is_refused_by_its_name(variable: str, value: str) -> None:
    """An empty or wrong key never means a chain without one; the message names the variable and not what it holds."""
    with pytest.raises(DefinitionError, match=variable) as caught:
        chain_from_env({variable: value})
    assert "'short'" not in str(caught.value)


def test_two_keys_at_once_are_refused() -> None:
    """Which one counts is not guessed."""
    with pytest.raises(DefinitionError, match=f"{HMAC} and {PRIVATE} are both set"):
        chain_from_env({HMAC: "k" * 16, PRIVATE: SEED.hex()})


def test_without_the_library_the_extra_is_named() -> None:
    """Ed25519 without cryptography says what to install, from the environment too; the other chains work without it."""
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from fsm_agent.trail.chain import *\n"
        "print(chain_from_env({'FSM_AGENT_TRAIL_HMAC_KEY': 'k' * 16}).seal('', 'x'))\n"
        "for make in (lambda: Ed25519Chain(private=bytes(32)), lambda: Ed25519Chain(public=bytes(32)),\n"
        "             lambda: chain_from_env({'FSM_AGENT_TRAIL_ED25519_KEY': '00' * 32})):\n"
        "    try: make()\n"
        "    except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *messages = done.stdout.splitlines()
    assert first == HmacChain(b"k" * 16).seal(GENESIS, "x")
    assert len([message for message in messages if "pip install 'fsm-agent[crypto]'" in message]) == 3
