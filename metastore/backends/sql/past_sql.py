"""The statements that read the past, in one dialect: see past.py."""

from __future__ import annotations

from dataclasses import dataclass

from metastore.backends.sql.dialect import Dialect
from metastore.backends.sql.reads import ReadSql
from metastore.cached import cached_property
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.unreadable import DEEPEST

_VISIBLE = "{0}.seq <= :at AND ({0}.through IS NULL OR {0}.through <= :at)"
_VERSION = f"""(SELECT v.version FROM operation v WHERE v.entity_id = {{}} AND v.version > 0
    AND {_VISIBLE.format("v")} ORDER BY v.version DESC LIMIT 1)"""
_KEPT = "(SELECT past_from <= :at OR EXISTS (SELECT 1 FROM pin WHERE seq = :at) FROM info)"
_NODE = "{0}.entity_id, {0}.kind, {0}.name, {0}.scope_version, {0}.in_use, {0}.fold"
_BODY = """{0}.version, {0}.doc, CASE WHEN e.id IS NULL THEN f.principal ELSE e.created_by END AS created_by,
  coalesce(e.created_at, f.time, {0}.time) AS created_at, {0}.principal, {0}.time"""


def columns_of(depth: int) -> list[str]:
    """Return the columns of a path of this many names: see ``decode.lookup_parameters``."""
    return ["f1", "n1", *[f"{which}{n}" for n in range(2, depth + 1) for which in "fnk"]]


@dataclass(frozen=True)
class PastSql:
    """The statements in one dialect."""

    read: ReadSql

    @property
    def dialect(self) -> Dialect:
        return self.read.dialect

    def _newest(self, alias: str, entity_id: str, condition: str = "", *, left: bool = False) -> str:
        """Join the newest version that an entity had at the position."""
        where = f"{alias}.entity_id = {entity_id} AND {alias}.version = {_VERSION.format(entity_id)}{condition}"
        return (self.dialect.maybe if left else self.dialect.each)("operation", alias, where)

    def _made(self, alias: str, table: str = "entity") -> str:
        """Join the creator: from the row while it exists, otherwise from the first step."""
        row = self.dialect.maybe(table, "e", f"e.id = {alias}.entity_id")
        first = f"f.entity_id = {alias}.entity_id AND f.version = 1 AND e.id IS NULL"
        return f"{row} {self.dialect.maybe('operation', 'f', first)}"

    def resolve(self, depth: int, table: str = "entity") -> str:
        """Paths of ``depth`` names: the nodes of each, and the entity of the last node, or the row of another table."""
        nodes = ", ".join(_NODE.format(f"g{n}") for n in range(1, depth + 1))
        levels = "\n".join(self._level(n) for n in range(1, depth + 1))
        wanted = self.dialect.w_paths(columns_of(depth))
        sql = f"""SELECT {_KEPT} AS kept, {nodes}, {_BODY.format(f"g{depth}")} FROM {wanted}
{levels}
{self._made(f"g{depth}", table)} ORDER BY w.n"""
        return self.dialect.statement(sql)

    def _level(self, n: int) -> str:
        parent = "w.start" if n == 1 else f"g{n - 1}.entity_id"
        key = f"w.n{n}" if n == 1 else f"CASE WHEN g{n - 1}.fold THEN w.k{n} ELSE w.n{n} END"
        took = f"""c{n}.seq = (SELECT c.seq FROM operation c WHERE c.parent_id = {parent} AND c.family = w.f{n}
    AND c.key = {key} AND c.key IS NOT NULL AND {_VISIBLE.format("c")} ORDER BY c.seq DESC LIMIT 1)"""
        still = f" AND g{n}.parent_id = {parent} AND g{n}.name = c{n}.name AND g{n}.state = {LIVE}"
        taker = self.dialect.maybe("operation", f"c{n}", took)
        return f"{taker} {self._newest(f'g{n}', f'c{n}.entity_id', still, left=True)}"

    @cached_property
    def by_id(self) -> str:
        """From the root down to each id: its nodes with states and parents, and the entity beside the last node."""
        columns = "n.entity_id, n.parent_id, n.kind, n.name, n.scope_version, n.in_use, n.fold, n.state, n.version"
        body = "b.entity_id = up.entity_id AND b.version = up.version AND up.height = 0"
        return self.dialect.statement(f"""WITH RECURSIVE up AS (
  -- from each entity up to the root, one level at a time
  SELECT w.id AS wanted, 0 AS height, {columns} FROM {self.dialect.w_ids} {self._newest("n", "w.id")}
  UNION ALL
  SELECT up.wanted, up.height + 1, {columns} FROM up {self._newest("n", "up.parent_id")}
  WHERE up.parent_id <> {ROOT_ID} AND up.height < {DEEPEST})
SELECT kept.ok, up.wanted, up.state, up.parent_id, {_NODE.format("up")}, {_BODY.format("b")}
FROM (SELECT {_KEPT} AS ok) AS kept LEFT JOIN up ON true
{self.dialect.maybe("operation", "b", body)}
{self._made("b")}
ORDER BY up.wanted, up.height DESC""")

    @cached_property
    def by_id_bare(self) -> str:
        """The same without documents."""
        return self.by_id.replace("b.doc,", "'' AS doc,")

    @cached_property
    def ways(self) -> str:
        """Each id and its ancestors, each once: its parent and its state."""
        columns = "n.entity_id, n.parent_id, n.state, n.scope_version"
        return self.dialect.statement(f"""WITH RECURSIVE up AS (
  SELECT {columns} FROM {self.dialect.w_ids} {self._newest("n", "w.id")}
  -- not ALL: an entity above many others is kept once
  UNION
  SELECT {columns} FROM up {self._newest("n", "up.parent_id")} WHERE up.parent_id <> {ROOT_ID})
SELECT kept.ok, up.entity_id, up.parent_id, up.state, up.scope_version FROM (SELECT {_KEPT} AS ok) AS kept
LEFT JOIN up ON true""")

    def below(self, table: str) -> str:
        """A page of children or of owned rows; ``table`` has the present rows."""
        return self.dialect.statement(f"""
-- The documents of a page.
SELECT kept.ok, page.* FROM (SELECT {_KEPT} AS ok) AS kept LEFT JOIN (
  SELECT c.key AS k, {_NODE.format("n")}, n.state, {_BODY.format("n")}
  -- The entities that took a name below the parent, in the order of the index, which is read up to the end of the page.
  -- An entity is kept if its newest version at the position still has the name there.
  FROM (SELECT {self.dialect.distinct} c.key, c.entity_id, n.version FROM operation c {self._newest("n", "c.entity_id")}
    WHERE c.parent_id = :parent_id AND c.family = :family AND c.key >= :after_key AND c.key IS NOT NULL
      AND c.seq <= :at AND (c.key, c.entity_id) > (:after_key, :after_id)
      AND n.parent_id = :parent_id AND n.name = c.name AND n.state = :state AND n.kind = :kind
    ORDER BY c.key, c.entity_id LIMIT :page_size) AS c
  {self.dialect.each("operation", "n", "n.entity_id = c.entity_id AND n.version = c.version")}
  {self._made("n", table)}) AS page ON true ORDER BY page.k, page.entity_id""")

    @cached_property
    def related(self) -> str:
        """All relations of a kind that went from some entities: for each, the version at the position, if live."""
        made = "c.parent_id = w.id AND c.family = :kind AND c.key IS NOT NULL AND c.seq <= :at"
        each = self.dialect.each("operation", "c", made)
        return self.dialect.statement(f"""
SELECT kept.ok, page.* FROM (SELECT {_KEPT} AS ok) AS kept LEFT JOIN (
  SELECT n.entity_id, n.owner_id, n.kind, n.name, {_BODY.format("n")}
  FROM (SELECT DISTINCT c.entity_id FROM {self.dialect.w_ids} {each}) AS c
  {self._newest("n", "c.entity_id")} {self._made("n", "relation")}
  WHERE n.state = {LIVE}) AS page ON true""")

    @cached_property
    def led(self) -> str:
        """All relations of a kind that led to an entity: for each, the version at the position, if live."""
        return self.dialect.statement(f"""
SELECT kept.ok, page.* FROM (SELECT {_KEPT} AS ok) AS kept LEFT JOIN (
  SELECT n.entity_id, n.owner_id, n.kind, n.name, {_BODY.format("n")}
  FROM (SELECT DISTINCT c.entity_id FROM operation c
    WHERE c.other_id = :to_id AND c.kind = :kind AND c.other_id IS NOT NULL AND c.seq <= :at) AS c
  {self._newest("n", "c.entity_id")} {self._made("n", "relation")}
  WHERE n.other_id = :to_id AND n.state = {LIVE}) AS page ON true""")

    @cached_property
    def history(self) -> str:
        """The steps of one entity up to a position, oldest first."""
        where = f"WHERE o.entity_id = :id AND o.version > :after AND {_VISIBLE.format('o')} ORDER BY o.version"
        return self.dialect.statement(f"{self.read.named_steps}{where} LIMIT :page_size")

    @cached_property
    def rows(self) -> str:
        """The newest version, at the position, of each row with an id in a range, in one pass over an index."""
        gone = "e.id IS NULL AND w.id IS NULL AND r.id IS NULL"
        first = f"f.entity_id = n.entity_id AND f.version = 1 AND {gone}"
        newest = (
            "n.entity_id = s.entity_id AND n.version = s.version AND n.parent_id IS NOT NULL AND "
            + self.dialect.in_kinds
        )
        # each join names the range, because otherwise a merge of two indexes would begin at the first id
        ranged = "{0}.{1} >= :low AND {0}.{1} < :high"
        return self.dialect.statement(f"""
WITH
-- the newest version of each row that the position shows
newest AS (
  SELECT v.entity_id, max(v.version) AS version FROM operation v
  WHERE v.entity_id >= :low AND v.entity_id < :high AND v.version > 0 AND {_VISIBLE.format("v")} GROUP BY v.entity_id)
SELECT kept.ok, n.entity_id, n.owner_id, n.parent_id, n.kind, n.name, n.state, n.version, n.doc,
  CASE WHEN {gone} THEN f.principal ELSE coalesce(e.created_by, w.created_by, r.created_by) END,
  coalesce(e.created_at, w.created_at, r.created_at, f.time, n.time), n.principal, n.time, n.other_id
FROM (SELECT {_KEPT} AS ok) AS kept LEFT JOIN newest s ON true
{self.dialect.maybe("operation", "n", newest)}
LEFT JOIN entity e ON e.id = n.entity_id AND {ranged.format("e", "id")}
LEFT JOIN owned w ON w.id = n.entity_id AND {ranged.format("w", "id")}
LEFT JOIN relation r ON r.id = n.entity_id AND {ranged.format("r", "id")}
{self.dialect.maybe("operation", "f", first)}
ORDER BY n.entity_id""")

    @cached_property
    def newest(self) -> str:
        """The newest step up to a position."""
        where = "WHERE o.seq <= :until ORDER BY o.seq DESC LIMIT 1"
        return self.dialect.statement(self.read.named_steps + where)

    @cached_property
    def kept(self) -> str:
        """Whether the past at a position is complete."""
        return self.dialect.statement(f"SELECT {_KEPT}")

    @cached_property
    def times(self) -> str:
        """The times of the next steps."""
        sql = "SELECT seq, time FROM operation WHERE seq > :after ORDER BY seq LIMIT :page_size"
        return self.dialect.statement(sql)

    @cached_property
    def later(self) -> str:
        """The number of steps after a position, counted in the index of positions, and the time of the first one."""
        return self.dialect.statement("""SELECT (SELECT count(seq) FROM operation WHERE seq > :after),
  (SELECT time FROM operation WHERE seq > :after ORDER BY seq LIMIT 1)""")
