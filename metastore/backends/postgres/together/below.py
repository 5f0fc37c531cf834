"""Find many children by name: the statement, its parameters, and the meaning of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metastore.backends.postgres.parameters import Row, plain, texts
from metastore.backends.postgres.read_sql import each
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.reads import ENTITY, NODE
from metastore.port.batches import Below
from metastore.port.conditions import LIVE
from metastore.port.records import Node, Record

# the same condition as in the unique index: an entity that is being dropped keeps its name
_NAMED = "g.parent_id = w.parent_id AND g.family = w.family AND g.key = w.key AND (g.state = 0 OR g.state = 3)"
_CHILD = each("guard", "g", _NAMED)
FIND_BELOW = without_comments(f"""SELECT
  -- only in the first row: the parents that still have a scope version that was seen, in the snapshot that shows the
  -- children too. Two requests may have seen one parent at two scope versions
  CASE WHEN w.n = 1 THEN (SELECT array_agg(ARRAY[t.id, t.scope_version])
    FROM unnest(%(guard_ids)s::bigint[], %(guard_scopes)s::bigint[]) AS s(id, scope)
    CROSS JOIN {each("guard", "t", "t.id = s.id AND t.scope_version = s.scope")}) END,
  g.state, {NODE.format("g")}, {ENTITY}
FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[])
  WITH ORDINALITY AS w(parent_id, family, key, n)
LEFT JOIN {_CHILD} ON true
LEFT JOIN {each("entity", "e", "e.id = g.id")} ON true
ORDER BY w.n""")
"""One row for each child, in the given order."""


def parameters(wanted: Sequence[Below]) -> dict[str, Any]:
    """Return the parameters of FIND_BELOW."""
    chains = {id(one.parents): one.parents for one in wanted}.values()  # most requests have the same few parents
    seen = {pair for chain in chains for pair in _scopes(chain)}
    return {
        "guard_ids": plain([i for i, _ in seen]),
        "guard_scopes": plain([s for _, s in seen]),
        "parents": plain([one.parents[-1].id if one.parents else 0 for one in wanted]),
        "families": texts([one.family for one in wanted]),
        "keys": texts([one.key for one in wanted]),
    }


def found(wanted: Sequence[Below], rows: Sequence[Row]) -> list[Record | bool]:
    """Return the answers in FIND_BELOW's rows: the child; False: no child; True: another read must decide.

    Another read is needed if the parents have changed, or if an entity of that name is being dropped.
    """
    held = {(entity_id, scope_version) for entity_id, scope_version in rows[0][0] or ()}
    chains = {id(one.parents): held.issuperset(_scopes(one.parents)) for one in wanted}
    return [_child(one, row) if chains[id(one.parents)] else True for one, row in zip(wanted, rows, strict=True)]


def _scopes(parents: Sequence[Node]) -> list[tuple[int, int]]:
    return [(node.id, node.scope_version) for node in parents]


def _child(one: Below, row: Row) -> Record | bool:
    if row[1] is None:
        return False
    if row[1] != LIVE:
        return True
    return Record((*one.parents, Node(*row[2:8])), *row[8:])
