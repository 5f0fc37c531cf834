"""Steps: what is being dropped, and how far its destruction is.

Revision ID: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count the format up."""
    op.execute("UPDATE info SET format = 7, compatible_from = 7")


def downgrade() -> None:
    """Count the format down."""
    op.execute("UPDATE info SET format = 6, compatible_from = 6")
