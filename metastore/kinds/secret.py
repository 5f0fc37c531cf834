"""A property whose value is a secret: the value that a document holds in its place, and the one that readers see.

``ms.secret("env:NAME")`` and ``ms.secret("file:/path")`` refer to the place of the secret. A document holds the
reference after the word ``secret:``, which any client can write: ``secret:env:NAME``. An entity shows it as a
:class:`Secret`, which equals ``env:NAME``. Only :func:`read` ever holds the secret itself, and only ``store.reveal``
calls it.

A *sealed* value is encrypted (:mod:`metastore.secrets`). A document holds ``secret:sealed:KEY:CIPHERTEXT``; KEY is the
number of its data key. Readers see a *handle*, ``secret:sealed:KEY:FINGERPRINT``, which identifies the ciphertext and
reveals nothing about it. If a handle is written back, the property keeps the sealed value that has this handle. If
it has no such value, the handle itself is stored: the secret is not in this database, and must be set again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.names import clean_text
from metastore.plain import ReadOnly

__all__ = [
    "REDACTED",
    "SEALED",
    "Secret",
    "as_secret",
    "as_shown",
    "is_sealed",
    "kept",
    "kept_from_file",
    "kept_in",
    "kept_readable",
    "key_numbers",
    "masked",
    "properties_shown",
    "read",
    "sealed_parts",
    "secret",
    "stored",
]

PREFIX: Final = "secret:"
"""The prefix of a stored value that represents a secret."""
SEALED: Final = "secret:sealed:"
"""The prefix of a sealed value, and of its handle."""
REDACTED: Final = "secret:redacted"
"""The text that ``metastore secrets scrub`` writes into history in place of a plain value."""
_SHORTEST: Final = 22
"""The fewest characters of a ciphertext: 16 bytes in base64. A fingerprint is shorter: it has 16 characters."""
_CIPHER: Final = re.compile(rf"secret:sealed:([0-9]{{1,9}}):([A-Za-z0-9_-]{{{_SHORTEST},}})")
_IN_JSON: Final = re.compile(rf'(?P<quote>\\*"){_CIPHER.pattern}(?P=quote)')
"""A sealed value in JSON text, or in JSON text that is a string of other JSON text."""
_HANDLE: Final = re.compile(r"secret:(sealed:[0-9]{1,9}:[0-9a-f]{16})")
_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00]+")
_LARGEST: Final = 1 << 16
"""The largest size of a file with a secret, in bytes."""


class Secret(str):
    """A property's value that represents a secret: a reference such as ``env:NAME``, or a handle ``sealed:…``."""

    __slots__ = ()

    @property
    def stored(self) -> str:
        """The text that clients in other languages read and write: ``secret:env:NAME``."""
        return PREFIX + self

    def __repr__(self) -> str:
        return f"secret({str.__repr__(self)})"


def secret(reference: str) -> Secret:
    """Return a property's value that refers to a secret: ``env:NAME`` (a variable) or ``file:/path`` (a file).

    ``load`` returns the reference, never the secret; ``store.reveal(target, key)`` reads the secret, in the process
    that calls it. Raises InvalidArgument for any other text, which the message does not repeat.
    """
    text = clean_text(reference, "a reference to a secret")
    if not _REFERENCE.fullmatch(text):
        raise InvalidArgument(
            "a reference to a secret is env:NAME or file:/path; put the secret itself into a variable or a file"
        )
    return Secret(text)


def stored(value: object) -> object:
    """Return a property's value as a document stores it."""
    return value.stored if isinstance(value, Secret) else value


def as_secret(value: str) -> Secret | None:
    """Return the secret that a stored value represents; None if it is plain text, or not a well-formed secret."""
    if not value.startswith(PREFIX):
        return None
    if value.startswith(SEALED):
        handle = _HANDLE.fullmatch(as_shown(value))
        return None if handle is None else Secret(handle[1])
    reference = value[len(PREFIX) :]
    return Secret(reference) if _REFERENCE.fullmatch(reference) else None


def is_sealed(value: str) -> bool:
    """Whether a stored value is encrypted: a plain one may begin alike."""
    return value.startswith(SEALED) and as_secret(value) is not None


def sealed_parts(value: object) -> tuple[int, str] | None:
    """Return the number of the data key and the ciphertext of a sealed value; None: the value is not sealed."""
    # isinstance trusts __class__, which an object may fake; type() does not
    if not isinstance(value, str) or not issubclass(type(value), str):
        return None
    matched = _CIPHER.fullmatch(value)
    return None if matched is None else (int(matched[1]), matched[2])


def key_numbers(text: str) -> set[int]:
    """Return the numbers of the data keys that sealed values in JSON text need."""
    return {int(cipher[1]) for cipher in _CIPHER.finditer(text)} if SEALED in text else set()


def as_shown(value: Any) -> Any:
    """Return a stored value as clients see it: the handle of a sealed value, any other value unchanged."""
    if not isinstance(value, str) or not value.startswith(SEALED):
        return value
    parts = sealed_parts(value)
    return value if parts is None else f"{SEALED}{parts[0]}:{_fingerprint(parts[1])}"


def _fingerprint(ciphertext: str) -> str:
    return sha256(ciphertext.encode()).hexdigest()[:16]


def masked(text: str) -> str:
    """Return JSON text in which each sealed value is replaced by its handle."""
    if not isinstance(text, str) or SEALED not in text:  # SQLite returns text that is not UTF-8 as bytes
        return text
    return _IN_JSON.sub(lambda cipher: f"{cipher[1]}{SEALED}{cipher[2]}:{_fingerprint(cipher[3])}{cipher[1]}", text)


def kept(value: str, before: object) -> str:
    """Return the value to store in place of ``before``: ``before`` itself if ``value`` is its handle."""
    is_handle = value.startswith(SEALED) and isinstance(before, str)
    return str(before) if is_handle and as_shown(before) == value else value


def kept_in(properties: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that replace ``before``. The handle of a sealed value becomes this value again."""
    return {key: kept(value, before.get(key)) for key, value in properties.items()}


def kept_from_file(properties: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of an export that replace ``before``: a handle never replaces a sealed value.

    The file has no secrets, so the sealed value in this database stays, even if it was set again since and has another
    handle.
    """
    is_here = {key for key in properties if sealed_parts(before.get(key)) is not None}
    return {
        key: before[key] if key in is_here and _HANDLE.fullmatch(value) else value for key, value in properties.items()
    }


def kept_readable(
    properties: Mapping[str, str], before: Mapping[str, Any], destroyed: Collection[int]
) -> dict[str, str]:
    """Return the properties of the past that replace ``before``.

    A value that nobody can read any more is replaced by the present value: a value that a scrub removed from history,
    or one that is encrypted by a ``destroyed`` data key.
    """

    def lost(value: object) -> bool:
        parts = sealed_parts(value)
        return value == REDACTED or (parts is not None and parts[0] in destroyed)

    return {key: before[key] if lost(value) and key in before else value for key, value in properties.items()}


class _Properties(ReadOnly):
    """The properties of an entity, some of which are secrets.

    The dictionary itself holds plain strings, because encoders in C such as ``msgspec`` read it directly. Python code
    gets each secret as a :class:`Secret`, also in a copy: because ``__iter__`` is overridden, ``dict(…)`` and ``{**…}``
    look up each value.
    """

    __slots__ = ("_secrets",)

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__({key: str.__str__(value) for key, value in properties.items()})
        self._secrets = {key: value for key, value in properties.items() if isinstance(value, Secret)}

    def __getitem__(self, key: str) -> str:
        secret = self._secrets.get(key)
        value: str = dict.__getitem__(self, key) if secret is None else secret
        return value

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def values(self) -> Any:
        return dict(self).values()

    def items(self) -> Any:
        return dict(self).items()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | dict(other)

    def __ror__(self, other: Any) -> Any:
        return dict(other) | dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Properties, (dict(self),)


def properties_shown(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of a document as an entity shows them: each secret is a :class:`Secret`."""
    if not any(value.startswith(PREFIX) for value in properties.values()):
        return ReadOnly(properties)
    return _Properties({key: as_secret(value) or value for key, value in properties.items()})


def read(reference: Secret, what: str) -> str:
    """Return the secret; ``what`` names the property. Raises InvalidArgument, which shows no part of the secret."""
    scheme, _, place = reference.partition(":")
    if scheme == "env":
        value = os.environ.get(place)
        if value is None:
            raise InvalidArgument(f"{what} refers to the variable {place}, which this process does not have; set it")
        return value
    return _content(Path(place), what)


def _content(path: Path, what: str) -> str:
    """Return a file's text, without the line feed at its end that editors add."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InvalidArgument(f"{what} refers to the file {shown(str(path))}, which cannot be read: {why}") from None
    if len(content) > _LARGEST:
        raise InvalidArgument(f"{what} refers to a file of more than {_LARGEST} bytes; a secret is smaller")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidArgument(f"{what} refers to a file that is not UTF-8 text") from None
