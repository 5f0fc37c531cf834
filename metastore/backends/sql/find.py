"""The statements that find entities on both SQL backends: one page, true at one instant.

A page scans a bounded part of an index (of names, or of one parent's children) and keeps the matching rows. From each
of these it climbs to the root, and discards a row that is not live, or not below the scope. So the cost of a page is
that of its scan, however large the tree is. Each climb is a look-up by id in a separate sub-select, so no plan, even
with wrong statistics or none, can join them in another way.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastore.backends.sql.dialect import Dialect
from metastore.backends.sql.reads import ENTITY
from metastore.port.unreadable import DEEPEST

_SCANNED = "g.id, g.parent_id, g.kind, g.name, g.key, g.fold"
_NAMES = f"""SELECT {_SCANNED}, g.name AS a, g.id AS b FROM guard g
  WHERE g.state = 0 AND g.id <> 0 AND (g.name, g.id) > (:after_name, :after_id) AND g.name < :before
  ORDER BY g.name, g.id LIMIT :page_size"""
_CHILDREN = f"""SELECT {_SCANNED}, g.family AS a, g.key AS b FROM guard g
  WHERE g.state = 0 AND g.id <> 0 AND g.parent_id = :parent AND (g.family, g.key) > (:after_family, :after_key)
  ORDER BY g.family, g.key LIMIT :page_size"""
_FAMILY = f"""SELECT {_SCANNED}, g.family AS a, g.key AS b FROM guard g
  WHERE g.state = 0 AND g.id <> 0 AND g.parent_id = :parent AND g.family = :family AND g.key > :after_key
    AND g.key < :before
  ORDER BY g.key LIMIT :page_size"""
_BELOW_ALL = f"""SELECT {_SCANNED}, g.family AS a, g.key AS b FROM {{places}} {{each}} LIMIT :page_size"""
_COLUMNS = "g.id, g.parent_id, g.kind, g.name, g.scope_version, g.in_use, g.fold, g.state"


@dataclass(frozen=True)
class FindSql:
    """The statements in one dialect."""

    dialect: Dialect

    def by_name(self) -> str:
        """Scan names after (``after_name``, ``after_id``), up to ``before``."""
        return self._statement(_NAMES, "NULL")

    def by_parent(self) -> str:
        """Scan the children of ``parent`` after (``after_family``, ``after_key``)."""
        return self._statement(_CHILDREN, self._all_scanned())

    def by_family(self) -> str:
        """Scan the children of ``parent`` in one family, after the key ``after_key``, up to ``before``."""
        return self._statement(_FAMILY, self._all_scanned())

    def below_all(self, *, family: bool) -> str:
        """Scan the children of all ``places`` (in one ``family``), in no order; at most one page."""
        one = "g.family = :family AND g.key > :after_key AND g.key < :before"
        part = one if family else "(g.family, g.key) > (:after_family, :after_key)"
        each = self.dialect.each("guard", "g", f"g.state = 0 AND g.id <> 0 AND g.parent_id = w.id AND {part}")
        return self._statement(_BELOW_ALL.format(places=self.dialect.w_places, each=each), self._all_scanned())

    def sizes(self, *, families: bool) -> str:
        """Count names in a range, and the entities below an entity (only in some ``families``), each up to a limit."""
        only = f" AND {self.dialect.in_families}" if families else ""
        below = self.dialect.each("guard", "g", f"g.parent_id = w.id AND g.state = 0{only}")
        return self.dialect.statement(f"""SELECT (SELECT count(*) FROM (SELECT 1 FROM guard g
    WHERE g.state = 0 AND g.id <> 0 AND g.name >= :begin AND g.name < :before LIMIT :most_names) n),
  -- both read no more than their limits: a recursion ends when enough rows were taken from it
  (WITH RECURSIVE w AS (
    SELECT g.id FROM guard g WHERE g.state = 0 AND g.id <> 0 AND g.parent_id = :scope{only}
    UNION ALL
    SELECT g.id FROM w {below})
  SELECT count(*) FROM (SELECT 1 FROM w LIMIT :most_below) b)""")

    def _all_scanned(self) -> str:
        return f"(SELECT {self._gathered('s.id, s.kind, s.fold')} FROM scanned s)"

    def _gathered(self, columns: str) -> str:
        return self.dialect.rows(columns) + self.dialect.text

    def _fits(self) -> str:
        """Return the condition on a name. A guard's fold says whether the names below it are compared without case.

        All entities below a catalog inherit it, and their key is the name without case.
        """
        exact, folded = self.dialect.fits.format("s.name", ":pattern"), self.dialect.fits.format("s.key", ":folded")
        return f"({exact} OR (s.fold AND s.kind <> 'catalog' AND {folded}))"

    def _climb(self) -> str:
        """Return a scalar: the nodes from a row ``s`` up to the root; NULL: a node is not live, or none is the scope.

        A drop changes one row, but none below it. An entity that was put below itself by hand never reaches the root.
        """
        up = self.dialect.each("guard", "g", "g.id = u.parent_id")
        nodes = self._gathered("u.height, u.id, u.kind, u.name, u.scope_version, u.in_use, u.fold")
        start = self.dialect.each("guard", "g", "g.id = o.id")
        return f"""(WITH RECURSIVE u AS (
      SELECT 0 AS height, {_COLUMNS} FROM (SELECT s.id AS id) o {start}
      UNION ALL
      SELECT u.height + 1, {_COLUMNS} FROM u {up} WHERE u.parent_id <> 0 AND u.height < {DEEPEST})
    SELECT {nodes} FROM u
    HAVING max(u.state) = 0 AND min(u.state) = 0 AND min(u.parent_id) = 0
      AND (:scope = 0 OR max(CASE WHEN u.id = :scope AND u.height > 0 THEN 1 ELSE 0 END) = 1))"""

    def _statement(self, scan: str, scanned: str) -> str:
        contains = self.dialect.contains.format("e.doc", ":fragment")
        return self.dialect.statement(f"""
-- A bounded part of an index, with the rows that fit and those that do not.
WITH scanned AS MATERIALIZED ({scan}),
-- The rows that fit, each with the nodes down to it.
climbed AS MATERIALIZED (
  SELECT s.id, s.a, s.b, {self._climb()} AS nodes FROM scanned s
  WHERE (:kind = '' OR s.kind = :kind) AND {self._fits()} AND (:parent < 0 OR s.parent_id = :parent)
    AND (:fragment = '' OR (SELECT {contains} FROM entity e WHERE e.id = s.id))),
-- A page of these rows: it bounds the documents, however many rows the scan read.
page AS MATERIALIZED (SELECT * FROM climbed WHERE nodes IS NOT NULL ORDER BY a, b LIMIT :most)
-- One row at least, which says how far the scan came.
SELECT counted.total, last.a, last.b, {scanned}, f.a, f.b, f.nodes, {ENTITY}
FROM (SELECT count(*) AS total FROM scanned) counted
LEFT JOIN (SELECT a, b FROM scanned ORDER BY a DESC, b DESC LIMIT 1) last ON true
LEFT JOIN page f ON true
{self.dialect.maybe("entity", "e", "e.id = f.id")}
ORDER BY f.a, f.b""")


def like_of(glob: str) -> str:
    """Return a glob as a LIKE pattern, in which a backslash escapes."""
    words = {"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"}
    return "".join(words.get(char, char) for char in glob)


def glob_of(glob: str) -> str:
    """Return a glob as a pattern of SQLite's GLOB, which also has character sets."""
    return glob.replace("[", "[[]")
