"""Places: steps of history that did not say where an entity stood, or under which name, say so.

Programs of earlier formats would write such steps again, so they may no longer use the database.

Revision ID: 0011
"""

from __future__ import annotations

from alembic import op

from metastore.migrations.repairs import repair

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Mend the steps."""
    repair(op.get_bind())
    op.execute("UPDATE info SET format = 11, compatible_from = 11")


def downgrade() -> None:
    """Leave what was mended."""
    op.execute("UPDATE info SET format = 10, compatible_from = 10")
