"""The core: guards, entities, owned rows, operations.

Revision ID: 0001
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_TRIGGER = {
    "postgresql": [
        """CREATE FUNCTION metastore_refuse_silent_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'guard %: parent, name, state or in-use changed without a new scope version', OLD.id
    USING ERRCODE = '23514';
END $$""",
        """CREATE TRIGGER guard_scope_bump BEFORE UPDATE ON guard FOR EACH ROW
WHEN (NEW.scope_version <= OLD.scope_version AND (OLD.parent_id, OLD.family, OLD.kind, OLD.name, OLD.key, OLD.fold,
  OLD.state, OLD.in_use) IS DISTINCT FROM (NEW.parent_id, NEW.family, NEW.kind, NEW.name, NEW.key, NEW.fold,
  NEW.state, NEW.in_use))
EXECUTE FUNCTION metastore_refuse_silent_move()""",
    ],
    "sqlite": [
        """CREATE TRIGGER guard_scope_bump BEFORE UPDATE ON guard FOR EACH ROW
WHEN NEW.scope_version <= OLD.scope_version AND (OLD.parent_id, OLD.family, OLD.kind, OLD.name, OLD.key, OLD.fold,
  OLD.state, OLD.in_use) IS NOT (NEW.parent_id, NEW.family, NEW.kind, NEW.name, NEW.key, NEW.fold,
  NEW.state, NEW.in_use)
BEGIN
  SELECT RAISE(ABORT, 'guard: parent, name, state or in-use changed without a new scope version');
END"""
    ],
}


def upgrade() -> None:
    """Create the tables, the sequences, the trigger, the root and the database's epoch."""
    dialect = op.get_bind().dialect.name
    op.create_table(
        "guard",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("parent_id", _ID, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("family", _NAME, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("key", _NAME, nullable=False),
        sa.Column("fold", sa.Boolean, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("in_use", sa.Boolean, nullable=False),
        sa.Column("scope_version", _ID, nullable=False),
        sa.Column("dropped_at", _ID),
        sa.UniqueConstraint("id", "scope_version", name="guard_scope"),
    )
    for name, where, unique in (("guard_live_name", "state = 0", True), ("guard_gone", "state <> 0", False)):
        condition = sa.text(where)
        op.create_index(
            name,
            "guard",
            ["parent_id", "family", "key"],
            unique=unique,
            postgresql_where=condition,
            sqlite_where=condition,
        )
    op.create_table(
        "entity",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("version", _ID, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        *_audit(),
    )
    op.create_table(
        "owned",
        sa.Column("owner_id", _ID, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("version", _ID, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        *_audit(),
        sa.PrimaryKeyConstraint("owner_id", "kind", "name", name="owned_pkey"),
        sa.UniqueConstraint("id", name="owned_id"),
    )
    op.create_table(
        "operation",
        sa.Column("operation_id", sa.Uuid().with_variant(sa.Text(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("seq", _ID),
        sa.Column("entity_id", _ID),
        sa.Column("version", _ID),
        sa.Column("owner_id", _ID),
        sa.Column("kind", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("principal", sa.Text),
        sa.Column("time", _ID, nullable=False),
        sa.Column("path_before", sa.Text),
        sa.Column("path_after", sa.Text),
        sa.Column("changes", sa.Text),
        sa.Column("scope_version", _ID),
        sa.Column("in_use", sa.Boolean),
        sa.Column("doc", sa.Text),
        sa.PrimaryKeyConstraint("operation_id", "ordinal", name="operation_pkey"),
        sa.UniqueConstraint("seq", name="operation_seq"),
        sa.UniqueConstraint("entity_id", "version", name="operation_version"),
    )
    op.create_table(
        "info",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("compatible_from", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("collected_seq", _ID, nullable=False),
        sa.Column("last_id", _ID, nullable=False),
        sa.Column("last_seq", _ID, nullable=False),
    )
    if dialect == "postgresql":
        op.execute("CREATE SEQUENCE entity_id_seq CACHE 1")
        op.execute("CREATE SEQUENCE change_seq CACHE 1")
    for statement in _TRIGGER[dialect]:
        op.execute(statement)
    epoch = f"{time.time_ns() // 1000:014x}"
    row = sa.text("INSERT INTO info VALUES (1, 1, 1, :epoch, '', 0, 0, 0)")
    op.get_bind().execute(row, {"epoch": epoch})
    op.execute("INSERT INTO guard VALUES (0, -1, 'root', 'root', '', '', false, 0, true, 1, NULL)")


def _audit() -> list[sa.Column[object]]:
    return [
        sa.Column("created_by", sa.Text),
        sa.Column("created_at", _ID, nullable=False),
        sa.Column("modified_by", sa.Text),
        sa.Column("modified_at", _ID, nullable=False),
    ]


def downgrade() -> None:
    """Remove everything."""
    for table in ("info", "operation", "owned", "entity", "guard"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        for statement in (
            "DROP SEQUENCE entity_id_seq",
            "DROP SEQUENCE change_seq",
            "DROP FUNCTION metastore_refuse_silent_move()",
        ):
            op.execute(statement)
