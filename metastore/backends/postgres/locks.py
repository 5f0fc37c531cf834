"""Statements that only lock, before the statements that check and write: by id, each row once in its strongest mode."""

from __future__ import annotations

from itertools import groupby

from metastore.backends.postgres.parameters import Statement, plain

# FOR UPDATE waits for all sharers, and makes new ones wait: a later check in this transaction stays true until the
# commit. It does not raise the scope version, so that a sharer that waited may go on.
LOCK_GUARDS = {
    True: "SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR UPDATE",
    False: "SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR KEY SHARE",
}
"""Locks guards and checks nothing; the key says whether they are exclusive."""

# FOR SHARE, not FOR KEY SHARE: a read that is validated must wait for every writer, or two transactions that read what
# the other one writes both commit (write skew). An update of an entity takes FOR NO KEY UPDATE by itself.
LOCK_ENTITIES = {
    True: "SELECT id FROM entity WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE",
    False: "SELECT id FROM entity WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR SHARE",
}
"""Locks entities and checks nothing; the key says whether they will be written."""

PATIENCE = "SELECT set_config('lock_timeout', %(patience)s::text, true)"
"""Limits the waits of a message whose first statements lock; the other statements set the limit themselves."""


def mixed(shared: set[int], exclusive: set[int]) -> bool:
    """Whether taking all the shared locks first would take them out of the ids' order, which invites deadlocks."""
    return bool(shared and exclusive) and max(shared) > min(exclusive)


def lock_in_order(texts: dict[bool, str], shared: set[int], exclusive: set[int]) -> list[Statement]:
    """Return statements that lock by id, each row once in its strongest mode: one for each run of one mode."""
    runs = groupby(sorted(shared | exclusive), key=lambda i: i in exclusive)
    return [Statement(texts[mode], {"ids": plain(ids)}) for mode, ids in runs]
