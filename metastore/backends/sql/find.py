"""The statement that finds entities, on both SQL backends: one page, true at one instant.

It scans a bounded part of an index (of names, or of the children of one parent) and keeps the rows that fit. From each
of these it climbs to the root, and drops it if it is not live, or not below the scope. So a page costs no more than its
scan, however large the tree is. Each scanned row comes back, with the nodes from the root down to it if it is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.reads import ENTITY, NODE, from_named
from metastore.port.unreadable import DEEPEST

__all__ = ["FindSql", "glob_of", "like_of"]

_NAMES = """SELECT g.id, g.kind, g.name AS a, '' AS b FROM guard g
  WHERE g.state = 0 AND g.id <> 0 AND (g.name, g.id) > (:after_name, :after_id) AND g.name < :before
  ORDER BY g.name, g.id LIMIT :page_size"""
_CHILDREN = """SELECT g.id, g.kind, g.family AS a, g.key AS b FROM guard g
  WHERE g.state = 0 AND g.id <> 0 AND g.parent_id = :parent AND (g.family, g.key) > (:after_family, :after_key)
  ORDER BY g.family, g.key LIMIT :page_size"""
_COLUMNS = "g.id, g.parent_id, g.kind, g.name, g.scope_version, g.in_use, g.fold, g.state"


@dataclass(frozen=True)
class FindSql:
    """The statements in one dialect."""

    parameter: str
    fits: str
    """Whether the text ``{}`` has the pattern ``{}``, a parameter."""
    by_id: str
    """The guard ``g`` with the id ``{}``."""
    entity: str
    """The entity ``e`` of the node ``up``, if that is the last of its path."""

    def by_name(self) -> str:
        """Scan names, from the one after ``after_name``, ``after_id`` up to ``before``."""
        return self._statement(_NAMES, "s.a, s.id")

    def by_parent(self) -> str:
        """Scan the children of ``parent``, from the one after ``after_family``, ``after_key``."""
        return self._statement(_CHILDREN, "s.a, s.b")

    def _fits(self) -> str:
        """Return the condition on a name. A guard folds if the names below it are compared without case.

        Everything but the catalog itself has that from above, and its key is its name without case.
        """
        exact, folded = self.fits.format("g.name", ":pattern"), self.fits.format("g.key", ":folded")
        return f"({exact} OR (g.fold AND g.kind <> 'catalog' AND {folded}))"

    def _statement(self, scan: str, order: str) -> str:
        return from_named(
            without_comments(f"""
-- A bounded part of an index, whether its rows fit or not, so that a page costs no more than its scan. Materialized,
-- because its limit must hold before the joins.
WITH RECURSIVE scanned AS MATERIALIZED ({scan}),
-- From each guard that fits, up to the root.
up AS (
  SELECT g.id AS wanted, 0 AS height, {_COLUMNS} FROM scanned s CROSS JOIN {self.by_id.format("s.id")}
  WHERE (:kind = '' OR g.kind = :kind) AND {self._fits()} AND (:parent < 0 OR g.parent_id = :parent)
  UNION ALL
  SELECT up.wanted, up.height + 1, {_COLUMNS} FROM up CROSS JOIN {self.by_id.format("up.parent_id")}
  WHERE up.parent_id <> 0 AND up.height < {DEEPEST}),
-- Those whose guards are live up to the root (a drop changes one row, and none below it), and below the scope, if any.
-- What somebody put below itself by hand never reaches the root.
good AS (
  SELECT wanted FROM up GROUP BY wanted
  HAVING max(state) = 0 AND min(state) = 0 AND min(parent_id) = 0
    AND (:scope = 0 OR max(CASE WHEN id = :scope AND height > 0 THEN 1 ELSE 0 END) = 1))
-- Each scanned row comes back: the next page starts after the last one, also if it did not fit.
SELECT s.id, s.kind, s.a, s.b, {NODE.format("up")}, {ENTITY}
FROM scanned s LEFT JOIN good ON good.wanted = s.id LEFT JOIN up ON up.wanted = good.wanted
LEFT JOIN {self.entity}
ORDER BY {order}, up.height DESC"""),
            self.parameter,
        )


def like_of(glob: str) -> str:
    """Return a glob as a pattern of LIKE, whose escape is a backslash."""
    words = {"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"}
    return "".join(words.get(char, char) for char in glob)


def glob_of(glob: str) -> str:
    """Return a glob as a pattern of SQLite's GLOB, which knows sets as well."""
    return glob.replace("[", "[[]")
