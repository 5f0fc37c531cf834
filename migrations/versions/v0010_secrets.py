"""Keys of secret properties: the data keys that encrypt them.

Programs of earlier formats would write properties that are declared secret as plain text, so they may no longer use the
database.

Revision ID: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_TIME = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table of data keys."""
    op.create_table(
        "secret_key",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("wrapped", sa.Text),
        sa.Column("wrapper", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("number", name="secret_key_pkey"),
    )
    op.execute("UPDATE info SET format = 10, compatible_from = 10")


def downgrade() -> None:
    """Remove the data keys. Every encrypted property is lost."""
    op.drop_table("secret_key")
    op.execute("UPDATE info SET format = 9, compatible_from = 7")
