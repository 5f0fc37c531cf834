"""The statement that returns the steps committed since a position."""

from __future__ import annotations

from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import from_named

_STEP = "o.seq, o.entity_id, o.action, o.path_after"


def touched_sql(head: str, parameter: str, gaps: str | None = None) -> str:
    """Return the statement: ``head`` (columns of ``info i``) and a step in each row; without a step, one row.

    ``gaps``: the text after SELECT that finds the steps ``o`` that fill gaps; None: the feed has no gaps, as usual.
    Everything that the statement returns is true at one instant.
    """
    filled = f"""
  UNION ALL
  -- the positions that were missing before, and are filled by now
  SELECT {_STEP} {gaps}"""
    text = f"""SELECT {head}, t.seq, t.entity_id, t.action, t.path_after FROM info i LEFT JOIN (
  -- the steps that were committed after the position
  SELECT * FROM (SELECT {_STEP} FROM operation o WHERE o.seq > :after ORDER BY o.seq LIMIT :page_size) l{
        "" if gaps is None else filled
    }) t ON true"""
    return from_named(without_comments(text), parameter)
