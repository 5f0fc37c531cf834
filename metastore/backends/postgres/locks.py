"""Statements that only lock, before those that check and write: by id, each row once in its strongest mode."""

from __future__ import annotations

from itertools import groupby

from metastore.backends.postgres.parameters import Statement, plain

# FOR UPDATE waits for all sharers, and makes new ones wait: a later check in this transaction stays true until the
# commit. It does not raise the scope version, so a sharer that has waited may continue.
LOCK_GUARDS = {
    True: "SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR UPDATE",
    False: "SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR KEY SHARE",
}
"""Locks guards without checking them; the key says whether the locks are exclusive."""

# FOR SHARE, not FOR KEY SHARE: a validated read must wait for every writer. Otherwise two transactions could both
# commit although each read what the other wrote (write skew). An update of an entity takes FOR NO KEY UPDATE anyway.
LOCK_ENTITIES = {
    True: "SELECT id FROM entity WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE",
    False: "SELECT id FROM entity WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR SHARE",
}
"""Locks entities without checking them; the key says whether they will be written."""

PATIENCE = "SELECT set_config('lock_timeout', %(patience)s::text, true)"
"""Limits the waits of a message that begins with locking statements; other statements set the limit themselves."""


def mixed(shared: set[int], exclusive: set[int]) -> bool:
    """Whether taking all shared locks first would break the order of ids, so that deadlocks become possible."""
    return bool(shared and exclusive) and max(shared) > min(exclusive)


def lock_in_order(texts: dict[bool, str], shared: set[int], exclusive: set[int]) -> list[Statement]:
    """Return statements that lock by id, each row once in its strongest mode: one for each run of equal modes."""
    runs = groupby(sorted(shared | exclusive), key=lambda i: i in exclusive)
    return [Statement(texts[mode], {"ids": plain(ids)}) for mode, ids in runs]
