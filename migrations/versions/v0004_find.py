"""Finding by name: an index over the names of what is live.

Programs of formats 2 and 3 know nothing of it and can go on. On PostgreSQL, writers wait while it is built (the index
is narrow); readers do not.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the partial index."""
    live = sa.text("state = 0")
    op.create_index("guard_name", "guard", ["name", "id"], postgresql_where=live, sqlite_where=live)
    op.execute("UPDATE info SET format = 4, compatible_from = 2")


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("guard_name", "guard")
    op.execute("UPDATE info SET format = 3, compatible_from = 2")
