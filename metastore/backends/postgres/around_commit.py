"""The statements that a general commit sends before or after its own: the consumer, the mark, the scope versions."""

from __future__ import annotations

from metastore.backends.postgres.fragments import DURABLE, NOW, quiet

# Follows the statements of a commit whose mark is on a guard that none of them changes. The quiet time after the mark
# is the others' turn.
RELEASE = f"""UPDATE guard SET mark = NULL, marked_at = NULL, marked_until = NULL,
  quiet_until = {quiet("guard")}
WHERE id = %(held)s::bigint AND mark = %(operation_id)s::uuid"""
"""Removes the operation's own mark."""

# Precedes the statements that write. moved: the consumer's row, if it still has the expected position. The logarithm of
# 0 raises READ, which aborts the commit if another process has moved the consumer.
ADVANCE = f"""WITH moved AS (
  UPDATE consumer SET seq = %(to)s::bigint, moved_at = {NOW}
  WHERE name = %(name)s::text AND seq = %(seq)s::bigint AND {DURABLE} RETURNING 1)
SELECT ln(CASE WHEN EXISTS (SELECT FROM moved) THEN 1 ELSE 0 END)"""
"""Moves a consumer of the feed, by compare-and-swap."""
KEEP = f"""INSERT INTO operation (operation_id, ordinal, action, result, time)
SELECT %(operation_id)s::uuid, 0, 'unchanged', %(result)s::text, {NOW} WHERE {DURABLE}"""
"""The row of a commit that only moves a consumer: without it, nobody could tell whether the move was applied."""

THROUGH = f"""UPDATE operation
SET through = (SELECT max(seq) FROM operation WHERE operation_id = %(operation_id)s::uuid)
WHERE operation_id = %(operation_id)s::uuid AND {DURABLE}"""
"""Notes the last position of a commit on all its rows; sent after several statements of one commit."""
# Follows the statements of a commit that takes a right away. They hold these guards exclusively, and fail if a
# precondition does not hold, so the scope versions never grow without the commit.
BUMP = f"UPDATE guard SET scope_version = scope_version + 1 WHERE id = ANY(%(ids)s::bigint[]) AND {DURABLE}"
"""Raises the scope versions of the guards that ``barred`` holds."""
