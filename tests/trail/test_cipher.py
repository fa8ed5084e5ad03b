"""Encryption at rest: what is stored cannot be read without the key, and a key that is missing or wrong is named."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import DefinitionError, TrailDamaged, TrailError, UnknownRun
from fsm_agent.redact import redact_text
from fsm_agent.trail.cipher import FernetCipher, TrailLocked, cipher_from_env

VARIABLE = "FSM_AGENT_TRAIL_ENCRYPTION_KEY"
OLD, NEW, OTHER = (base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))


@given(st.text(st.characters(), max_size=50))
def test_what_is_encrypted_is_read_again(text: str) -> None:
    """Any text comes back as it was, lone surrogates included."""
    cipher = FernetCipher([OLD])
    assert cipher.decrypt(cipher.encrypt(text)) == text


def test_a_token_shows_nothing_and_is_never_the_same_twice() -> None:
    """A token is ASCII, holds no part of the text, does not look like JSON, and differs each time."""
    cipher = FernetCipher([OLD])
    token, again = cipher.encrypt('{"secret":"swordfish"}'), cipher.encrypt('{"secret":"swordfish"}')
    assert token.isascii()
    assert token.startswith("gAAAA")
    assert "swordfish" not in token
    assert token != again


def test_a_new_key_in_front_reads_what_the_old_one_wrote() -> None:
    """Rotation: the first key writes, all of them read; without the old key the old trails are locked."""
    before = FernetCipher([OLD]).encrypt("a")
    rotated = FernetCipher([NEW, OLD])
    assert rotated.decrypt(before) == "a"
    assert FernetCipher([NEW]).decrypt(rotated.encrypt("b")) == "b"
    with pytest.raises(TrailLocked):
        FernetCipher([NEW]).decrypt(before)


def test_a_token_of_another_key_is_locked_and_not_damaged() -> None:
    """The error is one of its own, says which variable to mend, and is neither damage nor an unknown run."""
    for token in (FernetCipher([OTHER]).encrypt("a"), "", "gAAAA", "{}", "é", "\ud800"):
        with pytest.raises(TrailLocked, match=VARIABLE) as caught:
            FernetCipher([OLD, NEW]).decrypt(token)
        assert isinstance(caught.value, TrailError)
        assert not isinstance(caught.value, TrailDamaged | UnknownRun)


@given(data=st.data())
def test_a_changed_token_gives_no_text(data: st.DataObject) -> None:
    """A token is authenticated: one with another character is refused, or says the very same."""
    cipher = FernetCipher([OLD])
    token = cipher.encrypt("the amount is 5")
    at = data.draw(st.integers(0, len(token) - 1))
    changed = token[:at] + data.draw(st.characters(codec="ascii")) + token[at + 1 :]
    try:
        assert cipher.decrypt(changed) == "the amount is 5"
    except TrailLocked:
        assert changed != token


@pytest.mark.parametrize("keys", [[], OLD, ["no key"], [OLD, "é"], [OLD, ""], [OLD[:-2]]])
def test_what_is_no_key_is_refused_without_being_shown(keys: list[str]) -> None:
    """The message says which key and how to make one, and nothing of what was given."""
    with pytest.raises(DefinitionError, match="key") as caught:
        FernetCipher(keys)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    shown = f"{caught.value} {caught.value.__cause__!r}"
    assert OLD[:8] not in shown
    assert "no key" not in shown


def test_the_environment_gives_the_keys() -> None:
    """One key, or several with commas, the newest first; blanks around them do not count; without the variable, no cipher."""
    assert cipher_from_env({}) is None
    one, two = cipher_from_env({VARIABLE: OLD}), cipher_from_env({VARIABLE: f" {NEW} , {OLD},"})
    assert one is not None
    assert two is not None
    assert two.decrypt(one.encrypt("a")) == "a"
    assert FernetCipher([NEW]).decrypt(two.encrypt("b")) == "b"


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the variable of this process counts."""
    assert cipher_from_env() is None
    monkeypatch.setenv(VARIABLE, OLD)
    assert cipher_from_env() is not None


@pytest.mark.parametrize("value", ["", " ", ",", "short", f"{OLD},short"])
def test_a_variable_without_a_key_is_no_trail_without_encryption(value: str) -> None:
    """A secret that failed to load is refused by the name of its variable, in words that no redaction cuts; trails never stay readable."""
    with pytest.raises(DefinitionError, match=VARIABLE) as caught:
        cipher_from_env({VARIABLE: value})
    assert "short" not in str(caught.value)
    assert redact_text(str(caught.value)) == str(caught.value)


def test_no_key_is_shown() -> None:
    """`repr` has no key in it."""
    assert OLD not in repr(FernetCipher([OLD]))


def test_without_the_library_the_extra_is_named() -> None:
    """A key without cryptography says what to install; without a key nothing needs it."""
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from fsm_agent.trail.cipher import *\n"
        "print(cipher_from_env({}))\n"
        f"try: cipher_from_env({{'{VARIABLE}': '{OLD}'}})\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    nothing, message = done.stdout.splitlines()
    assert nothing == "None"
    assert VARIABLE in message
    assert "pip install 'fsm-agent[crypto]'" in message
