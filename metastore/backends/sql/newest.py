"""Complete the newest step of each row from the tables, after rows were written below the managers.

Rows of older files do not say where they stood. The past then begins at the newest step, as after the migration that
added it. So it does if gc had removed history. Else it is as whole as it was.
"""

from __future__ import annotations

__all__ = ["COMPLETE_NEWEST"]

COMPLETE_NEWEST = (
    """UPDATE info SET past_from = (SELECT coalesce(max(seq), 0) FROM operation)
WHERE collected_seq > 0
  OR EXISTS (SELECT 1 FROM operation
    WHERE seq IS NOT NULL AND parent_id IS NULL AND kind <> 'lease')""",
    """UPDATE operation SET parent_id = s.parent_id, name = s.name, fold = s.fold, state = s.state,
  family = CASE WHEN s.state = 0 THEN s.family END, key = CASE WHEN s.state = 0 THEN s.key END
FROM (SELECT g.*, e.version FROM guard g JOIN entity e ON e.id = g.id) AS s
WHERE operation.entity_id = s.id AND operation.version = s.version AND operation.parent_id IS NULL""",
    """UPDATE operation SET parent_id = w.owner_id, name = w.name, state = 0, family = w.kind, key = w.name
FROM owned AS w
WHERE operation.entity_id = w.id AND operation.version = w.version AND operation.parent_id IS NULL""",
    """UPDATE operation SET parent_id = r.from_id, name = CAST(r.id AS TEXT), state = 0, family = r.kind,
  key = CAST(r.id AS TEXT)
FROM relation AS r
WHERE operation.entity_id = r.id AND operation.version = r.version AND operation.parent_id IS NULL""",
)
"""Statements, in order."""
