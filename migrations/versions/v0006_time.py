"""Time: how each row stood after a step, so that the past can be read; pins and consumers of the feed.

The past begins at the position of this migration: the newest step of each entity and owned row is completed from the
tables. Other clients wait meanwhile. Programs of earlier formats write steps that do not say where an entity stood, so
that they must not use the database any more.

Revision ID: 0006
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

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

_NEWEST = [
    """UPDATE operation SET parent_id = s.parent_id, name = s.name, fold = s.fold, state = s.state,
  family = CASE WHEN s.state = 0 THEN s.family END, key = CASE WHEN s.state = 0 THEN s.key END
FROM (SELECT g.*, e.version FROM guard g JOIN entity e ON e.id = g.id) AS s
WHERE operation.entity_id = s.id AND operation.version = s.version""",
    """UPDATE operation SET parent_id = w.owner_id, name = w.name, state = 0, family = w.kind, key = w.name
FROM owned AS w WHERE operation.entity_id = w.id AND operation.version = w.version""",
    "UPDATE info SET past_from = (SELECT coalesce(max(seq), 0) FROM operation)",
]


def upgrade() -> None:
    """Add columns, an index and two tables; complete the newest steps."""
    for name, kind in _COLUMNS:
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
    for statement in _NEWEST:
        op.execute(statement)
    named = sa.text("key IS NOT NULL")
    columns = ["parent_id", "family", "key", "seq"]
    op.create_index("operation_name", "operation", columns, postgresql_where=named, sqlite_where=named)
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("operation_version", "operation")
        op.execute(
            "ALTER TABLE operation ADD CONSTRAINT operation_version UNIQUE (entity_id, version) INCLUDE (seq, through)"
        )
    op.execute("UPDATE info SET format = 6, compatible_from = 6")


def downgrade() -> None:
    """Remove what was added. Every pin and every consumer is lost."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("operation_version", "operation")
        op.create_unique_constraint("operation_version", "operation", ["entity_id", "version"])
    op.drop_index("operation_name", "operation")
    op.drop_table("consumer")
    op.drop_index("pin_seq", "pin")
    op.drop_table("pin")
    op.drop_column("info", "past_from")
    for name, _ in reversed(_COLUMNS):
        op.drop_column("operation", name)
    op.execute("UPDATE info SET format = 5, compatible_from = 2")
