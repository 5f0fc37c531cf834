"""The cache's members and announcements, and the rule that no change passes a member by.

A commit says under which generation its program saw no members, or names its announcement. The trigger refuses a commit
that says neither while members exist. So programs of earlier formats can continue to use the database. They are
refused, as BackendUnavailable, while a store with a lease cache is open.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_IDS = sa.ARRAY(sa.BigInteger()).with_variant(sa.Text(), "sqlite")

_RULE = """CREATE FUNCTION metastore_refuse_unannounced() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  a cache_announcement;
  covered boolean;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'a change needs the isolation read committed here' USING ERRCODE = '53M01';
  END IF;
  -- Before the members are read: a member that joins later waits until this transaction is over.
  PERFORM pg_current_xact_id();
  IF NOT EXISTS (SELECT FROM cache_member) THEN
    RETURN NEW;
  END IF;
  -- Locked until the commit: an announcement that is taken away meanwhile would let a member keep what changes here.
  SELECT * INTO a FROM cache_announcement
    WHERE id = nullif(current_setting('metastore.announcement', true), '')::bigint FOR KEY SHARE;
  covered := FOUND AND NOT EXISTS (SELECT FROM cache_member
    WHERE NOT pg_visible_in_snapshot(a.xid::text::xid8, seen::pg_snapshot));
  IF covered AND 0 <> ALL(a.scopes) THEN
    covered := CASE NEW.action
      WHEN 'create' THEN NEW.parent_id = ANY(a.parents)
      WHEN 'alter' THEN NEW.entity_id = ANY(a.ids || a.scopes)
      ELSE NEW.entity_id = ANY(a.scopes) AND NEW.parent_id = ANY(a.parents)
        -- where it stood before
        AND NOT EXISTS (SELECT FROM operation o WHERE o.entity_id = NEW.entity_id AND o.version = NEW.version - 1
          AND o.parent_id <> ALL(a.parents)) END;
  END IF;
  IF covered THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'processes that cache must know of this change before it is made, and it was not announced to them; '
    'use a program of format 8 or later, or close the stores that were opened with a lease cache'
    USING ERRCODE = '53M01';
END $$"""
_TRIGGER = """CREATE TRIGGER operation_announced BEFORE INSERT OR UPDATE OF seq ON operation FOR EACH ROW
WHEN (NEW.generation IS NULL AND NEW.seq IS NOT NULL AND NEW.owner_id IS NULL AND NEW.kind IS DISTINCT FROM 'lease')
EXECUTE FUNCTION metastore_refuse_unannounced()"""


def upgrade() -> None:
    """Create the tables, the sequence and the trigger, and add the column."""
    op.add_column("operation", sa.Column("generation", _ID))
    op.create_table(
        "cache_member",
        sa.Column("id", _ID, nullable=False, autoincrement=False),
        sa.Column("incarnation", sa.Text, nullable=False),
        sa.Column("renewals", _ID, nullable=False),
        sa.Column("seen", sa.Text, nullable=False),
        sa.Column("ttl", _ID, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", _ID, nullable=False),
        sa.Column("joined_at", _ID, nullable=False),
        sa.Column("renewed_at", _ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cache_member_pkey"),
    )
    op.create_table(
        "cache_announcement",
        sa.Column("id", _ID, nullable=False, autoincrement=False),
        sa.Column("xid", _ID, nullable=False),
        sa.Column("ids", _IDS, nullable=False),
        sa.Column("scopes", _IDS, nullable=False),
        sa.Column("parents", _IDS, nullable=False),
        sa.Column("at", _ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cache_announcement_pkey"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE SEQUENCE cache_generation CACHE 1")
        op.execute("SELECT nextval('cache_generation')")
        op.execute(_RULE)
        op.execute(_TRIGGER)
    op.execute("UPDATE info SET format = 8")


def downgrade() -> None:
    """Remove them. Close the stores with a lease cache first: they would no longer learn of changes."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER operation_announced ON operation")
        op.execute("DROP FUNCTION metastore_refuse_unannounced()")
        op.execute("DROP SEQUENCE cache_generation")
    op.drop_table("cache_announcement")
    op.drop_table("cache_member")
    op.drop_column("operation", "generation")
    op.execute("UPDATE info SET format = 7")
