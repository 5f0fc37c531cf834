"""Tickets: transactions wait in line for entities that others write all the time.

Programs of earlier formats can continue to use the database. They take no tickets and look at none. Safety does not
depend on tickets: beside such a program a transaction needs more attempts, as it does without tickets.

Revision ID: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "ticket",
        sa.Column("entity_id", _ID, nullable=False),
        sa.Column("number", _ID, nullable=False),
        sa.Column("time", _ID, nullable=False),
        sa.Column("patience", _ID, nullable=False),
        sa.Column("since", _ID, nullable=False),
        sa.PrimaryKeyConstraint("entity_id", "number", name="ticket_pkey"),
    )
    op.execute("UPDATE info SET format = 9")  # the oldest supported format stays the same


def downgrade() -> None:
    """Remove the table: its tickets are only lost places in a line."""
    op.drop_table("ticket")
    op.execute("UPDATE info SET format = 8")
