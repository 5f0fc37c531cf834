"""Steps of a drop after its announcement: start, take over, roll back, finish.

Each step compares and swaps the row of the drop (``row.py``). So if a start and a roll-back compete, or two finishes,
exactly one commits. The commit that ends the drop also restores or removes its target.
"""

from __future__ import annotations

from uuid import UUID

from metastore.errors import DropPending, EntityNotFound
from metastore.kinds.drop import ANNOUNCED, DESTROYED, STARTED, Drop, target_id
from metastore.managers.drops.parts import part_of
from metastore.managers.drops.row import gone, read_same, swapped
from metastore.operation.dropping import pending_above
from metastore.operation.guards import guards_of
from metastore.operation.request import Proposal, View
from metastore.port.backend import MOST_AHEAD, Reads
from metastore.port.records import Known, Node, OwnedRecord
from metastore.port.writes import Write


def _mine(backend: Reads, known: Drop) -> Drop | None:
    """Return the row of a drop, which must have the ``known`` token; None: the drop has ended. Raises DropPending."""
    drop = read_same(backend, known)
    if drop is not None and drop.token != known.token:
        raise DropPending(
            UUID(drop.operation),
            f"another process has taken over the drop of {drop.target_path} (token {drop.token}, not {known.token}); "
            "stop destroying, and leave it to that process",
            path=drop.target_path,
        )
    return drop


def lost(path: str) -> EntityNotFound:
    """The error for a step of a drop that has ended."""
    return EntityNotFound(path, f"the drop of {path} was finished or rolled back; load the path to see what is there")


def still_mine(backend: Reads, known: Drop) -> Drop:
    """Return the row of a drop, which must have the ``known`` token. Raises DropPending, EntityNotFound."""
    drop = _mine(backend, known)
    if drop is None:
        raise lost(known.target_path)
    return drop


def start(view: View, known: Drop) -> Proposal[OwnedRecord]:
    """Propose to note that destruction begins. A repeated start keeps the drop for another ttl."""
    drop = still_mine(view.backend, known)
    return swapped(drop, phase=drop.phase if drop.phase == DESTROYED else STARTED)


def take_over(view: View, known: Drop, now: int, *, to_roll_back: bool = False) -> Proposal[OwnedRecord]:
    """Propose the next token. Raises DropPending before the ttl has passed.

    Also raises it with ``to_roll_back`` if destruction has started: the process that destroys the data keeps its token.
    """
    drop = read_same(view.backend, known)
    if drop is None:
        raise lost(known.target_path)
    if to_roll_back:
        _check_not_started(drop)
    touched = drop.record.modified_at
    left = (touched - now) / 1e6 + drop.ttl
    if left > 0 and touched <= now + MOST_AHEAD:  # else the clock was set back, and the ttl has passed
        who = drop.modified_by or "another process"
        raise DropPending(
            UUID(drop.operation),
            f"{who} holds the drop of {drop.target_path} for {left:.1f} more seconds; take it over after that",
            path=drop.target_path,
        )
    return swapped(drop, token=drop.token + 1)


def is_back(backend: Reads, drop: Drop) -> bool:
    """Whether a drop that has ended was rolled back, not finished. Another drop of its target may be pending."""
    known = _target(backend, drop)
    return known is not None and not known.doomed and part_of(drop).is_there(backend, drop, known.record)


def roll_back(view: View, known: Drop) -> Proposal[bool]:
    """Propose to bring the target back. Raises DropPending once destruction has begun."""
    drop = still_mine(view.backend, known)
    _check_not_started(drop)
    target = _target(view.backend, drop)
    _check_above(view.backend, drop, target)
    assert target is not None
    writes = part_of(drop).brought_back(view.backend, drop, target.record)
    return _ending(drop, target.record.chain, (*writes, gone(drop)))


def _check_not_started(drop: Drop) -> None:
    if drop.phase != ANNOUNCED:
        message = f"the destruction of {drop.target_path} has begun: it can only be finished; see store.drops.resume()"
        raise DropPending(UUID(drop.operation), message, path=drop.target_path)


def finish(view: View, known: Drop) -> Proposal[bool] | bool:
    """Propose to remove the target for good; return False if the drop has ended.

    If a table is not live, its part is only marked as destroyed. It is removed when the table is live again, or
    together with the table.
    """
    drop = _mine(view.backend, known)
    if drop is None:
        return False
    target = _target(view.backend, drop)
    if target is None or (drop.part is not None and target.doomed):
        return _ending(drop, (), (gone(drop),))
    if drop.part is not None and not target.live:
        if drop.phase == DESTROYED:
            return True
        proposal = swapped(drop, phase=DESTROYED)
        return Proposal(guards_of(target.record.chain), proposal.writes, lambda _: True)
    return _ending(drop, target.record.chain, (*part_of(drop).let_go(view.backend, drop, target.record), gone(drop)))


def _target(backend: Reads, drop: Drop) -> Known | None:
    """Return the entity, wherever it is now; events name its present path."""
    return backend.by_id([target_id(drop.name)])[0]


def _check_above(backend: Reads, drop: Drop, known: Known | None) -> None:
    """Raise EntityNotFound or DropPending if an entity above the restored target would not be live."""
    path = drop.target_path
    if known is not None and drop.part is None:
        above = known.record.chain[:-1]
        known = backend.by_id([above[-1].id])[0] if above else None
        if not above:
            return
    if known is None or known.doomed:
        raise EntityNotFound(path, f"{path} cannot come back: an ancestor was purged; finish its drop")
    if not known.live:
        message = f"{path} cannot come back: an ancestor was dropped; restore that first, or finish its drop"
        raise pending_above(backend, known.record.chain) or EntityNotFound(path, message)


def _ending(drop: Drop, chain: tuple[Node, ...], writes: tuple[Write, ...]) -> Proposal[bool]:
    # the row of a partition does not change with its table, which may be renamed or dropped meanwhile
    return Proposal(guards_of(chain if drop.part == "partition" else chain[:-1]), writes, lambda _: True)
