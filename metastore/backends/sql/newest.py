"""Complete the newest step of each row from the tables, after rows were written below the managers.

Rows of older files do not have their places. Then the past begins at the newest step, as after the migration that added
places, and also if gc had removed history. Otherwise the past is as complete as before.
"""

from __future__ import annotations

from typing import Final

from metastore.port.format import SCHEMA_FORMAT

_LACKS: Final = """(operation.parent_id IS NULL
  -- two runs of gc (format 10) at once left rows under a name that no step took
  OR operation.key IS NULL AND operation.state = 0 AND (SELECT collected_seq FROM info) > 0
    AND NOT EXISTS (SELECT 1 FROM operation t WHERE t.entity_id = operation.entity_id AND t.version < operation.version
      AND t.key IS NOT NULL AND t.parent_id = operation.parent_id AND t.name = operation.name))"""
"""A newest step that the past would not find."""

COMPLETE_NEWEST = (
    f"""UPDATE info SET writer = {SCHEMA_FORMAT}, past_from = (SELECT coalesce(max(seq), 0) FROM operation)
WHERE collected_seq > 0
  OR EXISTS (SELECT 1 FROM operation
    WHERE seq IS NOT NULL AND parent_id IS NULL AND kind <> 'lease')""",
    f"""UPDATE operation SET parent_id = s.parent_id, name = s.name, fold = s.fold, state = s.state,
  family = CASE WHEN s.state = 0 THEN s.family END, key = CASE WHEN s.state = 0 THEN s.key END
FROM (SELECT g.*, e.version FROM guard g JOIN entity e ON e.id = g.id) AS s
WHERE operation.entity_id = s.id AND operation.version = s.version AND {_LACKS}""",
    f"""UPDATE operation SET parent_id = w.owner_id, name = w.name, state = 0, family = w.kind, key = w.name
FROM owned AS w
WHERE operation.entity_id = w.id AND operation.version = w.version AND {_LACKS}""",
    f"""UPDATE operation SET parent_id = r.from_id, name = CAST(r.id AS TEXT), state = 0, family = r.kind,
  key = CAST(r.id AS TEXT)
FROM relation AS r
WHERE operation.entity_id = r.id AND operation.version = r.version AND {_LACKS}""",
)
"""Statements, in the order in which they run."""
