"""Relations between two entities: owners, tags, policies, memberships, grants.

A relation goes from one entity to another. Its key begins with the entity that it goes from; a second index leads from
the other end. Events of relations name the other end. Programs of formats 2 to 4 do not need any of these, and can
continue to use the database.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

BEFORE = ("ALTER TABLE operation ADD COLUMN IF NOT EXISTS other_id BIGINT, ADD COLUMN IF NOT EXISTS other_path TEXT",)
"""The prerequisite of an index of revision 6, which is built before both revisions.

Programs of formats 2 to 4 do not see the columns.
"""


def upgrade() -> None:
    """Create the table and its index, and add the columns that name the other end."""
    op.create_table(
        "relation",
        sa.Column("from_id", _ID, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("slot", _ID, nullable=False),
        sa.Column("column_id", _ID, nullable=False),
        sa.Column("value", _NAME, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("to_id", _ID, nullable=False),
        sa.Column("version", _ID, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at", _ID, nullable=False),
        sa.Column("modified_by", sa.Text),
        sa.Column("modified_at", _ID, nullable=False),
        sa.PrimaryKeyConstraint("from_id", "kind", "slot", "column_id", "value", name="relation_pkey"),
        sa.UniqueConstraint("id", name="relation_id"),
    )
    op.create_index("relation_to", "relation", ["to_id", "kind", "value", "from_id", "column_id"])
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("operation")}
    for name, kind in (("other_id", _ID), ("other_path", sa.Text)):
        if name not in there:
            op.add_column("operation", sa.Column(name, kind))
    op.execute("UPDATE info SET format = 5, compatible_from = 2")


def downgrade() -> None:
    """Remove them."""
    for column in ("other_path", "other_id"):
        op.drop_column("operation", column)
    op.drop_table("relation")
    op.execute("UPDATE info SET format = 4, compatible_from = 2")
