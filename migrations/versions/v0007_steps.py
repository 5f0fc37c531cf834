"""Steps: what is being dropped in steps (state 3) keeps its name.

The unique index of live names includes that state. Its condition is an OR: SQLite uses a partial index for ``state =
0`` only if that is one side of the OR, and never if the condition is an IN. PostgreSQL then checks the state again. The
other index of names leaves the root out: only ``find`` uses it. So PostgreSQL never prefers that index on a table that
was never analyzed.

On PostgreSQL the new indexes are built before this revision runs, while writers go on
(:mod:`metastore.migrations.indexes`); then they take the old ones' names.

Programs of format 6 may no longer use the database. They treat the parent of such an entity as empty, let gc delete it,
purge it by its entity, and change a column that is being dropped.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TAKEN, _BELOW_ROOT = "state = 0 OR state = 3", "state = 0 AND id <> 0"

INDEXES = {
    "guard_taken_name": f"""CREATE UNIQUE INDEX CONCURRENTLY guard_taken_name ON guard (parent_id, family, key)
    WHERE {_TAKEN}""",
    "guard_any_name": f"CREATE INDEX CONCURRENTLY guard_any_name ON guard (name, id) WHERE {_BELOW_ROOT}",
}
"""The indexes that are built before this revision, on a PostgreSQL database that is in use."""


def upgrade() -> None:
    """Let the index of live names include entities in a drop; leave the root out of the other index."""
    if op.get_bind().dialect.name == "postgresql":
        _live_name("guard_taken_name", _TAKEN, if_not_exists=True)
        _name("guard_any_name", _BELOW_ROOT, if_not_exists=True)
        _drop()
        op.execute("ALTER INDEX guard_taken_name RENAME TO guard_live_name")
        op.execute("ALTER INDEX guard_any_name RENAME TO guard_name")
    else:
        _drop()
        _live_name("guard_live_name", _TAKEN)
        _name("guard_name", _BELOW_ROOT)
    op.execute("UPDATE info SET format = 7, compatible_from = 7")


def downgrade() -> None:
    """Restore the old indexes. Raises RuntimeError while an entity is being dropped."""
    pending = op.get_bind().scalar(sa.text("SELECT count(*) FROM owned WHERE owner_id = 0 AND kind = 'drop'"))
    if pending:
        raise RuntimeError(f"{pending} drops are pending: finish them or roll them back before the downgrade")
    _drop()
    _live_name("guard_live_name", "state = 0")
    _name("guard_name", "state = 0")
    op.execute("UPDATE info SET format = 6, compatible_from = 6")


def _drop() -> None:
    for name in ("guard_live_name", "guard_name"):
        op.drop_index(name, "guard")


def _live_name(name: str, condition: str, *, if_not_exists: bool = False) -> None:
    columns, where = ["parent_id", "family", "key"], sa.text(condition)
    op.create_index(
        name, "guard", columns, unique=True, if_not_exists=if_not_exists, postgresql_where=where, sqlite_where=where
    )


def _name(name: str, condition: str, *, if_not_exists: bool = False) -> None:
    columns, where = ["name", "id"], sa.text(condition)
    op.create_index(name, "guard", columns, if_not_exists=if_not_exists, postgresql_where=where, sqlite_where=where)
