"""The statements that read and sweep relations, on both SQL databases.

Each end of a relation comes with its ancestors as JSON, one array for each node: (height, id, kind, name, scope
version, in use, fold, state). So a statement returns all that decides whether a relation is live, at one instant and at
any depth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from metastore.backends.sql.dialect import Dialect
from metastore.backends.sql.reads import OWNED, level
from metastore.port.records import Lookup, Node, OwnedRecord
from metastore.port.relations import GONE, End, Owning, Related, Relating, RelationRecord, Sweep, end_of
from metastore.port.unreadable import DEEPEST

COLUMNS = "r.from_id, r.kind, r.slot, r.column_id, r.value, r.id, r.to_id, r.version, r.created_by, r.created_at"
COLUMNS += ", r.modified_by, r.modified_at"
"""The columns of a :class:`RelationRecord`, in its order."""

_NODE = "u.height, u.id, u.kind, u.name, u.scope_version, u.in_use, u.fold, u.state"
_OF_GUARD = "g.id, g.parent_id, g.kind, g.name, g.scope_version, g.in_use, g.fold, g.state"
_COLUMNS_OF_NODE = ("id", "kind", "name", "scope_version", "in_use", "fold", "state")
Row = Sequence[Any]


@dataclass(frozen=True)
class RelationSql:
    """The statements in one dialect."""

    dialect: Dialect

    def _up(self, start: str) -> str:
        """Return the recursive walk from the rows of ``start`` (id) to the root."""
        return f"""SELECT 0 AS height, {_OF_GUARD} FROM {start} s {self.dialect.each("guard", "g", "g.id = s.id")}
    UNION ALL
    SELECT u.height + 1, {_OF_GUARD} FROM u {self.dialect.each("guard", "g", "g.id = u.parent_id")}
    WHERE u.parent_id <> 0 AND u.height < {DEEPEST}"""

    def _end(self, entity_id: str) -> str:
        """Return a scalar: the nodes from an entity up to the root."""
        return f"""(WITH RECURSIVE u AS ({self._up(f"(SELECT {entity_id} AS id)")})
    SELECT {self.dialect.rows(_NODE)} FROM u WHERE u.id <> 0)"""

    def _far(self) -> str:
        """Return a scalar: the nodes from the relation's other end up. Most ends are just below a metalake: no walk."""
        two = [
            f"{self.dialect.array}({height}, {', '.join(f'{g}.{c}' for c in _COLUMNS_OF_NODE)})"
            for height, g in ((0, "t"), (1, "m"))
        ]
        walk = f"{self.dialect.nested}({self._end('r.to_id')})"
        return f"CASE WHEN m.parent_id = 0 THEN {self.dialect.array}({', '.join(two)}) ELSE {walk} END"

    def _rows(self, source: str, condition: str) -> str:
        """Return a scalar: the relations that fit, each with its other end."""
        joined = " ".join(
            [
                self.dialect.each("relation", "r", condition),
                self.dialect.each("guard", "t", "t.id = r.to_id"),
                self.dialect.each("guard", "m", "m.id = t.parent_id"),
            ]
        )
        columns = f"{COLUMNS}, {self.dialect.nested}({self._far()})"
        return f"(SELECT {self.dialect.rows(columns)}\n    FROM {source} {joined})"

    def related(self, depth: int, *, above: bool, doc: bool) -> str:
        """Return one entity, and the relations that go from it, each with its other end."""
        if depth:
            froms = ", ".join(f"p.id{n}" for n in (range(1, depth + 1) if above else [depth]))
            rows = self._rows("(SELECT 1 AS one) o", f"r.from_id IN ({froms}) AND r.kind = :kind")
            return self._by_path(depth, rows, doc)
        only = "" if above else " AND u.height = 0"
        rows = self._rows(f"(SELECT u.id FROM u WHERE u.id <> 0{only}) f", "r.from_id = f.id AND r.kind = :kind")
        return self._by_id(rows, doc)

    def owning(self, depth: int) -> str:
        """One entity, and its owned rows of two kinds that have one of the names."""
        wanted = f"o.owner_id = {f'p.id{depth}' if depth else 's.id'} AND o.kind IN (:kind, :other) AND o.name = w.name"
        rows = f"""(SELECT {self.dialect.rows(OWNED)}
    FROM {self.dialect.w_names} {self.dialect.each("owned", "o", wanted)})"""
        return self._by_path(depth, rows, doc=False) if depth else self._by_id(rows, doc=False)

    def _by_path(self, depth: int, rows: str, doc: bool) -> str:
        columns = ", ".join(f"g{n}.{c} AS {c}{n}" for n in range(1, depth + 1) for c in _COLUMNS_OF_NODE)
        levels = "".join(" " + self.dialect.each("guard", f"g{n}", level(n)) for n in range(2, depth + 1))
        nodes = ", ".join(f"p.{c}{n}" for n in range(1, depth + 1) for c in _COLUMNS_OF_NODE)
        text = f"""-- the entity and all that is above it, in one row
WITH p AS (SELECT {columns} FROM guard g1{levels}
  WHERE g1.parent_id = :start AND g1.family = :f1 AND g1.state = 0 AND g1.key = :n1)
SELECT {nodes}, {_doc(doc, f"p.id{depth}")},
  -- the relations of each of them with the chain of the other end, or its owned rows
  {rows}{self.dialect.text}
FROM p"""
        return self.dialect.statement(text)

    def _by_id(self, rows: str, doc: bool) -> str:
        text = f"""-- the entity and all that is above it, one row for each
WITH RECURSIVE u AS ({self._up("(SELECT g.id FROM guard g WHERE g.id = :id)")})
SELECT (SELECT {self.dialect.rows(_NODE)} FROM u WHERE u.id <> 0){self.dialect.text}, {_doc(doc, "s.id")},
  -- the relations of each of them with the chain of the other end, or its owned rows
  {rows}{self.dialect.text}
FROM guard s WHERE s.id = :id"""
        return self.dialect.statement(text)

    def relating(self, *, valued: bool) -> str:
        """A page of the relations that lead to an entity, each with the end from which it comes."""
        only = " AND r.value = :value" if valued else ""
        doc = _once("p", "p.value, p.column_id")
        return self._page("to_id", "from_id", "{0}.value, {0}.from_id, {0}.column_id", only, doc)

    def related_page(self) -> str:
        """A page of the relations that go from an entity, each with the end to which it leads."""
        return self._page("from_id", "to_id", "{0}.slot, {0}.column_id, {0}.value", "", "NULL")

    def _page(self, end: str, far: str, order: str, only: str, doc: str) -> str:
        return self.dialect.statement(f"""WITH page AS (
  -- the next entries of the index, live or not
  SELECT {COLUMNS} FROM relation r
  WHERE r.{end} = :id AND r.kind = :kind AND ({order.format("r")}) > (:a1, :a2, :a3){only}
  ORDER BY {order.format("r")} LIMIT :page_size),
-- the other end of each of them
placed AS (SELECT r.*, g.id AS node_id, g.parent_id, g.kind AS node_kind, g.name AS node_name, g.scope_version,
    g.in_use, g.fold, g.state
  FROM page r {self.dialect.maybe("guard", "g", f"g.id = r.{far}")}),
-- the chain above, once for each parent
parents AS (SELECT p.parent_id, {self._end("p.parent_id")}{self.dialect.text} AS nodes
  FROM (SELECT DISTINCT parent_id FROM placed WHERE parent_id <> 0) p)
SELECT (SELECT {self._end("o.id")} FROM guard o WHERE o.id = :id){self.dialect.text},
  p.from_id, p.kind, p.slot, p.column_id, p.value, p.id, p.to_id, p.version, p.created_by, p.created_at, p.modified_by,
  p.modified_at, p.node_id, p.node_kind, p.node_name, p.scope_version, p.in_use, p.fold, p.state, parents.nodes,
  {doc}
FROM (SELECT 1 AS one) AS always LEFT JOIN placed p ON true LEFT JOIN parents ON parents.parent_id = p.parent_id
ORDER BY {order.format("p")}""")

    def relations(self) -> str:
        """The relations in many slots."""
        condition = "r.from_id = w.from_id AND r.kind = :kind AND r.slot = w.slot"
        found = self.dialect.each("relation", "r", condition)
        return self.dialect.statement(f"SELECT {COLUMNS} FROM {self.dialect.w_slots} {found}")

    def sweep(self) -> str:
        """The next relations by id; whether an end is missing; for a column's relation the column and the document too.

        The ends are looked up one by one: see ``judged`` in gc.py.
        """
        return self.dialect.statement(f"""SELECT r.id, (SELECT f.id FROM guard f WHERE f.id = r.from_id) IS NULL
    OR (SELECT t.id FROM guard t WHERE t.id = r.to_id) IS NULL,
  r.column_id, {_once("r", "r.id")}, r.from_id
FROM (SELECT * FROM relation WHERE id > :after ORDER BY id LIMIT :page_size) r ORDER BY r.id""")


def _once(alias: str, order: str) -> str:
    """Return SQL for the entity's document, only in its first row, because the document may be long."""
    first = f"row_number() OVER (PARTITION BY {alias}.from_id, {alias}.column_id = 0 ORDER BY {order}) = 1"
    doc = f"(SELECT e.doc FROM entity e WHERE e.id = {alias}.from_id)"
    return f"CASE WHEN {alias}.column_id <> 0 AND {first} THEN {doc} END"


def _doc(wanted: bool, entity_id: str) -> str:
    return f"(SELECT e.doc FROM entity e WHERE e.id = {entity_id})" if wanted else "NULL"


# --- from rows to values


def key_after(after: tuple[str, int, int] | tuple[int, int, str]) -> dict[str, Any]:
    """Return the parameters of the place where a page begins."""
    return {"a1": after[0], "a2": after[1], "a3": after[2]}


def _node(values: Row) -> tuple[Node, int]:
    _, node_id, kind, name, scope_version, in_use, fold, state = values
    return Node(node_id, kind, name, scope_version, bool(in_use), bool(fold)), state


def _end(nodes: Iterable[Row] | None) -> End:
    """Return the end of these nodes, which come in no order."""
    return end_of([_node(values) for values in sorted(nodes or (), key=lambda v: -v[0])])


def _near(values: Row) -> End:
    """Return the entity from its nodes: one text of JSON if it was read by id, columns in order if by path."""
    if len(values) == 1:
        return _end(json.loads(values[0]))
    size = len(_COLUMNS_OF_NODE)
    return end_of([_node((0, *values[at : at + size])) for at in range(0, len(values), size)])


def related(rows: Sequence[Row]) -> Related | None:
    """Return one entity and the relations that go from it."""
    if not rows or rows[0][0] is None:
        return None
    *nodes, doc, relations = rows[0]
    pairs = [(RelationRecord(*row[:-1]), _end(row[-1])) for row in json.loads(relations or "[]")]
    return Related(_near(nodes), doc, pairs)


def owning(rows: Sequence[Row]) -> Owning | None:
    """Return an entity and rows that it owns."""
    if not rows or rows[0][0] is None:
        return None
    *nodes, _, found = rows[0]
    return Owning(_near(nodes), [OwnedRecord(*row) for row in json.loads(found or "[]")])


def relating(rows: Sequence[Row]) -> Relating | None:
    """Return a page of the relations that lead to one entity, or that go from it."""
    if rows[0][0] is None:
        return None
    parent = cache(lambda text: [_node(v) for v in sorted(json.loads(text or "[]"), key=lambda v: -v[0])])
    live, docs = [], dict[int, str]()
    for row in rows:
        if row[1] is None:
            continue
        *node, nodes, doc = row[13:]
        end = GONE if node[0] is None else end_of([*parent(nodes), _node((0, *node))])
        record = RelationRecord(*row[1:13])
        if doc is not None:
            docs[record.from_id] = doc
        live.append((record, end, docs.get(record.from_id) if record.column_id else None))
    return Relating(_end(json.loads(rows[0][0])), live)


def sweep(rows: Sequence[Row], deleted: int) -> Sweep:
    """Return the result of a sweep."""
    docs = {row[4]: row[3] for row in rows if row[3] is not None}
    columns = [(row[0], row[4], row[2], docs[row[4]]) for row in rows if row[2] and not row[1] and row[4] in docs]
    return Sweep(rows[-1][0] if rows else None, deleted, tuple(columns))


def depth_of(target: Lookup | int) -> int:
    """Return the depth of a path; 0 for an id."""
    return 0 if isinstance(target, int) else len(target.names)
