"""A field of a kind, declared once, on the class of its entities.

    class Table(Entity):
        location: str | None = doc_field(clean_location, default=None)

The declaration says what ``create`` and ``create_many`` take, check and store, what ``if_exists="replace"`` writes, and
what the entity shows. ``ms.json_schema`` describes the field by its annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from metastore.arguments import items, shown
from metastore.errors import InvalidArgument, UnreadableRow
from metastore.port.unreadable import damaged, fails

__all__ = ["REQUIRED", "DocField", "Stored", "as_stored", "check_names", "decoded", "doc_field"]

T = TypeVar("T")
Doc = dict[str, Any]
Check = Callable[[Any], Any]
CheckBeside = Callable[[Any, Doc, Mapping[str, Any]], Any]

REQUIRED: Final[Any] = object()
"""The default of a field that the caller must give."""


class Stored(Protocol):
    """A row that a field reads its value from: an entity, or an owned row."""

    @property
    def _parsed(self) -> Mapping[str, Any]: ...
    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def version(self) -> int: ...


def as_stored(value: Any) -> Any:
    """Return ``value`` unchanged: the entity shows the JSON value of the document."""
    return value


def decoded(row: Stored, decode: Callable[[], T]) -> T:
    """Return the result of ``decode``. Any error of the row becomes UnreadableRow, which names it."""
    try:
        return decode()
    except Exception as error:
        named = isinstance(error, UnreadableRow) and error.kind is not None
        if named or not fails(decode):
            raise
        raise damaged(error, row.kind, row.id, row.version) from error


class DocField:
    """A field: how it is checked, stored and shown. The attribute of an entity is decoded at its first read.

    The attributes are the arguments of :func:`doc_field`.
    """

    name: str

    def __init__(
        self,
        check: Check | None,
        *,
        beside: CheckBeside | None,
        default: Any,
        decode: Check,
        given: bool,
        fixed: bool,
        several: bool,
        later: bool,
        joined: Callable[[Any, Any], Any] | None,
    ) -> None:
        self.check = beside or _alone(check or as_stored)
        self.default, self.decode = default, decode
        self.given, self.fixed, self.several, self.later = given, fixed, several, later
        self.joined = joined
        self.alone = beside is None and given and not fixed
        """Whether the stored value depends only on the given one, not on other fields or the document that is replaced.
        """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, row: Stored | None, owner: type) -> Any:
        if row is None:
            return self
        parsed = row._parsed  # noqa: SLF001  (a field is a part of its class)
        # the class has no __set__, so Python now finds the value in the instance, and does not call this method again
        value = vars(row)[self.name] = decoded(row, lambda: self.decode(self.stored_in(parsed)))
        return value

    def take(self, value: Any) -> Any:
        """Return the caller's value in a form that can be read more than once: an iterator becomes its items."""
        return items(value, self.name.replace("_", " ")) if self.several else value

    def value(self, given: Mapping[str, Any], draft: Doc, old: Mapping[str, Any]) -> Any:
        """Return the JSON value to store, or raise InvalidArgument.

        ``draft`` has the fields declared before this one; ``old`` is the document that is replaced, or empty.
        """
        kept = old and (self.fixed or not self.given)
        if not self.given or (kept and self.name not in given):
            return old[self.name] if kept else self.check(self.default, draft, old)
        value = self.check(given.get(self.name, self.default), draft, old)
        if kept and value != old[self.name]:
            raise InvalidArgument(f"{self.name} is fixed when the entity is created; drop it and create another")
        return value

    def stored_in(self, doc: Mapping[str, Any]) -> Any:
        """Return the field's JSON value in a document; the default if the document is older than the field."""
        if self.later and self.name not in doc and self.default is not REQUIRED:
            return self.absent()
        return doc[self.name]

    def absent(self) -> Any:
        """Return the JSON value for a document without this field: the default, or None without a default."""
        return None if self.default is REQUIRED else self.check(self.default, {}, {})


def doc_field(
    check: Check | None = None,
    *,
    beside: CheckBeside | None = None,
    default: Any = REQUIRED,
    decode: Check = as_stored,
    given: bool = True,
    fixed: bool = False,
    several: bool = False,
    later: bool = False,
    joined: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Declare a field. The annotation of the attribute says its type.

    ``check`` turns the caller's value into the JSON value to store, or raises InvalidArgument. ``beside`` does the same
    for a field that depends on others: it also gets the draft with the fields declared before (and may add to it), and
    the document that is replaced. ``default`` is checked and stored if the caller gives no value. ``decode`` turns the
    stored value into the one that entities show. ``given=False``: ``create`` does not take the field, and a replacement
    keeps its value. ``fixed``: a replacement cannot change it. ``several``: it takes any iterable, and its default is
    ``()``. ``later``: documents may be older than the field, and then show its default. ``joined`` returns the value
    that an import stores; it gets the value in the file and the one in the database.
    """
    return DocField(
        check,
        beside=beside,
        default=() if several else default,
        decode=decode,
        given=given,
        fixed=fixed,
        several=several,
        later=later,
        joined=joined,
    )


def _alone(check: Check) -> CheckBeside:
    def checked(given: Any, draft: Doc, old: Mapping[str, Any]) -> Any:  # noqa: ARG001
        return check(given)

    return checked


def check_names(what: str, fields: Mapping[str, DocField], given: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a field that a ``what`` does not take, and for a required field that is missing."""
    unknown = [_named(name) for name in given if name not in fields or not fields[name].given]
    if unknown:
        raise InvalidArgument(f"a {what} has no field {', '.join(unknown)}")
    missing = [name for name, field in fields.items() if field.default is REQUIRED and name not in given]
    if missing:
        raise InvalidArgument(f"a {what} needs {', '.join(missing)}")


def _named(name: object) -> str:
    return name if isinstance(name, str) and name.isidentifier() else shown(name)
