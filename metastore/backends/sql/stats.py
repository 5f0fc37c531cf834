"""The answer of ``Backend.stats``, and the statements for it on PostgreSQL and SQLite.

It is one statement, and so one instant and one round trip; its lists come as JSON. A second statement asks PostgreSQL
for its MultiXact members, if the role may run it.

**Undecided positions** (PostgreSQL). A missing number in the feed is final when every transaction that could have drawn
it is over. Such a transaction had its id before it drew the number, so before a later number was drawn. So a gap is
open if a running transaction with an id began before the first change after the gap; until then the feed does not
deliver the changes after it. The begin is compared by the clock, with a second to spare. Roles that are not in
pg_read_all_stats cannot see ``xact_start`` of other roles; for them it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import Fetch, from_named
from metastore.errors import MetastoreError
from metastore.port.stats import NEWEST, DatabaseStats, HotRow, LineRow, MarkRow

_COMMON = """
-- The database's clock, read once.
now AS (SELECT {now} AS at),
-- The newest steps of the feed: more are never counted.
recent AS MATERIALIZED (
  SELECT seq, time, kind, coalesce(owner_id, entity_id) AS id FROM operation
  WHERE seq IS NOT NULL ORDER BY seq DESC LIMIT {newest}),
-- The entities that were written most often of late. An owned row counts for its owner; a lease is not an entity.
hot AS MATERIALIZED (
  SELECT id, count(*) AS writes FROM recent
  WHERE id IS NOT NULL AND coalesce(kind, '') <> 'lease' AND time >= (SELECT at FROM now) - CAST(:since AS bigint)
  GROUP BY id ORDER BY count(*) DESC, id LIMIT :page_size),
-- The marks, ordered by when they end.
marks AS MATERIALIZED (
  SELECT id, mark, coalesce(marked_at, 0) AS marked_at, coalesce(marked_until, 0) AS marked_until FROM guard
  WHERE mark IS NOT NULL
  ORDER BY marked_until, id LIMIT :page_size),
-- The lines of tickets; number 0 is not a ticket, but the others' turn.
lines AS MATERIALIZED (
  SELECT entity_id AS id, count(*) AS waiting, min(time) AS oldest FROM ticket WHERE number > 0
  GROUP BY entity_id ORDER BY min(time), entity_id LIMIT :page_size),
-- The ancestors of all three, for their paths. The height is bounded: in a damaged table, parents may form a circle.
up(wanted, height, parent_id, kind, name) AS (
  SELECT g.id, 0, g.parent_id, g.kind, g.name FROM guard g
  WHERE g.id IN (SELECT id FROM hot UNION SELECT id FROM marks UNION SELECT id FROM lines)
  UNION ALL
  SELECT up.wanted, up.height + 1, g.parent_id, g.kind, g.name FROM up {join}
  WHERE up.parent_id > 0 AND up.height < 1000)"""
_INTENTS = "FROM operation WHERE action = 'pending' AND entity_id IS NOT NULL"
_ANSWER = f"""SELECT (SELECT at FROM now), (SELECT format FROM info), (SELECT count(*) {_INTENTS}),
  (SELECT min(time) {_INTENTS}),
  (SELECT CAST({{array}}({{row}}(id, mark, marked_at, marked_until)) AS text) FROM marks),
  (SELECT CAST({{array}}({{row}}(id, writes)) AS text) FROM hot),
  (SELECT CAST({{array}}({{row}}(id, waiting, oldest)) AS text) FROM lines),
  (SELECT CAST({{array}}({{row}}(wanted, height, kind, name)) AS text) FROM up)"""

_POSTGRES_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_RUNNING = """
-- Every transaction that has an id: in a session, or prepared.
running AS MATERIALIZED (
  SELECT xact_start AS began FROM pg_stat_activity WHERE backend_xid IS NOT NULL
  UNION ALL SELECT prepared FROM pg_prepared_xacts),
-- When the oldest of them began; not known if this role may not see the start of one.
oldest AS (
  SELECT CASE WHEN count(*) = count(began) THEN (extract(epoch FROM min(began)) * 1000000)::bigint END AS began,
    count(*) > count(began) AS hidden FROM running),
-- Each step's distance from the step before it: more than 1 means a gap.
behind AS (
  SELECT recent.seq, recent.time, recent.seq - lag(recent.seq) OVER (ORDER BY recent.seq) AS step FROM recent),
-- The first step behind a gap that a running transaction may still fill.
opened AS (
  SELECT min(behind.seq) AS seq FROM behind, oldest WHERE behind.step > 1 AND behind.time >= oldest.began - 1000000)"""
_POSTGRES = from_named(
    without_comments(f"""WITH RECURSIVE {
        _COMMON.format(
            now=_POSTGRES_NOW,
            newest=NEWEST,
            join="CROSS JOIN LATERAL (SELECT * FROM guard g WHERE g.id = up.parent_id OFFSET 0) g",
        )
    }, {_RUNNING}
{_ANSWER.format(array="json_agg", row="json_build_array")},
  CASE WHEN NOT (SELECT hidden FROM oldest)
    THEN (SELECT count(*) FROM recent WHERE seq >= (SELECT seq FROM opened)) END,
  (SELECT time FROM recent WHERE seq = (SELECT seq FROM opened)),
  (SELECT began FROM oldest),
  (SELECT max(mxid_age(datminmxid)) FROM pg_database),
  has_function_privilege('pg_ls_dir(text)', 'EXECUTE'),
  has_function_privilege('pg_control_checkpoint()', 'EXECUTE')"""),
    "%(name)s",
)
_SQLITE = without_comments(f"""WITH RECURSIVE {
    _COMMON.format(now="CAST(:now AS bigint)", newest=NEWEST, join="JOIN guard g ON g.id = up.parent_id")
}
{_ANSWER.format(array="json_group_array", row="json_array")}""")

_MEMBERS_PER_FILE: Final = 32 * 409 * 4  # pages in a segment, groups on a page of 8 KiB, members in a group
_MEMBERS_BY_FILES = f"SELECT count(*) * {_MEMBERS_PER_FILE} FROM pg_ls_dir('pg_multixact/members')"
_MEMBERS_BY_CHECKPOINT = """SELECT (c.members / greatest(1, c.next - 1) * greatest(0, c.next - c.oldest))::bigint
FROM (SELECT next_multi_offset::text::numeric AS members, next_multixact_id::text::bigint AS next,
  oldest_multi_xid::text::bigint AS oldest FROM pg_control_checkpoint()) c"""
"""Wraps at 2**32; the estimate assumes that nothing was removed since."""


def postgres_stats(fetch: Fetch, since: int, limit: int) -> DatabaseStats:
    """Ask PostgreSQL. Entities written in the last ``since`` µs count as hot; return at most ``limit`` of each list."""
    ((*common, undecided, undecided_since, oldest, age, files, checkpoint),) = fetch(
        _POSTGRES, {"since": since, "page_size": limit}
    )
    members = _members(fetch, _MEMBERS_BY_FILES) if files else None
    if members is None and checkpoint:
        members = _members(fetch, _MEMBERS_BY_CHECKPOINT)
    return _stats(common)._replace(
        undecided=undecided,
        undecided_since=undecided_since,
        oldest_transaction=oldest,
        multixact_members=members,
        multixact_age=age,
    )


def _members(fetch: Fetch, statement: str) -> int | None:
    try:
        ((members,),) = fetch(statement, {})
    except MetastoreError:  # this role may not read the files: the figure stays unknown
        return None
    return int(members)


def sqlite_stats(fetch: Fetch, now: int, since: int, limit: int) -> DatabaseStats:
    """Ask SQLite, whose time is ``now``; see :func:`postgres_stats`. It has no gaps in the feed, and no MultiXacts."""
    (common,) = fetch(_SQLITE, {"now": now, "since": since, "page_size": limit})
    return _stats(common)


def _stats(row: tuple[Any, ...] | list[Any]) -> DatabaseStats:
    now, version, pending, oldest, marks, hot, lines, chains = row
    lengths = _chains(chains)
    return DatabaseStats(
        now,
        version,
        pending,
        oldest,
        tuple(MarkRow(i, _names(lengths, i), str(mark), at, until) for i, mark, at, until in _rows(marks)),
        tuple(HotRow(i, _names(lengths, i), _kind(lengths, i), n) for i, n in _rows(hot)),
        lines=tuple(LineRow(i, _names(lengths, i), _kind(lengths, i), n, time) for i, n, time in _rows(lines)),
    )


def _rows(text: str | None) -> list[list[Any]]:
    return json.loads(text) if text else []


def _chains(text: str | None) -> Mapping[int, list[tuple[str, str]]]:
    """Return (kind, name) of each wanted entity and of its ancestors."""
    chains: dict[int, list[tuple[str, str]]] = {}
    for wanted, _, kind, name in sorted(_rows(text), key=lambda r: r[:2]):
        chains.setdefault(wanted, []).append((kind, name))
    return chains


def _names(chains: Mapping[int, list[tuple[str, str]]], entity_id: int) -> tuple[str, ...] | None:
    chain = chains.get(entity_id)
    return None if chain is None else tuple(name for _, name in reversed(chain))


def _kind(chains: Mapping[int, list[tuple[str, str]]], entity_id: int) -> str | None:
    return chains[entity_id][0][0] if entity_id in chains else None
