"""The keys of the environment: they wrap the data keys, and nothing else.

The variable ``METASTORE_SECRET_KEY`` holds one or more keys of 64 bytes in base64, separated by blanks. The command
``metastore secrets new-key`` makes one. The first key wraps; every key unwraps, so that a process can read during a
rotation. A data key is wrapped with AES-SIV (RFC 5297, its section 1.3.2: key wrapping), with its number as associated
data.
"""

from __future__ import annotations

import base64
import binascii
import os
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from metastore.errors import SecretDamaged, SecretKeyMissing, SecretKeyWrong
from metastore.port.secret_keys import KeyRow

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

__all__ = ["VARIABLE", "EnvironmentKey", "cipher", "current", "keys", "new_key", "of_text", "to_text", "unwrap", "wrap"]

VARIABLE: Final = "METASTORE_SECRET_KEY"
"""The variable with the keys of the environment."""
SIZE: Final = 64
"""The bytes of a key: AES-256-SIV has two keys of 32."""


class EnvironmentKey(NamedTuple):
    """A key of the environment, and its name in the rows of data keys."""

    secret: bytes
    name: str

    def __repr__(self) -> str:
        return f"EnvironmentKey({self.name})"


def new_key() -> str:
    """Return a new key for the environment, or for data, as text."""
    return to_text(os.urandom(SIZE))


def to_text(data: bytes) -> str:
    """Return bytes as base64 without padding, which fits into URLs and JSON."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def of_text(text: str) -> bytes:
    """Return the bytes of a base64 text, in either alphabet. Raises ValueError for any other text."""
    plain = text.strip().rstrip("=").replace("+", "-").replace("/", "_")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)


def keys() -> tuple[EnvironmentKey, ...]:
    """Return the keys of the environment, in their order. Raises SecretKeyMissing, SecretKeyWrong."""
    return _parsed(os.environ.get(VARIABLE, ""))


def current() -> EnvironmentKey:
    """Return the key that wraps new data keys. Raises SecretKeyMissing, SecretKeyWrong."""
    return keys()[0]


@lru_cache(8)
def _parsed(text: str) -> tuple[EnvironmentKey, ...]:
    if not text.split():
        raise SecretKeyMissing(
            f"a property is secret, and this process has no key: {VARIABLE} is not set; set it to the key that the "
            "other processes have, or make the first one with: metastore secrets new-key"
        )
    return tuple([_key(part, n) for n, part in enumerate(text.split(), 1)])


def _key(text: str, number: int) -> EnvironmentKey:
    try:
        secret = of_text(text)
    except (ValueError, binascii.Error):
        secret = b""
    if len(secret) != SIZE:
        raise SecretKeyWrong(
            f"key {number} of {VARIABLE} is not {SIZE} bytes in base64; make one with: metastore secrets new-key"
        )
    return EnvironmentKey(secret, sha256(b"metastore environment key" + secret).hexdigest()[:16])


def cipher(secret: bytes) -> AESSIV:
    """Return AES-SIV with a key. Raises SecretKeyMissing without the extra ``secrets``."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415  (an extra)
    except ImportError:
        raise SecretKeyMissing(
            "a property is secret, and cryptography is not installed here; "
            "install it with: pip install 'versioned-metastore[secrets]'"
        ) from None
    return AESSIV(secret)


def wrap(secret: bytes, number: int, key: EnvironmentKey) -> str:
    """Return a data key in the wrapped form that its row holds."""
    return to_text(cipher(key.secret).encrypt(secret, _about(number)))


def unwrap(row: KeyRow) -> bytes:
    """Return a data key. Raises SecretKeyMissing, SecretKeyWrong, SecretDamaged."""
    if row.wrapped is None:
        raise SecretDamaged(
            f"data key {row.number} was destroyed by a rotation: what it encrypted cannot be read any more; set the "
            "property again"
        )
    known = keys()
    for key in known:
        if key.name == row.wrapper:
            return _unwrapped(row, row.wrapped, key)
    raise SecretKeyWrong(
        f"data key {row.number} is wrapped by the key {row.wrapper}, and {VARIABLE} has "
        f"{', '.join(key.name for key in known)}; add the key {row.wrapper} behind the first one"
    )


def _unwrapped(row: KeyRow, wrapped: str, key: EnvironmentKey) -> bytes:
    wrapping = cipher(key.secret)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  (an extra)

    try:
        return wrapping.decrypt(of_text(wrapped), _about(row.number))
    except (InvalidTag, ValueError):
        raise SecretDamaged(
            f"the row of data key {row.number} is damaged: the key {key.name} wrapped it and does not open it; "
            "restore the table secret_key from a backup"
        ) from None


def _about(number: int) -> list[bytes]:
    return [b"metastore data key", str(number).encode()]
