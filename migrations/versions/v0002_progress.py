"""Progress: intents, kept results and tombstones in the operation table; marks on guards.

Programs of format 1 check neither pending intents nor marks, so they may no longer use the database.

Revision ID: 0002
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UUID = sa.Uuid().with_variant(sa.Text(), "sqlite")

_OPERATION: list[tuple[str, Any]] = [
    ("attempt", sa.Integer),
    ("deadline", _ID),
    ("digest", sa.Text),
    ("result", sa.Text),
    ("format", sa.Integer),
]
_GUARD: list[tuple[str, Any]] = [
    ("mark", _UUID),
    ("marked_at", _ID),
    ("marked_until", _ID),
    ("quiet_until", _ID),
]


def upgrade() -> None:
    """Add the columns and the two partial indexes."""
    for name, kind in _OPERATION:
        op.add_column("operation", sa.Column(name, kind))
    for name, kind in _GUARD:
        op.add_column("guard", sa.Column(name, kind))
    op.add_column("info", sa.Column("forgotten", _ID, nullable=False, server_default="0"))
    for name, table, column, where in (
        ("operation_pending", "operation", "entity_id", "action = 'pending'"),
        ("guard_marked", "guard", "id", "mark IS NOT NULL"),
    ):
        condition = sa.text(where)
        op.create_index(name, table, [column], postgresql_where=condition, sqlite_where=condition)
    op.execute("UPDATE info SET format = 2, compatible_from = 2")


def downgrade() -> None:
    """Remove the columns and indexes. Pending intents are lost, and their owners get an error."""
    op.execute("DELETE FROM operation WHERE seq IS NULL AND action <> 'forbidden'")
    op.drop_index("operation_pending", "operation")
    op.drop_index("guard_marked", "guard")
    op.drop_column("info", "forgotten")
    for name, _ in reversed(_GUARD):
        op.drop_column("guard", name)
    for name, _ in reversed(_OPERATION):
        op.drop_column("operation", name)
    op.execute("UPDATE info SET format = 1, compatible_from = 1")
