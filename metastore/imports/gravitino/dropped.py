"""Import dropped entities that Gravitino still keeps: create and drop each in one commit, so that it can be restored.

If entities were dropped together with their schema or catalog, it imports only that container, without content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metastore.errors import EntityAlreadyExists, LeaseLost, MetastoreError
from metastore.imports.gravitino.reading import read_one
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.things import BELOW_METALAKE, BELOW_SCHEMA, CATALOG, SCHEMA, Shape, Thing
from metastore.imports.gravitino.values import DAMAGED, Key

if TYPE_CHECKING:
    from metastore.leases.lease import Lease
    from metastore.store import Store
    from metastore.transaction.transaction import Transaction

__all__ = ["import_dropped"]

Names = tuple[str, ...]
_ASIDE: Final = "~dropped"
"""The suffix of a dropped entity's name if a live entity has the name."""


def import_dropped(store: Store, lease: Lease, source: Source, live: Mapping[Key, Names]) -> int:
    """Import the entities that were dropped below live parents and are not in the store yet; return how many.

    ``lease``: that of the import, which each commit requires. ``live``: the paths of the imported entities.
    """
    done = 0
    for metalake in [key for key in live if key[0] == "metalake"]:
        levels = [(CATALOG, "metalake"), (SCHEMA, "catalog"), *((shape, "schema") for shape in BELOW_SCHEMA)]
        levels += [(shape, "metalake") for shape in BELOW_METALAKE if shape.kind in ("tag", "policy", "role")]
        for shape, above in levels:
            done += _of_shape(store, lease, _dropped(source, metalake, shape, above, live), source, shape)
    return done


class _Gone(NamedTuple):
    at: int
    """When it was dropped."""
    key: int
    parent: Names
    name: str
    row: Row


def _dropped(source: Source, metalake: Key, shape: Shape, above: str, live: Mapping[Key, Names]) -> list[_Gone]:
    """Return the dropped entities below live parents, in the order of their drops. Leave out damaged rows."""
    found = []
    for row in source.rows(shape.table, metalake_id=metalake[1], deleted_at=...):
        with suppress(*DAMAGED):
            parent = live.get((above, int(row[f"{above}_id"])))
            if row["deleted_at"] and parent is not None:
                found.append(_Gone(int(row["deleted_at"]), shape.key(row), parent, shape.name(row), row))
    return sorted(found, key=lambda one: one.at)


def _of_shape(store: Store, lease: Lease, gone: list[_Gone], source: Source, shape: Shape) -> int:
    parts = _parts(source, shape, [one.key for one in gone])
    done, there = 0, Counter[tuple[Names, str]]()
    manager: Any = store.manager(shape.kind)
    for parent in {one.parent for one in gone}:
        there.update((parent, one.name.removesuffix(_ASIDE)) for one in manager.dropped(parent))
    for one in gone:
        if there[(one.parent, one.name)] > 0:
            there[(one.parent, one.name)] -= 1
            continue
        made = read_one(shape, one.row, {word: some.get(one.key, []) for word, some in parts.items()})
        done += isinstance(made, Thing) and _made_and_dropped(store, lease, shape, (*one.parent, one.name), made)
    return done


def _parts(source: Source, shape: Shape, ids: list[int]) -> dict[str, dict[int, list[Row]]]:
    parts: dict[str, dict[int, list[Row]]] = {}
    if not ids:
        return parts
    for word, (table, version) in shape.parts.items():
        some: dict[int, list[Row]] = {}
        for row in source.rows(table, **{f"{shape.prefix}_id": ids, "deleted_at": ...}):
            some.setdefault(int(row[f"{shape.prefix}_id"]), []).append(row)
        parts[word] = {key: sorted(rows, key=lambda row: int(row[version] or 0)) for key, rows in some.items()}
    return parts


def _made_and_dropped(store: Store, lease: Lease, shape: Shape, names: Names, thing: Thing) -> bool:
    """Create and drop an entity. If a live entity has its name, add a suffix, which a restore may change."""

    def make(tx: Transaction, at: Names) -> None:
        manager: Any = tx.manager(shape.kind)
        given = _given(shape, thing)
        manager.drop(manager.create(at, **given))

    for at in (names, (*names[:-1], names[-1] + _ASIDE)):
        try:
            store.run(lambda tx, at=at: make(tx, at), lease=lease)  # type: ignore[misc]
        except EntityAlreadyExists:
            continue
        except LeaseLost:
            raise
        except MetastoreError:
            return False
        return True
    return False


def _given(shape: Shape, thing: Thing) -> dict[str, Any]:
    from metastore.kinds.registry import KINDS  # noqa: PLC0415

    fields = KINDS[shape.kind].entity.doc_fields
    values = {name: one.decode(thing.doc[name]) for name, one in fields.items() if one.given and name in thing.doc}
    return {"comment": thing.doc["comment"], "properties": thing.doc["properties"], **values}
