"""Leases: their tokens, waiters and staged work; and the leases under which each commit was made.

Programs of format 2 can continue to use the database. They do not know leases, so they make no commit under one; their
gc removes the rows of leases in the operation table like all others. Their ``verify`` does not know those rows.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add three tables, and a column with its partial index."""
    op.create_table(
        "lease",
        sa.Column("name", _NAME, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("token", _ID, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("incarnation", sa.Text),
        sa.Column("took_over", sa.Boolean, nullable=False),
        sa.Column("acquired_at", _ID),
        sa.Column("expires_at", _ID),
        sa.PrimaryKeyConstraint("name", name="lease_pkey"),
        sa.UniqueConstraint("name", "token", name="lease_token"),
    )
    op.create_table(
        "lease_waiter",
        sa.Column("name", _NAME, nullable=False),
        sa.Column("ticket", _ID, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("alive_until", _ID, nullable=False),
        sa.PrimaryKeyConstraint("name", "ticket", name="lease_waiter_pkey"),
    )
    op.create_table(
        "staged",
        sa.Column("id", sa.Uuid().with_variant(sa.Text(), "sqlite"), nullable=False),
        sa.Column("lease_id", _ID, nullable=False),
        sa.Column("token", _ID, nullable=False),
        sa.Column("lease", sa.Text, nullable=False),
        sa.Column("entity_id", _ID, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("principal", sa.Text),
        sa.Column("time", _ID, nullable=False),
        sa.Column("number", _ID, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="staged_pkey"),
    )
    op.create_index("staged_under", "staged", ["lease_id", "token"])
    op.add_column("operation", sa.Column("fences", sa.Text))
    fenced = sa.text("fences IS NOT NULL")
    op.create_index("operation_fenced", "operation", ["seq"], postgresql_where=fenced, sqlite_where=fenced)
    op.execute("UPDATE info SET format = 3, compatible_from = 2")


def downgrade() -> None:
    """Remove the tables, the column and the index. Every lease and all staged work is lost."""
    op.drop_index("operation_fenced", "operation")
    op.drop_column("operation", "fences")
    for table in ("staged", "lease_waiter", "lease"):
        op.drop_table(table)
    op.execute("DELETE FROM operation WHERE kind = 'lease'")
    op.execute("UPDATE info SET format = 2, compatible_from = 2")
