"""Convert PyIceberg's identifiers to paths of the store, and the store's errors to PyIceberg's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServiceUnavailableError,
)
from pyiceberg.typedef import Identifier, Properties
from sqlalchemy.exc import IntegrityError

from metastore.errors import (
    BackendRefused,
    BackendUnavailable,
    DeadlineExceeded,
    EntityNotFound,
    InvalidArgument,
    NotInUse,
    OperationIdReused,
    OutcomeUnknown,
    PermissionDenied,
    RetriesExhausted,
    ScopeFrozen,
    StoreClosed,
    VersionConflict,
)
from metastore.kinds.kind import MAX_DOC
from metastore.kinds.secret import stored
from metastore.names import clean_name

__all__ = [
    "InvalidProperty",
    "check_properties",
    "errors_of_iceberg",
    "missing_raises",
    "namespace_names",
    "no_namespace",
    "no_table",
    "parts",
    "property_texts",
    "shown",
    "table_names",
]

_QUOTES: Final = len('"":"",')
"""How many characters JSON needs for a property, besides its key and its value."""


class InvalidProperty(ValueError, IntegrityError):
    """A property has no key or no value.

    It is also an IntegrityError, which PyIceberg's SQL catalog raises, and which its users catch.
    """

    def __init__(self, message: str) -> None:
        """Make the error from a message alone, as a ValueError is made."""
        IntegrityError.__init__(self, message, None, Exception(message))


def parts(identifier: str | Identifier) -> Identifier:
    """Return the names of an identifier. A string is cut at its dots; a tuple is taken as it is."""
    return identifier if isinstance(identifier, tuple) else tuple(identifier.split("."))


def table_names(identifier: str | Identifier) -> Identifier:
    """Return the names of a new table or view, before any of its files is written. Raises ValueError for a bad name."""
    names = parts(identifier)
    namespace_names(names[:-1])
    with errors_of_iceberg():
        return (*names[:-1], clean_name(names[-1]))


def shown(identifier: Identifier) -> str:
    """Return an identifier as PyIceberg's messages write it."""
    return ".".join(identifier)


def namespace_names(namespace: str | Identifier) -> Identifier:
    """Return the names of a namespace. Raises NoSuchNamespaceError if it has no names, or one of them is blank."""
    names = parts(namespace)
    if not names:
        raise NoSuchNamespaceError("Empty namespace identifier")
    if any(not name.strip() for name in names):
        raise NoSuchNamespaceError("Namespace identifier contains an empty segment or a segment with only whitespace")
    return names


def no_namespace(names: Identifier) -> NoSuchNamespaceError:
    """Return the error for a namespace that does not exist."""
    return NoSuchNamespaceError(f"Namespace does not exist: {shown(names)}")


def no_table(names: Identifier) -> NoSuchTableError:
    """Return the error for a table that does not exist."""
    return NoSuchTableError(f"Table does not exist: {shown(names)}")


@contextmanager
def missing_raises(error: Exception) -> Iterator[None]:
    """Raise ``error`` in place of the store's EntityNotFound."""
    try:
        yield
    except EntityNotFound as missing:
        raise error from missing


@contextmanager
def errors_of_iceberg(*kept: type[Exception]) -> Iterator[None]:
    """Turn errors of the store into those that users of PyIceberg catch; the classes ``kept`` pass unchanged.

    A call that certainly did nothing, and may succeed later, raises ServiceUnavailableError.
    """
    try:
        yield
    except kept:
        raise
    except OperationIdReused:  # the caller's loop handles it
        raise
    except OutcomeUnknown as error:
        raise CommitStateUnknownException(str(error)) from error
    except (BackendRefused, PermissionDenied) as error:
        raise ForbiddenError(str(error)) from error
    except (VersionConflict, NotInUse) as error:
        raise CommitFailedException(str(error)) from error
    except (BackendUnavailable, StoreClosed, RetriesExhausted, ScopeFrozen, DeadlineExceeded) as error:
        raise ServiceUnavailableError(str(error)) from error
    except InvalidArgument as error:
        raise ValueError(str(error)) from error


def property_texts(properties: Properties) -> dict[str, str]:
    """Return properties as texts: ``secret:env:NAME`` for a reference to a secret.

    Raises InvalidProperty if a key or a value is None, ValueError for too many.
    """
    if any(key is None or value is None for key, value in properties.items()):
        raise InvalidProperty("a property needs a key and a value; None is neither")
    texts = {str(key): str(stored(value)) for key, value in properties.items()}
    check_properties(texts)
    return texts


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ValueError for more properties than the store holds, before a file is written.

    The store would find that out too, but after many times the work.
    """
    size = sum(len(key) + len(value) + _QUOTES for key, value in properties.items())
    if size > MAX_DOC:
        raise ValueError(f"the properties have {size} bytes; at most {MAX_DOC} are allowed; remove some")
