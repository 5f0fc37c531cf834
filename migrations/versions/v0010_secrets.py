"""Keys of secret properties.

Revision ID: 0010
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count the format up."""
    op.execute("UPDATE info SET format = 10, compatible_from = 10")


def downgrade() -> None:
    """Count the format down."""
    op.execute("UPDATE info SET format = 9, compatible_from = 9")
