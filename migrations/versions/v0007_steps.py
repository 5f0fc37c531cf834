"""Steps: what is being dropped in steps (state 3) keeps its name.

The unique index of live names takes in that state. On PostgreSQL the new index is built before this revision runs,
while writers go on (:mod:`metastore.migrations.indexes`); then it takes the old one's name. The condition is an OR:
SQLite uses a partial index for ``state = 0`` only if that is one side of it, and never if it is an IN.

Programs of format 6 must not use the database any more. They take the parent of such an entity for empty, let gc delete
it, purge it by its entity, and change a column that is being dropped.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COLUMNS = ["parent_id", "family", "key"]
_TAKEN = "state = 0 OR state = 3"

INDEXES = {
    "guard_taken_name": f"""CREATE UNIQUE INDEX CONCURRENTLY guard_taken_name ON guard (parent_id, family, key)
    WHERE {_TAKEN}"""
}
"""What is built before, on a PostgreSQL database that is in use."""


def upgrade() -> None:
    """Let the index of live names hold what is being dropped as well."""
    if op.get_bind().dialect.name == "postgresql":
        _index("guard_taken_name", _TAKEN, if_not_exists=True)
        op.drop_index("guard_live_name", "guard")
        op.execute("ALTER INDEX guard_taken_name RENAME TO guard_live_name")
    else:
        op.drop_index("guard_live_name", "guard")
        _index("guard_live_name", _TAKEN)
    op.execute("UPDATE info SET format = 7, compatible_from = 7")


def downgrade() -> None:
    """Bring the old index back. Raises RuntimeError while something is being dropped."""
    pending = op.get_bind().scalar(sa.text("SELECT count(*) FROM owned WHERE owner_id = 0 AND kind = 'drop'"))
    if pending:
        raise RuntimeError(f"{pending} drops are pending: finish them or roll them back before the downgrade")
    op.drop_index("guard_live_name", "guard")
    _index("guard_live_name", "state = 0")
    op.execute("UPDATE info SET format = 6, compatible_from = 6")


def _index(name: str, condition: str, *, if_not_exists: bool = False) -> None:
    where = sa.text(condition)
    op.create_index(
        name,
        "guard",
        _COLUMNS,
        unique=True,
        if_not_exists=if_not_exists,
        postgresql_where=where,
        sqlite_where=where,
    )
