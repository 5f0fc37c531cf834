"""Encrypt and decrypt values with data keys.

A value is encrypted twice. The call makes a :class:`Sealed` text, which depends only on the value, the property's name
and the data key. So a repeat under one operation id can be compared with the first call. The Sealed text is never
stored. The attempt *binds* it (:func:`bound`): the stored text is encrypted with a salt, and with the entity's id and
the property's name as associated data. So equal values have different ciphertexts, and a ciphertext that was copied to
another property or entity does not open.

Older databases have unbound values, whose associated data is only the property's name. They still open; the next write
of the property replaces them. AES-SIV tells the two apart: each opens only with its own associated data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from metastore.arguments import shown
from metastore.errors import InvalidArgument, SecretDamaged
from metastore.kinds.secret import SEALED, sealed_parts
from metastore.port.reserved import ReservedIds
from metastore.port.secret_keys import KeyRow, SecretKeys
from metastore.secrets.declared import Declared
from metastore.secrets.keyring import cipher, current, new_key, of_text, to_text, unwrap, wrap

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

__all__ = ["Sealed", "Sealer", "bound"]

_SALT: Final = 16
"""The size of the random salt before a bound ciphertext (bytes)."""


class _Database(Protocol):
    """A source of data keys: a backend. It is read only if a property is secret."""

    @property
    def secret_keys(self) -> SecretKeys: ...

    def reserve_ids(self, count: int) -> list[int]: ...


class Sealed(str):
    """A value of a call that is encrypted but not yet bound to an entity.

    A text from a caller is never an instance.
    """

    __slots__ = ("_compares", "_name", "_number", "_sealer", "_value")

    _sealer: Sealer
    _name: str
    _value: str
    _number: int
    _compares: bool

    def __new__(cls, text: str, sealer: Sealer, name: str, value: str, number: int, compares: bool) -> Self:
        """Return the sealed text of a secret in a call.

        ``compares``: the caller may learn whether the entity has this secret already.
        """
        sealed = super().__new__(cls, text)
        sealed._sealer, sealed._name, sealed._value = sealer, name, value
        sealed._number, sealed._compares = number, compares
        return sealed

    def __reduce__(self) -> Any:
        return str, (str(self),)

    @property
    def number(self) -> int:
        """The number of the data key that encrypts it."""
        return self._number

    @property
    def plain(self) -> str:
        """The secret itself."""
        return self._value

    @property
    def sealer(self) -> Sealer:
        """The sealer that made it."""
        return self._sealer

    def under(self, number: int) -> Sealed:
        """Return the same secret, sealed with another data key. Raises the errors of :meth:`Sealer.seal`."""
        return self._sealer.seal(self._name, self._value, number, compares=self._compares)

    def new_id(self) -> int:
        """Return an id for a new entity with this value."""
        return self._sealer.next_id()

    def bound(self, entity_id: int, before: object) -> str:
        """Return the text to store in place of ``before``: ``before`` itself if it holds this secret already.

        A caller that may not compare always gets a new text.
        """
        if self._compares and self._sealer.has(self._name, before, entity_id, self._value):
            return str(before)
        return self._sealer.bind(self._name, self._value, self._number, entity_id)

    def expected(self, entity_id: int, before: object) -> str:
        """Return the stored text that ``expected=`` must have for this value.

        Raises InvalidArgument for a caller that may not compare.
        """
        if not self._compares:
            raise InvalidArgument(
                f"the property {shown(self._name)} is secret, so a user cannot compare it with a plain value; "
                "as expected=, give the handle that load shows"
            )
        return self.bound(entity_id, before)


def bound(properties: Mapping[str, Any], entity_id: int, before: Mapping[str, Any]) -> dict[str, str]:
    """Return a call's secret properties in stored form; ``before``: the entity's present properties."""
    return {
        key: value.bound(entity_id, before.get(key)) for key, value in properties.items() if isinstance(value, Sealed)
    }


class Sealer:
    """Seals and opens values, with the data keys that it remembers."""

    def __init__(self, database: _Database) -> None:
        self._database = database
        self._ciphers: dict[int, AESSIV] = {}
        self._reserved = ReservedIds()

    def seal(self, name: str, value: str, number: int, *, compares: bool = True) -> Sealed:
        """Return the value of the property ``name``, encrypted with the data key ``number``.

        A missing data key is created.

        Raises SecretKeyMissing, SecretKeyWrong, SecretDamaged.
        """
        data = self._cipher(number).encrypt(value.encode(), _unbound(name))
        return Sealed(f"{SEALED}{number}:{to_text(data)}", self, name, value, number, compares)

    def keyed(self, text: str, number: int) -> str:
        """Return a digest of a text that only the data key ``number`` can make. Raises the errors of :meth:`seal`."""
        return hashlib.sha256(self._cipher(number).encrypt(text.encode(), [])).hexdigest()[:32]

    def bind(self, name: str, value: str, number: int, entity_id: int) -> str:
        """Return a value encrypted for one property of one entity. Raises the errors of :meth:`seal`."""
        salt = os.urandom(_SALT)
        data = self._cipher(number).encrypt(value.encode(), _about(name, entity_id, salt))
        return f"{SEALED}{number}:{to_text(salt + data)}"

    def open(self, name: str, value: object, entity_id: int, what: str) -> str:
        """Return the secret in a sealed value; ``what`` names the property. Raises the errors of :meth:`seal`."""
        parts = sealed_parts(value)
        if parts is None:
            raise SecretDamaged(f"{what} has a handle, but its secret is not in this database; set the property again")
        try:
            secret = self._opened(name, parts, entity_id)
        except SecretDamaged as error:  # its message names only the data key
            raise SecretDamaged(f"{what}: {error}") from None
        if secret is None:
            raise SecretDamaged(
                f"{what} is damaged: data key {parts[0]} does not open it; set the property again, or restore a backup"
            )
        return secret

    def has(self, name: str, value: object, entity_id: int, secret: str) -> bool:
        """Whether a stored value holds this secret. A value that does not open counts as different."""
        parts = sealed_parts(value)
        if parts is None:
            return False
        try:
            return self._opened(name, parts, entity_id) == secret
        except SecretDamaged:  # the data key of the stored value was destroyed
            return False

    def clear(self) -> None:
        """Forget the data keys and the reserved ids: the database may have neither, after a fail-over or from a backup.

        A value that is encrypted with a lost data key would be acknowledged, and no other process could read it.
        """
        self._ciphers = {}
        self._reserved.clear()

    def next_id(self) -> int:
        """Return an id that no other client gets."""
        return self._reserved.next(self._database)

    def _opened(self, name: str, parts: tuple[int, str], entity_id: int) -> str | None:
        """Return the secret in a ciphertext, bound or unbound; None if it does not open here."""
        key = self._cipher(parts[0])
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  (an extra)

        try:
            data = of_text(parts[1])
        except ValueError:
            return None
        for text, about in ((data[_SALT:], _about(name, entity_id, data[:_SALT])), (data, _unbound(name))):
            try:
                return key.decrypt(text, about).decode()
            except (InvalidTag, ValueError):
                continue
        return None

    def newest(self) -> int:
        """Return the number of the data key that a new catalog uses."""
        return _newest(self._database.secret_keys.rows())

    def destroyed(self) -> set[int]:
        """Return the numbers of the data keys that were destroyed."""
        return _destroyed(self._database.secret_keys.rows())

    def usable(self, declared: Declared) -> Declared:
        """Return the settings ``declared``, with the newest data key if theirs was destroyed.

        Also forget destroyed keys.

        A revert, an import or a restore can bring back settings with the number of a destroyed key. If this process
        still remembered that key, it would encrypt values that no other process can read.
        """
        if not declared.patterns:
            return declared
        rows = self._database.secret_keys.rows()
        destroyed = _destroyed(rows)
        for number in destroyed:
            self._ciphers.pop(number, None)
        return declared._replace(key=_newest(rows)) if declared.key in destroyed else declared

    def _cipher(self, number: int) -> AESSIV:
        ciphers = self._ciphers  # another thread may clear them during the read, whose key then must not stay
        known = ciphers.get(number)
        if known is None:
            known = ciphers[number] = cipher(unwrap(self._row(number)))
        return known

    def _row(self, number: int) -> KeyRow:
        row = next((row for row in self._database.secret_keys.rows() if row.number == number), None)
        if row is not None:
            return row
        key = current()
        return self._database.secret_keys.add(number, wrap(of_text(new_key()), number, key), key.name)


def _destroyed(rows: Sequence[KeyRow]) -> set[int]:
    return {row.number for row in rows if row.wrapped is None}


def _newest(rows: Sequence[KeyRow]) -> int:
    """Return the highest number of a data key that is not destroyed; if there is none, a new number."""
    there = [row.number for row in rows if row.wrapped is not None]
    return max(there or [row.number + 1 for row in rows], default=1)


def _unbound(name: str) -> list[bytes]:
    """Return the associated data of an unbound value."""
    return [name.encode()]


def _about(name: str, entity_id: int, salt: bytes) -> list[bytes]:
    """Return the associated data of a bound value. The salt is last, because RFC 5297 puts a nonce there."""
    return [name.encode(), b"entity %d" % entity_id, salt]
