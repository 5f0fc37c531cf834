"""The statements that read, the same for PostgreSQL and SQLite.

Parameters have the form ``:name``. A node is (id, kind, name, scope_version, in_use, fold),
an entity (version, doc, created_by, created_at, modified_by, modified_at).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metastore.backends.sql.dialect import Dialect
from metastore.cached import cached_property
from metastore.port.conditions import DROPPED, DROPPING, LIVE
from metastore.port.unreadable import DEEPEST

NODE = "{0}.id, {0}.kind, {0}.name, {0}.scope_version, {0}.in_use, {0}.fold"
_VERSIONED = "{0}.version, {0}.doc, {0}.created_by, {0}.created_at, {0}.modified_by, {0}.modified_at"
ENTITY = _VERSIONED.format("e")
_NODE_COLUMNS = ("id", "kind", "name", "scope_version", "in_use", "fold")
OWNED = "o.id, o.owner_id, o.kind, o.name, " + _VERSIONED.format("o")
_MADE = "coalesce(e.created_by, w.created_by) AS created_by, coalesce(e.created_at, w.created_at) AS created_at"
STEPS = f"""SELECT o.operation_id, o.ordinal, o.seq, o.entity_id, o.version, o.owner_id, o.kind, o.action,
  o.principal, o.time, o.path_before, o.path_after, o.changes, o.scope_version, o.in_use, o.doc,
  {_MADE},
  o.attempt, o.deadline, o.digest, o.result, o.format, o.fences, o.other_id, o.other_path,
  o.parent_id, o.name, o.fold, o.state, NULL AS family, NULL AS key, o.through
FROM operation o {{}} """


def level(n: int, names: str = ":") -> str:
    """Return the condition on the guard of a path's ``n``-th name, below the guard of the previous name."""
    above = f"g{n - 1}"
    return (
        f"g{n}.parent_id = {above}.id AND g{n}.family = :f{n} AND g{n}.state = 0"
        f" AND g{n}.key = CASE WHEN {above}.fold THEN {names}k{n} ELSE {names}n{n} END"
    )


@dataclass(frozen=True)
class ReadSql:
    """The statements in one dialect."""

    dialect: Dialect

    def resolve(self, depth: int, *, held: bool = False) -> str:
        """One path of ``depth`` names: its nodes, and the entity of the last; with ``held``, how many guards hold."""
        nodes = ", ".join(NODE.format(f"g{n}") for n in range(1, depth + 1))
        return self.dialect.statement(f"SELECT {nodes}, {ENTITY}{self._counted(held)} FROM {self._path(depth)}")

    def _path(self, depth: int) -> str:
        """Return the text after FROM for one path: the guards of its nodes, and the entity of the last."""
        levels = "".join(f"LEFT JOIN guard g{n} ON {level(n)}\n" for n in range(2, depth + 1))
        return f"""guard g1
{levels}LEFT JOIN entity e ON e.id = g{depth}.id
WHERE g1.parent_id = :start AND g1.family = :f1 AND g1.state = 0 AND g1.key = :n1"""

    def resolve_rights(self, depth: int, rights: Callable[[str, str], str], gathered: str) -> str:
        """One path, as in :meth:`resolve`, and as JSON the rights of a user there.

        ``rights`` returns the statement of the rows, for a table of places and a metalake's id; ``gathered`` is the
        expression that gathers the rows.
        """
        numbers = range(1, depth + 1)
        columns = ", ".join(f"g{n}.{c} AS {c}{n}" for n in numbers for c in _NODE_COLUMNS)
        found = ", ".join(f"p.{c}{n}" for n in numbers for c in _NODE_COLUMNS)
        rows = rights(self._places([f"id{n}" for n in numbers]), "(SELECT id1 FROM path)")
        path = f"SELECT {columns}, {ENTITY} FROM {self._path(depth)}"
        return self.dialect.statement(f"""WITH path AS MATERIALIZED ({path})
SELECT {found}, {_VERSIONED.format("p")}, (SELECT {gathered} FROM ({rows}) AS q) FROM path p""")

    def _places(self, columns: Sequence[str]) -> str:
        """Return a table ``w`` of (id), made from the columns of ``path``."""
        return f"({' UNION ALL '.join(f'SELECT {column} AS id FROM path' for column in columns)}) AS w"

    def _counted(self, held: bool) -> str:
        """Return a column that counts the guards that hold, or no column."""
        return f", ({self.dialect.held}) AS held" if held else ""

    @cached_property
    def by_id(self) -> str:
        """From the root down to each id: its nodes with their states, and the entity beside the last node."""
        return self._by_id(held=False)

    @cached_property
    def by_id_holding(self) -> str:
        """The same, and the number of guards that hold."""
        return self._by_id(held=True)

    def _by_id(self, *, held: bool) -> str:
        return self.dialect.statement(f"""WITH RECURSIVE up AS (
  -- Each wanted entity at height 0, then its parent at height 1, and so on. Parent 0 is the root, which no path names.
  -- The height is bounded: in a damaged table, parents may form a circle.
  SELECT g.id AS wanted, 0 AS height, g.id, g.parent_id, g.kind, g.name, g.scope_version, g.in_use, g.fold, g.state
  FROM guard g WHERE g.id IN ({self.dialect.select_ids})
  UNION ALL
  SELECT up.wanted, up.height + 1, g.id, g.parent_id, g.kind, g.name, g.scope_version, g.in_use, g.fold, g.state
  FROM up JOIN guard g ON g.id = up.parent_id WHERE up.parent_id <> 0 AND up.height < {DEEPEST})
-- The document only beside the wanted entity itself; of its ancestors the guard rows are enough.
SELECT up.wanted, up.state, {NODE.format("up")}, {ENTITY}{self._counted(held)}
FROM up LEFT JOIN entity e ON e.id = up.id AND up.height = 0
WHERE up.id <> 0 ORDER BY up.wanted, up.height DESC""")

    @cached_property
    def has_children(self) -> str:
        """Whether an entity has children, except some given ones, that are live or being dropped in steps."""
        sql = f"""SELECT EXISTS (SELECT 1 FROM guard
  WHERE parent_id = :entity_id AND (state = 0 OR state = 3) AND id NOT IN ({self.dialect.select_ids}))"""
        return self.dialect.statement(sql)

    @cached_property
    def named_steps(self) -> str:
        """The rows of the operation table ``o``, with columns named as in Step."""
        return STEPS.format("LEFT JOIN entity e ON e.id = o.entity_id LEFT JOIN owned w ON w.id = o.entity_id")

    @cached_property
    def hold(self) -> str:
        """The number of guards that hold."""
        return self.dialect.statement(self.dialect.held)

    def _page(self, inner: str, order: str) -> str:
        # each row also has the number of guards that hold, from the same snapshot; an empty page is one row with that
        return self.dialect.statement(f"""SELECT held.n, page.* FROM (SELECT ({self.dialect.held}) AS n) AS held
LEFT JOIN ({inner}) AS page ON true ORDER BY {order}""")

    @cached_property
    def children(self) -> dict[int, str]:
        """A page of children with their documents, by state."""
        return {
            state: self._page(self._children(state, "guard g", ""), "page.k, page.id")
            for state in (LIVE, DROPPED, DROPPING)
        }

    def children_chosen(self, state: int, *, only: bool, few: bool) -> str:
        """A page of the children with the ids in ``:chosen``, or of all others; ``few``: look each of them up."""
        return self._page(self._children(state, *self._among(only, few)), "page.k, page.id")

    def _among(self, only: bool, few: bool) -> tuple[str, str]:
        """Return the table to read, and a condition. The plus keeps the order of names, in which a page ends early."""
        if only and few:
            return f"({self.dialect.select_chosen}) AS w CROSS JOIN guard g ON g.id = w.value", ""
        return "guard g", f" AND +g.id {'IN' if only else 'NOT IN'} ({self.dialect.select_chosen})"

    def _children(self, state: int, source: str, among: str) -> str:
        return f"""SELECT g.key AS k, {NODE.format("g")}, g.state, {ENTITY}
  FROM {source} JOIN entity e ON e.id = g.id
  WHERE g.parent_id = :parent_id AND g.family = :family AND g.kind = :kind AND g.state = {state}
    AND {"g.key > :after_key" if state == LIVE else f"g.state <> {LIVE} AND (g.key, g.id) > (:after_key, :after_id)"}
    {among}
  ORDER BY g.key, g.id LIMIT :page_size"""

    @cached_property
    def names(self) -> str:
        """A page of names."""
        return self._names("guard g", "")

    def names_chosen(self, *, only: bool, few: bool) -> str:
        """A page of the names of the children with the ids in ``:chosen``, or of all others."""
        return self._names(*self._among(only, few))

    def _names(self, source: str, among: str) -> str:
        return self._page(
            f"""SELECT g.key AS k, g.name FROM {source}
  WHERE g.parent_id = :parent_id AND g.family = :family AND g.kind = :kind AND g.state = 0 AND g.key > :after_key{among}
  ORDER BY g.key LIMIT :page_size""",
            "page.k",
        )

    @cached_property
    def named(self) -> str:
        """The child with a name, live or being dropped in steps; the condition is that of the index of names."""
        return self._page(
            f"""SELECT g.key AS k, {NODE.format("g")}, g.state, {ENTITY}
  FROM guard g JOIN entity e ON e.id = g.id
  WHERE g.parent_id = :parent_id AND g.family = :family AND g.key = :key AND (g.state = 0 OR g.state = 3)""",
            "page.k",
        )

    @cached_property
    def gone(self) -> str:
        """The child of this kind and name that was dropped last."""
        # "is dropped" implies "is not live", which is repeated because the partial index has that condition
        return self.dialect.statement(f"""SELECT g.key, {NODE.format("g")}, g.state, {ENTITY}
FROM guard g JOIN entity e ON e.id = g.id
WHERE g.parent_id = :parent_id AND g.family = :family AND g.key = :key AND g.state <> {LIVE} AND g.state = {DROPPED}
  AND g.kind = :kind
ORDER BY g.dropped_at DESC, g.id DESC LIMIT 1""")

    @cached_property
    def owned(self) -> str:
        """A page of owned rows."""
        return self._page(
            f"""SELECT {OWNED} FROM owned o
  WHERE o.owner_id = :owner_id AND o.kind = :kind AND o.name > :after_key ORDER BY o.name LIMIT :page_size""",
            "page.name",
        )

    @cached_property
    def owned_by_name(self) -> str:
        """Many owned rows of one kind, each preceded by the number of its request (from 0)."""
        return self.dialect.statement(f"""SELECT w.n, {OWNED} FROM {self.dialect.w_owned} JOIN owned o
  ON o.owner_id = w.owner_id AND o.kind = :kind AND o.name = w.name""")

    @cached_property
    def history(self) -> str:
        """The steps of one entity, oldest first."""
        where = "WHERE o.entity_id = :entity_id AND o.version > :after ORDER BY o.version LIMIT :page_size"
        return self.dialect.statement(self.named_steps + where)

    @cached_property
    def feed(self) -> str:
        """The steps after a position, in the feed's order."""
        return self.dialect.statement(self.named_steps + "WHERE o.seq > :after ORDER BY o.seq LIMIT :page_size")

    @cached_property
    def feed_bare(self) -> str:
        """The same without large documents; a relation's document stays, because it says what the relation connects.

        The creator of each entity is also left out, for which the other statement reads most of its blocks.
        """
        steps = STEPS.replace(_MADE, "NULL AS created_by, NULL AS created_at")
        steps = steps.replace("o.doc,", "CASE WHEN o.other_id IS NULL THEN NULL ELSE o.doc END AS doc,")
        return self.dialect.statement(steps.format("") + "WHERE o.seq > :after ORDER BY o.seq LIMIT :page_size")

    @cached_property
    def feed_barest(self) -> str:
        """The same, also without the changes, which may be as large as documents."""
        return self.feed_bare.replace("o.changes,", "NULL AS changes,")

    def feed_with(self, *, docs: bool, changes: bool) -> str:
        """Return the statement of these three that returns the wanted texts."""
        return self.feed if docs else self.feed_bare if changes else self.feed_barest

    @cached_property
    def steps_at(self) -> str:
        """The steps at some positions."""
        return self.dialect.statement(self.named_steps + f"WHERE o.seq IN ({self.dialect.select_ids}) ORDER BY o.seq")

    @cached_property
    def steps(self) -> str:
        """The steps that one operation wrote."""
        return self.dialect.statement(self.named_steps + "WHERE o.operation_id = :operation_id ORDER BY o.ordinal")
