"""A fast door into an empty database: whole rows with their history, as an import with ids and history writes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import metastore as ms
from metastore.kinds.registry import kind_named
from metastore.kinds.relation import relation_doc, relation_named
from metastore.port.restore import COLUMNS, Ending

__all__ = ["Door"]

_ROWS: Final = 20_000
"""How many rows are written at once."""
_WHO: Final = "grow"
_DAY: Final = 86_400_000_000


class Door:
    """Makes entities, owned rows and relations, each with the step of the feed that made it."""

    def __init__(self, store: ms.Store, most: int) -> None:
        """``most``: at most so many rows are made."""
        backend = store._session.backend
        self._restorer, self._epoch = backend.restorer(), backend.feed_start()[0]
        self._begun = backend.now() - _DAY
        self._id = self._seq = 0
        self._mark = self._restorer.begin("grow", most, most)
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._top: list[tuple[Any, ...]] = []
        self._waiting = 0
        self.paths: dict[int, str] = {0: ""}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._write()
            self._restorer.finish("grow", self._mark, Ending(self._top, 0, 0, self._epoch))

    def entity(self, parent: int, kind: str, name: str, doc: str, versions: int = 1) -> int:
        """Make an entity; each version after the first is a step that sets a property of no consequence."""
        new, family = self._next(), kind_named(kind).family
        path = f"{self.paths[parent]}.{name}".lstrip(".")
        if kind_named(kind).container or versions > 1:
            self.paths[new] = path
        guard = {"id": new, "parent_id": parent, "kind": kind, "family": family, "name": name, "key": name}
        guard |= {"fold": False, "state": 0, "in_use": True, "scope_version": 1}
        self._add("guard", guard, self._top if parent == 0 else None)
        stood = {"parent_id": parent, "name": name, "fold": False, "state": 0, "scope_version": 1, "in_use": True}
        made = 0
        for version in range(1, versions + 1):
            first = version == 1
            place = {"action": "create", "path_after": path, "changes": "[]", "family": family, "key": name}
            again = {"action": "alter", "path_before": path, "path_after": path, "changes": _CHANGE}
            at = self._step({**stood, **(place if first else again), "entity_id": new, "version": version}, kind, doc)
            made = at if first else made
        self._add("entity", {"id": new, "version": versions, "doc": doc, **_audit(made, at)})
        return new

    def owned(self, owner: int, path: str, kind: str, name: str, doc: str) -> None:
        """Make a row that an entity owns."""
        new = self._next()
        stood = {"parent_id": owner, "name": name, "state": 0, "family": kind, "key": name, "owner_id": owner}
        step = {**stood, "action": "create", "path_after": f"{path}.{name}", "changes": "[]"}
        at = self._step({**step, "entity_id": new, "version": 1}, kind, doc)
        row = {"owner_id": owner, "kind": kind, "name": name, "id": new, "version": 1, "doc": doc}
        self._add("owned", {**row, **_audit(at, at)})

    def relation(self, kind: str, one: tuple[int, str], other: tuple[int, str], value: str = "") -> None:
        """Relate an entity to another; each is an id and a path."""
        new, of = self._next(), relation_named(kind)
        doc = relation_doc(other[0], 0, value)
        path, far = (other[1], one[1]) if of.to_the_object else (one[1], other[1])
        stood = {"parent_id": one[0], "name": str(new), "state": 0, "family": kind, "key": str(new)}
        ends = {"owner_id": one[0], "other_id": other[0], "path_after": path, "other_path": far}
        at = self._step(
            {**stood, **ends, "action": "create", "changes": "[]", "entity_id": new, "version": 1}, kind, doc
        )
        slot = 0 if of.exclusive else other[0]
        row = {"from_id": one[0], "kind": kind, "slot": slot, "column_id": 0, "value": value, "id": new}
        self._add("relation", {**row, "to_id": other[0], "version": 1, **_audit(at, at)})

    def _next(self) -> int:
        self._id += 1
        return self._id

    def _step(self, step: Mapping[str, Any], kind: str, doc: str) -> int:
        self._seq += 1
        time = self._begun + self._seq
        # a UUIDv7: the time in ms, the version, a number, the variant
        one = UUID(int=(time // 1000 << 80) | (7 << 76) | (2 << 62) | self._seq)
        named = {"operation_id": str(one), "ordinal": 0, "seq": self._seq, "kind": kind, "principal": _WHO}
        self._add("operation", {**named, "time": time, "doc": doc, **step})
        return time

    def _add(self, table: str, row: Mapping[str, Any], into: list[tuple[Any, ...]] | None = None) -> None:
        rows = self._rows.setdefault(table, []) if into is None else into
        rows.append(tuple([row.get(column) for column in COLUMNS[table]]))
        self._waiting += 1
        if self._waiting >= _ROWS:
            self._write()

    def _write(self) -> None:
        last, self._mark = self._mark, self._mark + 1
        self._restorer.write("grow", last, self._mark, self._rows)
        self._rows, self._waiting = {}, 0


_CHANGE: Final = '[{"change":"SetProperty","key":"k","value":"v"}]'


def _audit(made: int, modified: int) -> dict[str, Any]:
    return {"created_by": _WHO, "created_at": made, "modified_by": _WHO, "modified_at": modified}
