"""The metalake of a load test: no other program uses it, and each run creates it again."""

from __future__ import annotations

from typing import Final

from metastore.errors import InvalidArgument
from metastore.names import format_path, parse_path
from metastore.store import Store

__all__ = ["check_ground", "make_ground", "names_of"]

_MARK: Final = "made-by"
_OURS: Final = "metastore loadtest"


def names_of(metalake: str) -> tuple[str, str]:
    """Return the names on the path of the catalog. Raises InvalidArgument unless ``metalake`` is one name."""
    names = parse_path(metalake)
    if len(names) != 1:
        raise InvalidArgument(f"a load test needs a metalake of its own: give one name, not {metalake!r}")
    return names[0], "c"


def check_ground(store: Store, metalake: str) -> None:
    """Raise InvalidArgument if the metalake exists and was not created by a load test."""
    names = names_of(metalake)[:1]
    (existing,) = store.metalakes.load_many([names])
    if existing is not None and existing.properties.get(_MARK) != _OURS:
        raise InvalidArgument(
            f"the metalake {existing.path} exists and was not created by a load test: choose another, --metalake"
        )


def make_ground(store: Store, metalake: str) -> str:
    """Drop the previous run's metalake, and return the path of a new, empty catalog. gc deletes the old one later."""
    check_ground(store, metalake)
    names = names_of(metalake)
    store.metalakes.drop(names[:1], cascade=True)
    store.metalakes.create(names[:1], properties={_MARK: _OURS})
    store.catalogs.create(names, type="relational")
    return format_path(names)
