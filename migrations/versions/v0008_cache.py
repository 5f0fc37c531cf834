"""The cache's members and announcements.

Revision ID: 0008
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count the format up."""
    op.execute("UPDATE info SET format = 8, compatible_from = 8")


def downgrade() -> None:
    """Count the format down."""
    op.execute("UPDATE info SET format = 7, compatible_from = 7")
