"""The identity of a PostgreSQL database, and whether its rows were copied from another database.

``info.origin`` names the database in which the feed's epoch began: the cluster's number and the database's, ``?`` for
an unknown part. A copy elsewhere (a restored dump, CREATE DATABASE … TEMPLATE) has another epoch. The first store that
opens the copy, sees the difference and may write notes the new place. A reader never writes: until a place is noted, it
derives an epoch. A part that a role may not read is unknown, and an unknown part never counts as a difference.

A server that was promoted, or recovered to an instant, writes on another *timeline*, which may lack changes of the
previous one. The timeline's number is a part of the epoch, so nothing has to be noted. Each answer says on which
timeline it was given.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from metastore.port.feed import on_timeline

TIMELINE = """(CASE WHEN pg_is_in_recovery() OR to_regproc('aurora_version') IS NOT NULL THEN 1
  ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END)"""
"""The timeline on which a primary writes. (pg_control_checkpoint() shows a new one only after a checkpoint.)

It is 1 on a replica: the primary then checks a position from there more closely. It is also 1 on Aurora, where these
functions may fail: its servers share one storage, so a fail-over loses nothing.
"""

START = f"SELECT compatible_from, epoch, origin, {TIMELINE}, collected_seq FROM info"
"""The beginning of the feed."""

CACHED = """SELECT seqrelid::regclass::text FROM pg_sequence
  WHERE seqrelid IN (to_regclass('entity_id_seq'), to_regclass('change_seq')) AND seqcache <> 1"""
"""The sequences whose CACHE is not 1."""

INFO = f"""SELECT format, compatible_from, origin,
  (SELECT oid::text FROM pg_database WHERE datname = current_database()),
  has_column_privilege('info', 'origin', 'UPDATE') AND has_column_privilege('info', 'epoch', 'UPDATE')
    AND current_setting('transaction_read_only') = 'off',
  ARRAY({CACHED})
FROM info"""
"""The formats, the noted origin, the database's number, whether we may note another one, and sequences with a cache.
"""

CLUSTER = "SELECT system_identifier::text FROM pg_control_system()"

NOTE = """UPDATE info SET origin = %(here)s, epoch = CASE WHEN %(copied)s THEN %(epoch)s ELSE epoch END
  WHERE origin = %(noted)s RETURNING 1"""
"""Notes the place of the database. If several clients do so at once, the first one's epoch stays."""

HIDDEN = """SELECT n.nspname, current_user FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relname = 'change_seq' AND c.relkind = 'S' AND NOT has_schema_privilege(n.oid, 'USAGE')
    AND n.nspname IN (SELECT btrim(replace(part, '$user', current_user), '" ')
      FROM unnest(string_to_array(current_setting('search_path'), ',')) AS path(part))"""
"""The schemas in the search path with this program's tables that the role may not use, so that it does not see them."""

_UNKNOWN = "?"


class Home(NamedTuple):
    """The numbers of a cluster and of a database in it; None: unknown."""

    cluster: str | None
    database: str | None

    @classmethod
    def parse(cls, noted: str) -> Home:
        """Return the place in ``info.origin``; "" (never noted) is unknown."""
        cluster, _, database = noted.partition("/")
        return cls(*(None if part in ("", _UNKNOWN) else part for part in (cluster, database)))

    def __str__(self) -> str:
        return "/".join(part or _UNKNOWN for part in self)

    def differs(self, other: Home) -> bool:
        """Whether a part that is known in both differs."""
        return any(None not in (mine, its) and mine != its for mine, its in zip(self, other, strict=True))

    def completed(self, other: Home) -> Home:
        """Return this place, with the parts that only ``other`` knows, unless the two differ."""
        return self if self.differs(other) else Home(self.cluster or other.cluster, self.database or other.database)


def epoch_at(here: Home, epoch: str, noted: str, timeline: int = 1) -> str:
    """Return the epoch of the feed: the stored one, or a derived one for a copy whose place is not noted yet."""
    if here.differs(Home.parse(noted)):
        epoch = f"{epoch}c{sha256(str(here).encode()).hexdigest()[:12]}"
    return on_timeline(epoch, timeline)
