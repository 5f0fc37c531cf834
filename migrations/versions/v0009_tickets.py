"""Tickets: transactions on hot entities wait in line.

Revision ID: 0009
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count the format up."""
    op.execute("UPDATE info SET format = 9, compatible_from = 9")


def downgrade() -> None:
    """Count the format down."""
    op.execute("UPDATE info SET format = 8, compatible_from = 8")
