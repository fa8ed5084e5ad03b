"""The seals of a trail: each covers the entry and the seal before it, so that no entry can be changed, moved or left out in between.

A bare SHA-256 chain shows accidents and partial edits. It cannot show that somebody rewrote the whole trail with all its seals, nor that the
newest entries were cut off: for the first use a key (HMAC: whoever checks could also forge; Ed25519: only the writer can), for the second keep
the newest seal elsewhere (`RunResult.trail_head`) and give it to `audit`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any, Final, Protocol

from fsm_agent.errors import DefinitionError

__all__ = ["GENESIS", "Chain", "Ed25519Chain", "HmacChain", "Sha256Chain", "chain_from_env"]

GENESIS: Final = ""
"""The seal before the first one."""
HMAC_VARIABLE: Final = "FSM_AGENT_TRAIL_HMAC_KEY"
ED25519_VARIABLE: Final = "FSM_AGENT_TRAIL_ED25519_KEY"
_SHORTEST_KEY: Final = 16


class Chain(Protocol):
    """How entries are sealed."""

    @property
    def name(self) -> str:
        """The algorithm, and for a keyed one a fingerprint of the key; written into the header of each run."""

    def seal(self, before: str, text: str) -> str:
        """The seal of an entry, given the seal before it."""

    def holds(self, before: str, text: str, seal: str) -> bool:
        """True when `seal` is that of `text` after `before`."""


def _digest(before: str, text: str) -> bytes:
    return hashlib.sha256(f"{before}\n{text}".encode("utf-8", "surrogatepass")).digest()


class Sha256Chain:
    """SHA-256 over the seal before and the canonical text. No key."""

    name = "sha256"

    def seal(self, before: str, text: str) -> str:
        """64 hexadecimal digits."""
        return _digest(before, text).hex()

    def holds(self, before: str, text: str, seal: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(self.seal(before, text).encode(), seal.encode())


class HmacChain:
    """HMAC-SHA256 with a secret key of at least 16 bytes: only who has the key can write, or rewrite, a trail."""

    def __init__(self, key: bytes) -> None:
        if len(key) < _SHORTEST_KEY:
            raise DefinitionError(
                f"the key of the trail has {len(key)} bytes; give at least {_SHORTEST_KEY} random ones"
            )
        self._key = key
        self.name = f"hmac-sha256:{hashlib.sha256(key).hexdigest()[:16]}"

    def seal(self, before: str, text: str) -> str:
        """64 hexadecimal digits."""
        return hmac.new(self._key, _digest(before, text), hashlib.sha256).hexdigest()

    def holds(self, before: str, text: str, seal: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(self.seal(before, text).encode(), seal.encode())


class Ed25519Chain:
    """Ed25519 signatures: made with the private key, checked with the public one. Needs the extra `crypto`."""

    def __init__(self, *, private: bytes | None = None, public: bytes | None = None) -> None:
        # The library is an extra, and takes a while to import.
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

        if (private is None) == (public is None):
            raise DefinitionError(
                "give the private key (32 bytes) to write and check, or the public one (32 bytes) to check"
            )
        try:
            self._private: Any = None if private is None else ed25519.Ed25519PrivateKey.from_private_bytes(private)
            self._public: Any = (
                ed25519.Ed25519PublicKey.from_public_bytes(public or b"")
                if private is None
                else self._private.public_key()
            )
        except ValueError as error:
            raise DefinitionError(f"the Ed25519 key is no key: {error}; it has 32 raw bytes") from error
        self.name = f"ed25519:{self._public.public_bytes_raw().hex()[:16]}"

    def seal(self, before: str, text: str) -> str:
        """128 hexadecimal digits. Raises `DefinitionError` with a public key only."""
        if self._private is None:
            raise DefinitionError("this key can check a trail, not write one; give the private key")
        signature: bytes = self._private.sign(_digest(before, text))
        return signature.hex()

    def holds(self, before: str, text: str, seal: str) -> bool:
        """True for a signature of this key."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - as above

        try:
            self._public.verify(bytes.fromhex(seal), _digest(before, text))
        except (InvalidSignature, ValueError):
            return False
        return True


def chain_from_env(environ: Mapping[str, str] | None = None) -> Chain:
    """The chain that the environment asks for: `FSM_AGENT_TRAIL_HMAC_KEY` (any text of 16 bytes or more) or
    `FSM_AGENT_TRAIL_ED25519_KEY` (64 hexadecimal digits, the private key); plain SHA-256 without either."""
    source = os.environ if environ is None else environ
    secret, private = source.get(HMAC_VARIABLE), source.get(ED25519_VARIABLE)
    if secret and private:
        raise DefinitionError(f"{HMAC_VARIABLE} and {ED25519_VARIABLE} are both set; keep one")
    if private:
        try:
            return Ed25519Chain(private=bytes.fromhex(private))
        except ValueError as error:
            raise DefinitionError(f"{ED25519_VARIABLE} is not 64 hexadecimal digits") from error
    return HmacChain(secret.encode()) if secret else Sha256Chain()
