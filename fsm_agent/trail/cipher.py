"""Encryption at rest: the bodies of entries, and large values, under a key from the environment. Needs the extra `crypto`.

What stays readable: run and thread ids, status and reason, the kinds, numbers and times of entries, and the lengths of what is encrypted.
Seals cover what is stored, so the encrypted text: a trail can be checked by who cannot read it. Encryption does not stand in for a keyed
chain: a token by itself does not say which entry it belongs to, the seals do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from fsm_agent.errors import DefinitionError, TrailError

__all__ = ["ENCRYPTION_VARIABLE", "Cipher", "FernetCipher", "TrailLocked", "cipher_from_env"]

ENCRYPTION_VARIABLE: Final = "FSM_AGENT_TRAIL_ENCRYPTION_KEY"
_HOW: Final = 'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'


class TrailLocked(TrailError):
    """A trail is encrypted, and the key that is given, if any, does not open it. It is there, and nothing says that it is damaged."""


class Cipher(Protocol):
    """How the text of a body is encrypted and read again."""

    def encrypt(self, text: str) -> str:
        """A token for `text`: ASCII, never starting with a brace."""

    def decrypt(self, token: str) -> str:
        """The text of `token`. Raises `TrailLocked` when no key that is given opens it."""


class FernetCipher:
    """Fernet (AES-128 in CBC mode with HMAC-SHA256), of the package cryptography.

    `keys` are Fernet keys (32 random bytes in URL-safe base64). The first encrypts, each is tried to decrypt: to rotate, put a new key in
    front and keep the old ones as long as trails written with them are kept. Raises `DefinitionError` for what is no key, and without
    the extra.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            raise DefinitionError(
                "encrypted trails need the package cryptography, which is missing: pip install 'fsm-agent[crypto]'"
            ) from error
        if isinstance(keys, str | bytes) or not keys or not all(isinstance(key, str) for key in keys):
            raise DefinitionError("give a list of at least one encryption key, each as text")
        opened = []
        for number, key in enumerate(keys, start=1):
            try:
                opened.append(Fernet(key.encode()))
            except ValueError:
                # Without the cause: what is wrong with a secret is not to be read in a log.
                raise DefinitionError(
                    f"encryption key {number} of {len(keys)} is none (32 bytes in URL-safe base64); make one with: {_HOW}"
                ) from None
        self._fernet = MultiFernet(opened)

    def encrypt(self, text: str) -> str:
        """A Fernet token, by the first key."""
        return self._fernet.encrypt(text.encode("utf-8", "surrogatepass")).decode("ascii")

    def decrypt(self, token: str) -> str:
        """The text of a token of any of the keys. Raises `TrailLocked`."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        try:
            return self._fernet.decrypt(token.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
        except InvalidToken:
            raise TrailLocked(
                f"the trail was encrypted with another key: add the one that wrote it to {ENCRYPTION_VARIABLE} (after a comma)"
            ) from None


def cipher_from_env(environ: Mapping[str, str] | None = None) -> FernetCipher | None:
    """The cipher that `FSM_AGENT_TRAIL_ENCRYPTION_KEY` asks for (several keys: with commas, the newest first); None when it is not set.

    Raises `DefinitionError` when it holds no key, an empty text included: a secret that failed to load must not leave trails readable.
    """
    value = (os.environ if environ is None else environ).get(ENCRYPTION_VARIABLE)
    if value is None:
        return None
    keys = [key.strip() for key in value.split(",") if key.strip()]
    if not keys:
        raise DefinitionError(
            f"{ENCRYPTION_VARIABLE} is set, but empty: give it a key (make one with: {_HOW}), or unset it"
        )
    try:
        return FernetCipher(keys)
    except DefinitionError as error:
        raise DefinitionError(f"{ENCRYPTION_VARIABLE} cannot be used: {error}") from error
