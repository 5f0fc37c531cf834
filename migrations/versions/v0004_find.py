"""An index over the names of live entities, for ``find``.

Programs of formats 2 and 3 do not need it, and can go on to use the database. On PostgreSQL, writers wait while the
index is built, which is short because it is narrow; readers do not wait.

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
    """Remove the index."""
    op.drop_index("guard_name", "guard")
    op.execute("UPDATE info SET format = 3, compatible_from = 2")
