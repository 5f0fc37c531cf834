"""Raise the scope versions behind a right that changes, so that no commit that rests on the old right lands later.

A commit that a user's rights allow guards the scope versions of the user, its groups, the deciding roles, and all
entities on the way to the object (:mod:`metastore.governance.access`). A write raises the scope version of a role that
allows less, of an object with a new denial or a changed owner, and of a user or group that gets or loses a role or
group. If a role or group becomes live again, its denials are valid again, so the write raises the metalake's. Allowing
a privilege raises nothing, and neither does the removal of a denial.

This module derives the scope versions to raise from the writes themselves. Each
:class:`~metastore.operation.request.Proposal` does so when it is made, also in a transaction, so no call can forget it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metastore.governance.privileges import OWNER, effect_of
from metastore.port.conditions import LIVE, Guard
from metastore.port.writes import Insert, Relate, Update, Write

_DENYING = ("role", "group")
"""The kinds of entities that can deny."""


def raising(writes: Sequence[Write]) -> set[int]:
    """Return the ids of the entities whose scope versions the commit of ``writes`` must raise.

    Leave out entities that the same commit creates, because no right rests on them yet. Leave out entities that it
    writes exclusively, because such a write raises the scope version anyway.
    """
    found = set[int]()
    for write in writes:  # a loop for speed: this runs at every commit
        if isinstance(write, Relate) or (isinstance(write, Update) and write.state == LIVE):
            found.update(_raised(write))
    if not found:
        return found
    made = {write.id for write in writes if isinstance(write, Insert)}
    return found - made - {w.id for w in writes if isinstance(w, Update) and w.scope_version is not None}


def with_raised(guards: Sequence[Guard], ids: set[int]) -> tuple[Guard, ...]:
    """Return ``guards``; those of ``ids`` count up."""
    missing = ids - {guard.id for guard in guards}
    assert not missing, f"a commit takes rights from {missing}, and does not guard them"
    return tuple([Guard(g.id, g.scope_version, True, True) if g.id in ids else g for g in guards])


def _raised(write: Relate | Update) -> Iterator[int]:
    if isinstance(write, Relate):
        if write.kind in (OWNER, "membership"):
            yield write.from_id  # the object, or the user or group that changes
        elif write.kind == "grant":
            _, allows = effect_of(write.value)
            if allows and write.removes:
                yield write.from_id  # the role allows less now
            if not allows and not write.removes:
                yield write.to_id  # the object is denied now
    elif write.event.kind in _DENYING:
        assert write.place is not None, "what becomes live again says where"
        yield write.place.parent_id
