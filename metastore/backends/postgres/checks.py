"""Checks of a general commit that need their own snapshot: emptiness, absence, listings, the newest dropped entity.

A check is a statement in the commit's transaction, after the locks. Its snapshot is newer than the wait for those
locks, so it sees the commits for which it waited. The exclusive guard on the parent, which the port requires, keeps the
answer true until the commit. A failing check raises an error, which aborts everything in the same message.
"""

from __future__ import annotations

from metastore.backends.postgres.fragments import fails_if, fails_unless_seen
from metastore.backends.postgres.parameters import Statement, plain, texts
from metastore.backends.postgres.read_sql import each
from metastore.backends.postgres.relations import check as relations_check
from metastore.port.commit import Commit
from metastore.port.conditions import DROPPED, Absent, Children, Listing, Newest, Relations
from metastore.port.writes import Update

# One statement "drop if it is empty" is wrong: it would check emptiness in the snapshot from before the wait for the
# guard. A child that was committed meanwhile would become an orphan. The division by zero raises NOT_EMPTY. `leaving`:
# entities that the same commit drops or moves away; they do not count.
_EMPTY = """SELECT 1 / (CASE WHEN EXISTS (SELECT FROM guard g
  WHERE g.parent_id = ANY(%(ids)s::bigint[]) AND (g.state = 0 OR g.state = 3)
    AND NOT EXISTS (SELECT FROM unnest(%(leaving)s::bigint[]) AS l(id) WHERE l.id = g.id)) THEN 0 ELSE 1 END)"""

# A name that a transaction found absent. Without this check it could commit beside a create of the name (write skew).
_ABSENT = fails_if(
    """EXISTS (SELECT FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[]) AS w(p, f, k)
    JOIN guard g ON g.parent_id = w.p AND g.family = w.f AND g.key = w.k WHERE g.state = 0)"""
)

# The same for a partition, a model version or a statistic.
_ABSENT_OWNED = fails_if(
    """EXISTS (SELECT FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[]) AS w(p, f, k)
    JOIN owned o ON o.owner_id = w.p AND o.kind = w.f AND o.name = w.k)"""
)

# A transaction may rest on the answer whether there are children, for example after NotEmpty.
_CHILDREN = fails_if(
    """%(there)s::boolean <> EXISTS (SELECT FROM guard
    WHERE parent_id = %(parent_id)s::bigint AND (state = 0 OR state = 3) AND id <> ALL(%(besides)s::bigint[]))"""
)

# Restore by name means the last dropped entity of that name. IS DISTINCT FROM, because the answer may be "none".
_NEWEST = fails_if(
    f"""%(id)s::bigint IS DISTINCT FROM (SELECT id FROM guard
    WHERE parent_id = %(parent_id)s::bigint AND family = %(family)s::text AND key = %(key)s::text
      AND state = {DROPPED} AND kind = %(kind)s::text
    ORDER BY dropped_at DESC, id DESC LIMIT 1)"""
)

_MEMBERS = {
    False: f"""SELECT g.id, e.version FROM guard g CROSS JOIN {each("entity", "e", "e.id = g.id")}
    WHERE g.parent_id = %(parent_id)s::bigint AND g.kind = %(kind)s::text AND g.state = %(state)s::smallint""",
    # the owner's id comes from a row of its own (unnest): relations.py says why
    True: f"""SELECT o.id, o.version FROM unnest(ARRAY[%(parent_id)s::bigint]) AS w(id)
    CROSS JOIN {each("owned", "o", "o.owner_id = w.id AND o.kind = %(kind)s::text")}""",
}

# Two differences, one in each direction: no member came (a phantom), went or changed since the listing.
_LISTING = {owned: fails_unless_seen(members) for owned, members in _MEMBERS.items()}
"""The key says whether the members are owned rows."""


def checks(commit: Commit, updates: list[Update]) -> list[Statement]:
    """Return the statements that check the preconditions of ``commit``; ``updates``: the updates among its writes."""
    return [
        *_empty(updates),
        *_absent(commit, _ABSENT, owned=False),
        *_absent(commit, _ABSENT_OWNED, owned=True),
        *[_check(read) for read in commit.reads if isinstance(read, Listing | Children | Newest)],
        *[relations_check(read) for read in commit.reads if isinstance(read, Relations)],
    ]


def _empty(updates: list[Update]) -> list[Statement]:
    emptied = [w.id for w in updates if w.empty]
    if not emptied:
        return []
    leaving = [w.id for w in updates if w.state is not None or w.place is not None]
    return [Statement(_EMPTY, {"ids": plain(emptied), "leaving": plain(leaving)})]


def _absent(commit: Commit, text: str, *, owned: bool) -> list[Statement]:
    reads = [r for r in commit.reads if isinstance(r, Absent) and r.owned == owned]
    if not reads:
        return []
    values = {
        "parents": plain([r.parent_id for r in reads]),
        "families": texts([r.family for r in reads]),
        "keys": texts([r.key for r in reads]),
    }
    return [Statement(text, values)]


def _check(read: Listing | Children | Newest) -> Statement:
    if isinstance(read, Children):
        children = {"parent_id": read.parent_id, "besides": plain(sorted(read.besides)), "there": read.there}
        return Statement(_CHILDREN, children)
    if isinstance(read, Newest):
        newest = {"parent_id": read.parent_id, "kind": read.kind, "family": read.family, "key": read.key}
        return Statement(_NEWEST, {**newest, "id": read.id})
    members = sorted(read.members)
    listing = {
        "parent_id": read.parent_id,
        "kind": read.kind,
        "state": read.state,
        "ids": plain([m[0] for m in members]),
        "versions": plain([m[1] for m in members]),
    }
    return Statement(_LISTING[read.owned], listing)
