"""Time: how each row stood after a step, so that the past can be read; pins and consumers of the feed.

Existing steps are replayed in the feed's order, which tells the place of each row. If gc has removed history already,
or the replay disagrees with the tables, the past begins at the position of this migration, and only the newest step of
each row is completed. Other clients wait meanwhile. Programs of earlier formats write steps that do not tell the
entity's place, so they may no longer use the database.

Revision ID: 0006
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from metastore.migrations.placements import replay

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_COLUMNS: list[tuple[str, Any]] = [
    ("parent_id", _ID),
    ("name", _NAME),
    ("fold", sa.Boolean),
    ("state", sa.SmallInteger),
    ("family", _NAME),
    ("key", _NAME),
    ("through", _ID),
]

BEFORE = (
    """ALTER TABLE operation ADD COLUMN IF NOT EXISTS parent_id BIGINT,
  ADD COLUMN IF NOT EXISTS name TEXT COLLATE "C", ADD COLUMN IF NOT EXISTS fold BOOLEAN,
  ADD COLUMN IF NOT EXISTS state SMALLINT, ADD COLUMN IF NOT EXISTS family TEXT COLLATE "C",
  ADD COLUMN IF NOT EXISTS key TEXT COLLATE "C", ADD COLUMN IF NOT EXISTS through BIGINT""",
)
"""The prerequisites of the indexes below.

A column without a value changes no row, and programs of format 5 do not see it.
"""

INDEXES = {
    "operation_name": """CREATE INDEX CONCURRENTLY operation_name ON operation (parent_id, family, key, seq)
  WHERE key IS NOT NULL""",
    "operation_other": """CREATE INDEX CONCURRENTLY operation_other ON operation (other_id, kind, seq)
  WHERE other_id IS NOT NULL""",
    "operation_version_seq": """CREATE UNIQUE INDEX CONCURRENTLY operation_version_seq ON operation (entity_id, version)
  INCLUDE (seq, through)""",
}
"""The indexes that are built before this revision, on a PostgreSQL database that is in use."""

_NEWEST = [
    """UPDATE operation SET parent_id = s.parent_id, name = s.name, fold = s.fold, state = s.state,
  family = CASE WHEN s.state = 0 THEN s.family END, key = CASE WHEN s.state = 0 THEN s.key END
FROM (SELECT g.*, e.version FROM guard g JOIN entity e ON e.id = g.id) AS s
WHERE operation.entity_id = s.id AND operation.version = s.version""",
    """UPDATE operation SET parent_id = w.owner_id, name = w.name, state = 0, family = w.kind, key = w.name
FROM owned AS w WHERE operation.entity_id = w.id AND operation.version = w.version""",
    """UPDATE operation SET parent_id = r.from_id, name = CAST(r.id AS TEXT), state = 0, family = r.kind,
  key = CAST(r.id AS TEXT)
FROM relation AS r WHERE operation.entity_id = r.id AND operation.version = r.version""",
    "UPDATE info SET past_from = (SELECT coalesce(max(seq), 0) FROM operation)",
]


def upgrade() -> None:
    """Add columns, an index and two tables; complete the steps."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("operation")}
    for name, kind in _COLUMNS:
        if name not in there:
            op.add_column("operation", sa.Column(name, kind))
    op.add_column("info", sa.Column("past_from", _ID, nullable=False, server_default="0"))
    op.create_table(
        "pin",
        sa.Column("name", _NAME, nullable=False),
        sa.Column("seq", _ID, nullable=False),
        sa.Column("principal", sa.Text),
        sa.Column("created_at", _ID, nullable=False),
        sa.Column("expires_at", _ID),
        sa.PrimaryKeyConstraint("name", name="pin_pkey"),
    )
    op.create_index("pin_seq", "pin", ["seq"])
    op.create_table(
        "consumer",
        sa.Column("name", _NAME, nullable=False),
        sa.Column("seq", _ID, nullable=False),
        sa.Column("created_at", _ID, nullable=False),
        sa.Column("moved_at", _ID, nullable=False),
        sa.PrimaryKeyConstraint("name", name="consumer_pkey"),
    )
    if op.get_bind().dialect.name == "postgresql":
        _replace_constraint()
    if not replay(op.get_bind()):
        for statement in _NEWEST:
            op.execute(statement)
    named = sa.text("key IS NOT NULL")
    columns = ["parent_id", "family", "key", "seq"]
    op.create_index(
        "operation_name", "operation", columns, if_not_exists=True, postgresql_where=named, sqlite_where=named
    )
    led = sa.text("other_id IS NOT NULL")
    columns = ["other_id", "kind", "seq"]
    op.create_index("operation_other", "operation", columns, if_not_exists=True, postgresql_where=led, sqlite_where=led)
    op.execute("UPDATE info SET format = 6, compatible_from = 6")


def _replace_constraint() -> None:
    """Let the constraint's index include more, with the index that was built before if there is one."""
    op.drop_constraint("operation_version", "operation")
    built = op.get_bind().scalar(sa.text("SELECT to_regclass('operation_version_seq') IS NOT NULL"))
    what = "UNIQUE USING INDEX operation_version_seq" if built else "UNIQUE (entity_id, version) INCLUDE (seq, through)"
    op.execute(f"ALTER TABLE operation ADD CONSTRAINT operation_version {what}")


def downgrade() -> None:
    """Remove what was added. Every pin and every consumer is lost."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("operation_version", "operation")
        op.create_unique_constraint("operation_version", "operation", ["entity_id", "version"])
    op.drop_index("operation_other", "operation")
    op.drop_index("operation_name", "operation")
    op.drop_table("consumer")
    op.drop_index("pin_seq", "pin")
    op.drop_table("pin")
    op.drop_column("info", "past_from")
    for name, _ in reversed(_COLUMNS):
        op.drop_column("operation", name)
    op.execute("UPDATE info SET format = 5, compatible_from = 2")
