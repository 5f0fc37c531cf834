"""An index over the names of live entities, for ``find``.

Programs of formats 2 and 3 do not need it, and can continue to use the database. On PostgreSQL it is built before this
revision runs, while writers go on (:mod:`metastore.migrations.indexes`).

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INDEXES = {"guard_name": "CREATE INDEX CONCURRENTLY guard_name ON guard (name, id) WHERE state = 0"}
"""The indexes that are built before this revision, on a PostgreSQL database that is in use."""


def upgrade() -> None:
    """Add the partial index, unless it was built before."""
    live = sa.text("state = 0")
    op.create_index("guard_name", "guard", ["name", "id"], if_not_exists=True, postgresql_where=live, sqlite_where=live)
    op.execute("UPDATE info SET format = 4, compatible_from = 2")


def downgrade() -> None:
    """Remove the index."""
    op.drop_index("guard_name", "guard")
    op.execute("UPDATE info SET format = 3, compatible_from = 2")
