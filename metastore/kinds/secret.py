"""A property whose value is a secret: what a document holds in its place, and what a reader is shown.

``ms.secret("env:NAME")`` and ``ms.secret("file:/path")`` refer to where the secret is. A document holds the reference
after the word ``secret:``, as any client can write it: ``secret:env:NAME``. An entity shows it as a :class:`Secret`,
which equals ``env:NAME``. Nothing but :func:`read` ever holds the secret itself, and only ``store.reveal`` calls it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.names import clean_text
from metastore.plain import read_only

__all__ = ["Secret", "properties_shown", "read", "secret", "stored"]

PREFIX: Final = "secret:"
"""How a stored value begins that stands for a secret."""
_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00]+")
_LARGEST: Final = 1 << 16
"""How many bytes a file with a secret may have."""


class Secret(str):
    """A reference to a secret, as a property's value. As a string it is the reference, such as ``env:NAME``."""

    __slots__ = ()

    @property
    def stored(self) -> str:
        """The text that a document holds, and that clients without Python write: ``secret:env:NAME``."""
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
    """Return a property's value as a document holds it."""
    return value.stored if isinstance(value, Secret) else value


def as_secret(value: str) -> Secret | None:
    """Return the secret that a stored value stands for; None: it is plain text."""
    if not value.startswith(PREFIX):
        return None
    reference = value[len(PREFIX) :]
    return Secret(reference) if _REFERENCE.fullmatch(reference) else None


def properties_shown(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of a document as an entity shows them: secrets as :class:`Secret`."""
    if not any(value.startswith(PREFIX) for value in properties.values()):
        return read_only(properties)
    return read_only({key: as_secret(value) or value for key, value in properties.items()})


def read(reference: Secret, what: str) -> str:
    """Return the secret; ``what`` names the property. Raises InvalidArgument, which never shows any of the secret."""
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
