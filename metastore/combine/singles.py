"""A batch of creates, or of drops: each request has one write of its own, and no two write one row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from metastore.combine.decided import MOST_BYTES, Decided, Waiter, bases, commit, missing
from metastore.combine.lane import Tell
from metastore.combine.reads import batches
from metastore.combine.waiting import Left
from metastore.operation.request import Proposal
from metastore.operation.session import Session
from metastore.port.batches import Results, Single
from metastore.port.commit import Conflicted, Insert, Unknown, Update
from metastore.port.records import Record

__all__ = ["Creates", "Drops"]

Send = Callable[[Sequence[Single], int], Results | Conflicted | Unknown]


class Creates:
    """Batches of creates. A request whose name is taken, or taken twice in the batch, is left to the full operation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def send(self, handles: Sequence[Waiter]) -> Tell:
        """Decide and commit; return what tells each request what it came to."""
        return _sent(_proposals([(handle, None) for handle in handles]), [], batches(self._session).create_together)


class Drops:
    """Batches of drops, of what can have no children."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def send(self, handles: Sequence[Waiter]) -> Tell:
        """Decide and commit; return what tells each request what it came to."""
        backend = batches(self._session)
        found = list(zip(handles, bases(backend, handles), strict=True))
        nowhere = [one for handle, seen in found if seen is False for one in missing(handle)]
        there = [(handle, seen) for handle, seen in found if isinstance(seen, Record)]
        return _sent(_proposals(there), nowhere, backend.exclusive_together)


def _proposals(found: Sequence[tuple[Waiter, Record | None]]) -> list[Decided]:
    """Return the requests that one statement can apply; the others are left to the full operation, errors too.

    What a request rests on may be old: a record in hand, or where its parents stood last.
    """
    proposals: dict[Hashable, Decided] = {}
    left = MOST_BYTES
    for handle, record in found:
        try:
            proposal = handle.request.decide(record)
            row, size = _row(proposal)
        except Exception:  # noqa: BLE001, S112  (Left, the call's own error, or a bug in it)
            continue
        if row not in proposals and left > 0:
            left -= size
            proposals[row] = Decided(handle, proposal=proposal)
    return list(proposals.values())


def _row(proposal: Any) -> tuple[Hashable, int]:
    """Return which row a proposal writes, and how many bytes. Raises Left for what does not fit into a batch."""
    if not isinstance(proposal, Proposal) or proposal.reads or proposal.skip_existing or len(proposal.writes) != 1:
        raise Left
    write = proposal.writes[0]
    if proposal.exclusive or any(guard.exclusive for guard in proposal.guards):
        raise Left
    if isinstance(write, Insert) and write.id is None:
        return (write.parent_id, write.family, write.key), len(write.doc)
    if isinstance(write, Update) and write.scope_version is not None and write.doc is None and not write.empty:
        return write.id, 0
    raise Left


def _sent(proposed: list[Decided], nowhere: list[Decided], send: Send) -> Tell:
    singles = [_single(one) for one in proposed]
    outcome = commit(proposed, lambda patience: send(singles, patience)) if singles else None

    def tell() -> None:
        for one in nowhere:
            one.tell()
        for one, result in zip(proposed, outcome or (), strict=False):
            if result is not None:
                one.tell(result)

    return tell


def _single(one: Decided) -> Single:
    request, proposal = one.handle.request, one.proposal
    assert proposal is not None
    write = proposal.writes[0]
    assert isinstance(write, Insert | Update)
    return Single(proposal.guards, write, request.id, request.principal)
