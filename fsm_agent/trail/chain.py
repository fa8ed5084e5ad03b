"""The seals of a trail: each covers the entry and the seal before it, so that none can be changed, moved or left out in between.

A bare SHA-256 chain shows accidents and partial edits. It cannot show that somebody rewrote the whole trail with all its seals:
for that use a key (HMAC: whoever can check can also forge; Ed25519: only who has the private key can write). No chain by itself
shows that the newest entries were cut off: keep the newest seal elsewhere (`RunResult.trail_head`) and give it to `audit`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from fsm_agent.errors import DefinitionError
from fsm_agent.trail.entries import Stored

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

__all__ = ["GENESIS", "Chain", "Ed25519Chain", "HmacChain", "Sha256Chain", "broken", "chain_from_env"]

GENESIS: Final = ""
"""The seal before the first one."""
HMAC_VARIABLE: Final = "FSM_AGENT_TRAIL_HMAC_KEY"
ED25519_VARIABLE: Final = "FSM_AGENT_TRAIL_ED25519_KEY"
PUBLIC_VARIABLE: Final = "FSM_AGENT_TRAIL_ED25519_PUBLIC_KEY"

_SHORTEST_KEY: Final = 16
_ED25519_KEY: Final = 32
# What is hashed here is hashed nowhere else, so that a key used for other things too gives no seal away.
_SEAL: Final = b"fsm-agent trail seal 1\n"
_FINGERPRINT: Final = b"fsm-agent trail key 1\n"


class Chain(Protocol):
    """How entries are sealed."""

    @property
    def name(self) -> str:
        """The algorithm, and for a keyed one a fingerprint of the key; written into the header of each run."""

    def seal(self, before: str, text: str) -> str:
        """The seal of an entry, given the seal before it."""

    def holds(self, before: str, text: str, seal: str) -> bool:
        """True when `seal` is that of `text` after `before`, character by character. False for anything else, never an error."""


def broken(chain: Chain, entries: Iterable[Stored]) -> tuple[int, ...]:
    """The positions, from 0, of the entries whose seal does not hold, each judged by the seal that stands before it.

    Empty for a trail as it was written. The first is where it was changed: its text or its seal, or what stood before it. When
    every one is broken, nothing is damaged in one place: it was sealed with another key, or all of it was written by somebody else.
    """
    found, before = [], GENESIS
    for position, one in enumerate(entries):
        if not chain.holds(before, one.text, one.seal):
            found.append(position)
        before = one.seal
    return tuple(found)


def _digest(before: str, text: str) -> bytes:
    # A damaged store may give any text back, lone surrogates too; the length says where `before` ends whatever is in it.
    first = before.encode("utf-8", "surrogatepass")
    return hashlib.sha256(b"%s%d\n%s\n%s" % (_SEAL, len(first), first, text.encode("utf-8", "surrogatepass"))).digest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


class Sha256Chain:
    """SHA-256 over the seal before and the canonical text. No key: whoever can write the store can write such a chain."""

    name: Final = "sha256"

    def seal(self, before: str, text: str) -> str:
        """64 hexadecimal digits."""
        return _digest(before, text).hex()

    def holds(self, before: str, text: str, seal: str) -> bool:
        """True for exactly what `seal` gives."""
        return _same(self.seal(before, text), seal)


class HmacChain:
    """HMAC-SHA256 with a secret key of at least 16 bytes: only who has the key can write, or rewrite, a trail.

    Give random bytes: a short password can be guessed from one entry and its seal. Raises `DefinitionError` for a shorter key.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < _SHORTEST_KEY:
            raise DefinitionError(
                f"the key of the trail has {len(key)} bytes; give at least {_SHORTEST_KEY}, random ones"
            )
        self._key = key
        self.name: Final = f"hmac-sha256:{hmac.new(key, _FINGERPRINT, hashlib.sha256).hexdigest()[:16]}"

    def seal(self, before: str, text: str) -> str:
        """64 hexadecimal digits."""
        return hmac.new(self._key, _digest(before, text), hashlib.sha256).hexdigest()

    def holds(self, before: str, text: str, seal: str) -> bool:
        """True for exactly what `seal` gives; compared in constant time."""
        return _same(self.seal(before, text), seal)


class Ed25519Chain:
    """Ed25519 signatures: made with the private key, checked with the public one. Needs the extra `crypto`.

    Give one of the two, as 32 raw bytes. `public` is the public key, to be given to whoever checks. Raises `DefinitionError` for
    what is no key, and without the extra.
    """

    def __init__(self, *, private: bytes | None = None, public: bytes | None = None) -> None:
        if (private is None) == (public is None):
            raise DefinitionError(
                "give the private key (32 bytes) to write and check, or the public one (32 bytes) to check"
            )
        self._private: ed25519.Ed25519PrivateKey | None = None
        self._public: ed25519.Ed25519PublicKey
        if private is not None:
            self._private = _private_key(private)
            self._public = self._private.public_key()
        else:
            self._public = _public_key(public or b"")
        self.public: Final = self._public.public_bytes_raw()
        self.name: Final = f"ed25519:{self.public.hex()[:16]}"

    def seal(self, before: str, text: str) -> str:
        """128 hexadecimal digits. Raises `DefinitionError` with a public key only."""
        if self._private is None:
            raise DefinitionError("this key can check a trail, not write one; give the private key")
        return self._private.sign(_digest(before, text)).hex()

    def holds(self, before: str, text: str, seal: str) -> bool:
        """True for a signature of this key, written as `seal` writes it."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

        try:
            signature = bytes.fromhex(seal)
            if signature.hex() != seal:
                return False  # blanks or capital letters: the same bytes, but not the same seal
            self._public.verify(signature, _digest(before, text))
        except (InvalidSignature, ValueError):
            return False
        return True


def _private_key(raw: bytes) -> ed25519.Ed25519PrivateKey:
    _check_length(raw, "private")
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise _extra_missing() from error
    return ed25519.Ed25519PrivateKey.from_private_bytes(raw)


def _public_key(raw: bytes) -> ed25519.Ed25519PublicKey:
    _check_length(raw, "public")
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _extra_missing() from error
    try:
        return ed25519.Ed25519PublicKey.from_public_bytes(raw)
    except ValueError as error:
        raise DefinitionError(f"the public Ed25519 key of the trail is no key: {error}") from error


def _check_length(raw: bytes, which: str) -> None:
    if len(raw) != _ED25519_KEY:
        raise DefinitionError(
            f"the {which} Ed25519 key of the trail has {len(raw)} bytes; give the {_ED25519_KEY} raw ones (64 hexadecimal digits)"
        )


def _extra_missing() -> DefinitionError:
    return DefinitionError(
        "Ed25519 seals need the package cryptography, which is missing: pip install 'fsm-agent[crypto]'"
    )


def chain_from_env(environ: Mapping[str, str] | None = None) -> Chain:
    """The chain that the environment asks for; plain SHA-256 when it names no key.

    `FSM_AGENT_TRAIL_HMAC_KEY` is any text of 16 bytes or more, `FSM_AGENT_TRAIL_ED25519_KEY` the private key, and
    `FSM_AGENT_TRAIL_ED25519_PUBLIC_KEY` the public one, which checks only; both of 64 hexadecimal digits. Raises `DefinitionError`
    for more than one of them, and for one that is no key. An empty one is no key either: a secret that failed to load must not
    leave trails unkeyed without a word.
    """
    source = os.environ if environ is None else environ
    given = [name for name in (HMAC_VARIABLE, ED25519_VARIABLE, PUBLIC_VARIABLE) if name in source]
    if not given:
        return Sha256Chain()
    if len(given) > 1:
        raise DefinitionError(f"{' and '.join(given)} are both set; keep one")
    (name,) = given
    value = source[name]
    if not value.strip():
        raise DefinitionError(f"{name} is set, but empty: give it a key, or unset it for a chain without one")
    if name == HMAC_VARIABLE:
        # An environment may hold bytes that are no UTF-8; Python gives them as surrogates.
        return _named(name, lambda: HmacChain(value.encode("utf-8", "surrogateescape")))
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        raise DefinitionError(f"{name} is not 64 hexadecimal digits") from None
    return _named(name, lambda: Ed25519Chain(private=raw) if name == ED25519_VARIABLE else Ed25519Chain(public=raw))


def _named(variable: str, make: Callable[[], Chain]) -> Chain:
    try:
        return make()
    except DefinitionError as error:
        raise DefinitionError(f"{variable}: {error}") from error
