"""The tables as this program declares them. The migrations create them; a test compares the two.

docs/architecture.md ("The tables") says what a row of each table is, and when it changes.

Times are microseconds since 1970, UTC, by the database's clock. There are no foreign keys: they would lock rows at the
end of a statement, after the position in the feed was drawn. ``verify`` checks the references.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

metadata = MetaData()
# names are compared by code point, which is COLLATE "C" in PostgreSQL, and the default in SQLite
_Name = Text().with_variant(Text(collation="C"), "postgresql")
_Id = BigInteger().with_variant(Integer(), "sqlite")
_Ids = ARRAY(BigInteger()).with_variant(Text(), "sqlite")


def _audit() -> Iterator[Column[Any]]:
    """Yield the columns for the creator and the last modifier of a row, and for the times."""
    for done in ("created", "modified"):
        yield Column(f"{done}_by", Text)
        yield Column(f"{done}_at", _Id, nullable=False)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows that satisfy ``where``."""
    return Index(name, *columns, unique=unique, postgresql_where=text(where), sqlite_where=text(where))


guard = Table(
    "guard",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("parent_id", _Id, nullable=False),
    Column("kind", Text, nullable=False),
    Column("family", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    Column("key", _Name, nullable=False),
    Column("fold", Boolean, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("in_use", Boolean, nullable=False),
    Column("scope_version", _Id, nullable=False),
    Column("dropped_at", _Id),
    Column("mark", Uuid().with_variant(Text(), "sqlite")),  # the exclusive operation that is announced here
    Column("marked_at", _Id),
    Column("marked_until", _Id),
    Column("quiet_until", _Id),  # until then the others have their turn: no new mark, no exclusive operation
    # a full unique index, so that an update of the scope version conflicts with FOR KEY SHARE
    UniqueConstraint("id", "scope_version", name="guard_scope"),
    # an entity that is being dropped in steps (3) keeps its name; with OR, but not with IN, SQLite uses the index for a
    # statement with "state = 0"
    _partial("guard_live_name", "parent_id", "family", "key", where="state = 0 OR state = 3", unique=True),
    _partial("guard_gone", "parent_id", "family", "key", where="state <> 0"),
    # Finds entities by name, at any place. The root is left out, so that PostgreSQL does not choose this index to
    # resolve a path
    _partial("guard_name", "name", "id", where="state = 0 AND id <> 0"),
    _partial("guard_marked", "id", where="mark IS NOT NULL"),
)

entity = Table(
    "entity",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("version", _Id, nullable=False),
    Column("doc", Text, nullable=False),
    *_audit(),
)

owned = Table(
    "owned",
    metadata,
    Column("owner_id", _Id, nullable=False),
    Column("kind", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    Column("id", _Id, nullable=False),
    Column("version", _Id, nullable=False),
    Column("doc", Text, nullable=False),
    *_audit(),
    PrimaryKeyConstraint("owner_id", "kind", "name", name="owned_pkey"),
    UniqueConstraint("id", name="owned_id"),
)

relation = Table(
    "relation",
    metadata,
    Column("from_id", _Id, nullable=False),
    Column("kind", _Name, nullable=False),
    Column("slot", _Id, nullable=False),  # the id of the other end; 0 if an entity has at most one relation of the kind
    Column("column_id", _Id, nullable=False),  # 0: the relation goes from the entity itself
    Column("value", _Name, nullable=False),  # "": no value
    Column("id", _Id, nullable=False),
    Column("to_id", _Id, nullable=False),
    Column("version", _Id, nullable=False),
    *_audit(),
    PrimaryKeyConstraint("from_id", "kind", "slot", "column_id", "value", name="relation_pkey"),
    UniqueConstraint("id", name="relation_id"),
    Index("relation_to", "to_id", "kind", "value", "from_id", "column_id"),
)

operation = Table(
    "operation",
    metadata,
    Column("operation_id", Uuid().with_variant(Text(), "sqlite"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("seq", _Id),  # NULL: a tombstone, which no feed shows
    Column("entity_id", _Id),
    Column("version", _Id),
    Column("owner_id", _Id),  # of an owned row: its owner; of a relation: the end from which it goes
    Column("kind", Text),
    Column("action", Text, nullable=False),
    Column("principal", Text),
    Column("time", _Id, nullable=False),
    Column("path_before", Text),
    Column("path_after", Text),
    Column("changes", Text),
    Column("scope_version", _Id),
    Column("in_use", Boolean),
    Column("doc", Text),
    Column("attempt", Integer),  # counts the claims of a claimable row, so that a late claim fails
    Column("deadline", _Id),  # of an intent: no helper applies it after this time
    Column("digest", Text),  # the fingerprint of the arguments, if the caller gave the id
    Column("result", Text),  # the answer as JSON, if the row's other columns do not show it
    Column("format", Integer),  # of an intent: the format of its changes
    Column("fences", Text),  # the leases of the commit: JSON, pairs of id and token
    Column("other_id", _Id),  # of a relation: the end to which it leads
    Column("other_path", Text),  # of a relation: the other end's path
    # The state of the row after the step, for reads of the past. An owned row has its owner as parent.
    Column("parent_id", _Id),
    Column("name", _Name),
    Column("fold", Boolean),
    Column("state", SmallInteger),
    Column("family", _Name),  # set only if the step took the name (family, key), or gc removed that step
    Column("key", _Name),
    Column("through", _Id),  # the last position of a commit with several rows; before it, the past shows none of them
    # the generation without members in which the row was committed; NULL: the commit was announced, or is older
    Column("generation", _Id),
    Column("writer", SmallInteger),  # the format of the program that wrote a row with a position
    PrimaryKeyConstraint("operation_id", "ordinal", name="operation_pkey"),
    UniqueConstraint("seq", name="operation_seq"),
    # the included columns show which version was the newest then, without a look at the rows
    UniqueConstraint("entity_id", "version", name="operation_version", postgresql_include=["seq", "through"]),
    # finds the entity that had a name, and the entities below a parent, at a position
    _partial("operation_name", "parent_id", "family", "key", "seq", where="key IS NOT NULL"),
    # finds the relations that led to an entity at a position
    _partial("operation_other", "other_id", "kind", "seq", where="other_id IS NOT NULL"),
    _partial("operation_pending", "entity_id", where="action = 'pending'"),
    _partial("operation_fenced", "seq", where="fences IS NOT NULL"),
)

lease = Table(
    "lease",
    metadata,
    Column("name", _Name, nullable=False),
    Column("id", _Id, nullable=False),
    Column("token", _Id, nullable=False),
    Column("owner", Text),  # NULL: the lease is free
    Column("incarnation", Text),
    Column("took_over", Boolean, nullable=False),  # the token was taken from a holder whose time was over
    Column("acquired_at", _Id),
    Column("expires_at", _Id),
    PrimaryKeyConstraint("name", name="lease_pkey"),
    # a full unique index, so that a new token conflicts with FOR KEY SHARE, but a renewal does not
    UniqueConstraint("name", "token", name="lease_token"),
)

lease_waiter = Table(
    "lease_waiter",
    metadata,
    Column("name", _Name, nullable=False),
    Column("ticket", _Id, nullable=False),  # in the order of arrival; a waiter has one number for all its names
    Column("owner", Text, nullable=False),
    Column("alive_until", _Id, nullable=False),
    PrimaryKeyConstraint("name", "ticket", name="lease_waiter_pkey"),
)

staged = Table(
    "staged",
    metadata,
    Column("id", Uuid().with_variant(Text(), "sqlite"), nullable=False),
    Column("lease_id", _Id, nullable=False),
    Column("token", _Id, nullable=False),
    Column("lease", Text, nullable=False),
    Column("entity_id", _Id, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("principal", Text),
    Column("time", _Id, nullable=False),
    Column("number", _Id, nullable=False),  # orders values as they were staged
    Column("state", SmallInteger, nullable=False),  # staged, published (until no lease has the token), or being deleted
    PrimaryKeyConstraint("id", name="staged_pkey"),
    Index("staged_under", "lease_id", "token"),
)

ticket = Table(
    "ticket",
    metadata,
    Column("entity_id", _Id, nullable=False),
    # in the order of arrival; a ticket has one number for all its entities; 0: not a ticket
    Column("number", _Id, nullable=False),
    Column("time", _Id, nullable=False),
    Column("patience", _Id, nullable=False),  # how long it may be the head without a move (µs)
    Column("since", _Id, nullable=False),  # when it begins to count; for number 0: when the others' turn ends
    PrimaryKeyConstraint("entity_id", "number", name="ticket_pkey"),
)

cache_member = Table(
    "cache_member",
    metadata,
    Column("id", _Id, nullable=False, autoincrement=False),
    Column("incarnation", Text, nullable=False),
    Column("renewals", _Id, nullable=False),
    Column("seen", Text, nullable=False),  # a snapshot: the member has evicted all changes announced in it
    Column("ttl", _Id, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", _Id, nullable=False),
    Column("joined_at", _Id, nullable=False),
    Column("renewed_at", _Id, nullable=False),
    PrimaryKeyConstraint("id", name="cache_member_pkey"),
)

cache_announcement = Table(
    "cache_announcement",
    metadata,
    Column("id", _Id, nullable=False, autoincrement=False),
    Column("xid", _Id, nullable=False),  # the transaction that announced the change
    Column("ids", _Ids, nullable=False),  # the entities whose content changes
    Column("scopes", _Ids, nullable=False),  # the entities that change with everything below them; 0: everything
    Column("parents", _Ids, nullable=False),  # the entities that get or lose children
    Column("at", _Id, nullable=False),
    PrimaryKeyConstraint("id", name="cache_announcement_pkey"),
)

info = Table(
    "info",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("format", Integer, nullable=False),
    Column("compatible_from", Integer, nullable=False),
    Column("epoch", Text, nullable=False),
    Column("origin", Text, nullable=False),  # PostgreSQL: where the epoch began; a copy elsewhere begins a new epoch
    Column("collected_seq", _Id, nullable=False),  # gc removed no operation after this position
    Column("last_id", _Id, nullable=False),  # SQLite only: PostgreSQL has sequences
    Column("last_seq", _Id, nullable=False),
    Column("forgotten", _Id, nullable=False, server_default="0"),  # gc removed operations older than this time
    Column("past_from", _Id, nullable=False, server_default="0"),  # the first position of a complete past
    # gc writes its program's format here; a trigger checks and clears it
    Column("writer", SmallInteger),
)

pin = Table(
    "pin",
    metadata,
    Column("name", _Name, nullable=False),
    Column("seq", _Id, nullable=False),
    Column("principal", Text),
    Column("created_at", _Id, nullable=False),
    Column("expires_at", _Id),  # NULL: the pin stays until it is removed
    PrimaryKeyConstraint("name", name="pin_pkey"),
    Index("pin_seq", "seq"),
)

consumer = Table(
    "consumer",
    metadata,
    Column("name", _Name, nullable=False),
    Column("seq", _Id, nullable=False),  # the consumer has read the feed up to this position
    Column("created_at", _Id, nullable=False),
    Column("moved_at", _Id, nullable=False),
    PrimaryKeyConstraint("name", name="consumer_pkey"),
)

secret_key = Table(
    "secret_key",
    metadata,
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("wrapped", Text),  # NULL: a rotation destroyed the key
    Column("wrapper", Text, nullable=False),  # the name of the environment's key that wraps it
    Column("created_at", _Id, nullable=False),
    PrimaryKeyConstraint("number", name="secret_key_pkey"),
)
