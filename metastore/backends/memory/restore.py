"""Restore into the memory model: into new tables, which replace the empty ones at the end."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from metastore.backends.memory.tables import Body, Stand, Tables
from metastore.port.conditions import LIVE
from metastore.port.records import OwnedRecord, Step
from metastore.port.relations import RelationRecord
from metastore.port.restore import COLUMNS, Ending, Row, Rows, raise_not_empty, raise_overtaken

Take = Callable[[Tables, int, str], None]
"""A function that gives the database these tables, gc's last position, and the epoch; raises if it is not empty."""


def require_empty(tables: Tables) -> None:
    """Raise InvalidArgument for tables that are not empty."""
    if len(tables.stands) > 1 or tables.bodies or tables.owned or tables.steps:
        raise_not_empty()


class MemoryRestorer:
    """The implementation of :class:`metastore.port.restore.Restorer`; an unfinished restore is forgotten."""

    def __init__(self, empty: Tables, take: Take) -> None:
        self._tables, self._take = empty, take
        self._mark = 0

    def begin(self, token: str, last_id: int, last_seq: int) -> int:
        drawn = self._tables.drawn
        drawn["id"], drawn["seq"] = max(drawn["id"], last_id), max(drawn["seq"], last_seq)
        return 0

    def write(self, token: str, last: int, mark: int, rows: Rows) -> None:
        if last != self._mark:
            raise_overtaken()
        for table, some in rows.items():
            for row in some:
                self._add(table, row)
        self._mark = mark

    def finish(self, token: str, last: int, ending: Ending) -> None:
        self.write(token, last, last, {"guard": ending.top})
        self._tables.drawn["forgotten"], self._tables.drawn["restored"] = ending.forgotten, self._tables.drawn["seq"]
        self._tables.steps.sort(key=lambda step: step.seq or 0)
        steps = [step for step in self._tables.steps if step.seq is not None and step.kind != "lease"]
        if ending.collected_seq or any(step.parent_id is None for step in steps):
            self._tables.drawn["past_from"] = max((step.seq or 0 for step in steps), default=0)
            taken = {(s.entity_id, s.parent_id, s.name) for s in steps if s.key is not None}
            self._tables.steps[:] = [
                step if (step.entity_id, step.parent_id, step.name) in taken else self._completed(step)
                for step in self._tables.steps
            ]
        self._take(self._tables, ending.collected_seq, ending.epoch)

    def _completed(self, step: Step) -> Step:
        """Return the newest step of a row with the row's place: the past begins with the restore."""
        stand, body = self._tables.stands.get(step.entity_id or -1), self._tables.bodies.get(step.entity_id or -1)
        if stand is not None and body is not None and body.version == step.version:
            place = step._replace(parent_id=stand.parent_id, name=stand.name, fold=stand.fold, state=stand.state)
            return place._replace(family=stand.family, key=stand.key) if stand.state == LIVE else place
        there = (step.entity_id, step.version)
        for row in self._tables.owned.values():
            if (row.id, row.version) == there:
                return step._replace(parent_id=row.owner_id, name=row.name, state=LIVE, family=row.kind, key=row.name)
        for one in self._tables.relations.values():
            if (one.id, one.version) == there:
                name = str(one.id)
                return step._replace(parent_id=one.from_id, name=name, state=LIVE, family=one.kind, key=name)
        return step

    def _add(self, table: str, row: Row) -> None:
        values = dict(zip(COLUMNS[table], row, strict=True))
        if table == "guard":
            values["mark"] = values["mark"] and UUID(values["mark"])
            self._tables.stands[values["id"]] = Stand(**values)
        elif table == "entity":
            row_id = values.pop("id")
            self._tables.bodies[row_id] = Body(**values)
        elif table == "owned":
            self._tables.owned[values["owner_id"], values["kind"], values["name"]] = OwnedRecord(**values)
        elif table == "relation":
            relation = RelationRecord(**values)
            self._tables.relations[relation.key] = relation
        else:
            values["operation_id"] = UUID(values["operation_id"])
            self._tables.steps.append(Step(**values))
