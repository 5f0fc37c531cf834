"""The source: an owned row of a catalog that says which table a data set is, by the data set's location.

The crawler keeps one for every location that it has looked at. The unique name of an owned row decides between two
crawls that find one location at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc
from metastore.kinds.entity import Owned
from metastore.kinds.kind import OwnedKind
from metastore.names import clean_text

__all__ = ["SOURCE", "Source"]

_NOTHING: Mapping[str, int] = MappingProxyType({})


def _optional(value: Any) -> Any:
    return value


class Source(Owned):
    """A data set. ``table`` is the id of its table (None: nothing could be read), ``signature`` names its files' state.

    ``table_version`` is the table's version when the crawler wrote it last, ``edited`` whether others had changed it
    before. ``again``: files could not be used, so it is read again whatever the signature. ``policy``: what was to be
    done with changed types when some were left as they are. ``missing``: since when its files are gone. ``counts``
    are files, rows, bytes and partitions, ``run`` the crawl that wrote the row.
    """

    location: str
    table: int | None
    table_version: int | None
    signature: str | None
    again: bool
    edited: bool
    policy: str | None
    missing: str | None
    notes: tuple[str, ...]
    counts: Mapping[str, int]
    run: str | None

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "location": str,
        "table": _optional,
        "table_version": _optional,
        "signature": _optional,
        "again": bool,
        "edited": bool,
        "policy": _optional,
        "missing": _optional,
        "notes": tuple,
        "counts": MappingProxyType,
        "run": _optional,
    }


def _new_doc(
    *,
    location: Any,
    table: int | None = None,
    table_version: int | None = None,
    signature: str | None = None,
    again: bool = False,
    edited: bool = False,
    policy: str | None = None,
    missing: str | None = None,
    notes: Sequence[str] = (),
    counts: Mapping[str, int] = _NOTHING,
    run: str | None = None,
) -> Doc:
    if not clean_text(location, "a source's location"):
        raise InvalidArgument("a source's location must not be empty")
    return {
        "location": location,
        "table": table,
        "table_version": table_version,
        "signature": signature,
        "again": again,
        "edited": edited,
        "policy": policy,
        "missing": missing,
        "notes": list(notes),
        "counts": dict(counts),
        "run": run,
    }


SOURCE = OwnedKind("source", Source, new_doc=_new_doc)
