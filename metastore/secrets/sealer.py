"""Encrypt and decrypt values with data keys.

Encryption is deterministic: one value under one property's name and one data key has one ciphertext. So changes stay
pure, a repeated call is equal to the first one, and ``expected=`` compares ciphertexts. The property's name is
associated data: a ciphertext under another name does not open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from metastore.errors import SecretDamaged
from metastore.kinds.secret import SEALED, sealed_parts
from metastore.port.secret_keys import KeyRow, SecretKeys
from metastore.secrets.keyring import cipher, current, new_key, of_text, to_text, unwrap, wrap

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

__all__ = ["Sealed", "Sealer"]


class _Database(Protocol):
    """A source of data keys: a backend. It is asked only when something is secret."""

    @property
    def secret_keys(self) -> SecretKeys: ...


class Sealed(str):
    """A sealed value that this library made. A caller's own text never is one."""

    __slots__ = ()


class Sealer:
    """Seals and opens values, with the data keys that it remembers."""

    def __init__(self, database: _Database) -> None:
        self._database = database
        self._ciphers: dict[int, AESSIV] = {}

    def seal(self, name: str, value: str, number: int) -> Sealed:
        """Return the value of the property ``name``, encrypted with a data key, which is made if it is the first one.

        Raises SecretKeyMissing, SecretKeyWrong, SecretDamaged.
        """
        data = self._cipher(number).encrypt(value.encode(), [name.encode()])
        return Sealed(f"{SEALED}{number}:{to_text(data)}")

    def open(self, name: str, value: str, what: str) -> str:
        """Return the secret in a sealed value; ``what`` names the property. Raises as :meth:`seal` does."""
        parts = sealed_parts(value)
        if parts is None:
            raise SecretDamaged(f"{what} has a handle, and its secret is not in this database; set the property again")
        key = self._cipher(parts[0])
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  (an extra)

        try:
            return key.decrypt(of_text(parts[1]), [name.encode()]).decode()
        except (InvalidTag, ValueError):
            raise SecretDamaged(
                f"{what} is damaged: data key {parts[0]} does not open it; set the property again, or restore a backup"
            ) from None

    def newest(self) -> int:
        """Return the number of the data key that a new catalog uses."""
        return max((row.number for row in self._database.secret_keys.rows()), default=1)

    def _cipher(self, number: int) -> AESSIV:
        known = self._ciphers.get(number)
        if known is None:
            known = self._ciphers[number] = cipher(unwrap(self._row(number)))
        return known

    def _row(self, number: int) -> KeyRow:
        row = next((row for row in self._database.secret_keys.rows() if row.number == number), None)
        if row is not None:
            return row
        key = current()
        return self._database.secret_keys.add(number, wrap(of_text(new_key()), number, key), key.name)
