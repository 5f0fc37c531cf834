"""Writers: programs that are too old, and were open before a migration, can change nothing any more.

Revision ID: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from metastore.migrations.writers import from_any, only_from

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

OLDEST = 12
"""The oldest format whose programs may write from here on."""


def upgrade() -> None:
    """Add the columns in which programs state their format, and the triggers."""
    op.add_column("operation", sa.Column("writer", sa.SmallInteger))
    op.add_column("info", sa.Column("writer", sa.SmallInteger))
    only_from(OLDEST)
    op.execute("UPDATE info SET format = 12, compatible_from = 12")


def downgrade() -> None:
    """Remove them."""
    from_any()
    op.drop_column("info", "writer")
    op.drop_column("operation", "writer")
    op.execute("UPDATE info SET format = 11, compatible_from = 11")
