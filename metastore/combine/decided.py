"""Decide the requests of a batch on the records that it found, and commit them: the steps common to all writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from metastore.combine.handle import Handle
from metastore.combine.reads import Find, found_together
from metastore.combine.waiting import Waiting
from metastore.errors import EntityAlreadyExists, MetastoreError, PoolExhausted
from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.operation.kept_result import OF_THE_COMMIT
from metastore.operation.request import Proposal
from metastore.operation.session import Session
from metastore.port.batches import Batch, Batches, Single, Taken, Written
from metastore.port.commit import Conflicted, Unknown
from metastore.port.records import Record
from metastore.port.writes import Insert, Result, Update

Waiter = Handle[Waiting[Any], Any]

PATIENCE: Final = 50
"""How long a batch waits for others' locks (milliseconds). Then it skips the locked rows."""
MOST_BYTES: Final = 4 << 20
"""How many bytes of documents one batch writes at most."""
_SENT: Final = Unknown("the batch was interrupted")


@dataclass(slots=True)
class Decided:
    """The decision of one request on the record that the batch found: a value, an error, or a proposal."""

    handle: Waiter
    value: Any = None
    error: MetastoreError | None = None
    proposal: Proposal[Any] | None = None
    version: int = 0
    """The version that an altering proposal makes; 0: the proposal alters nothing."""
    true: bool = False
    """The decision stays valid if the batch is not applied, because it rests on a read of this batch."""
    follows: UUID | None = None
    """The operation of the same batch on whose result the proposal rests."""

    def single(self) -> Single:
        """Return the request's commit as a member of a batch."""
        one, proposal = self.handle.request, self.proposal
        assert proposal is not None
        (write,) = proposal.writes
        assert isinstance(write, Insert | Update)
        return Single(proposal.guards, write, one.id, one.principal, self.follows)

    def tell(self, result: Result | Taken | None = None) -> None:
        """Give the request its answer; ``result``: the result of its proposal, None if it proposed nothing."""
        one = self.handle.request
        if isinstance(result, str) and self.proposal is not None:
            self.error = EntityAlreadyExists(self.proposal.writes[0].event.path_after or "")
        if self.error is not None:
            one.ended("error")
            self.handle.fail(self.error)
        elif self.proposal is None:
            one.ended("value")
            self.handle.answer(_at(self.value, result))
        else:
            one.ended("self")
            assert result is None or isinstance(result, Result)
            self.handle.answer(self.proposal.finish((result,)))


def _at(value: Any, result: Result | Taken | None) -> Any:
    """Return a value; if it is an entity's version that the batch made, with the time of the commit."""
    if not isinstance(value, Entity) or not isinstance(result, Result) or value.record.modified_at != OF_THE_COMMIT:
        return value
    return kind_named(value.kind).entity(value.record._replace(modified_at=result.time))


def bases(session: Session, handles: Sequence[Waiter]) -> list[Record | bool]:
    """Return the record with which each request begins: the loaded entity, or the entity at the path.

    False: no entity is at its path. True: the request names no path.
    """
    requests = [handle.request for handle in handles]
    wanted = {one: Find(one.path, one.below) for one in requests if not one.record and one.path and one.below}
    found = dict(zip(wanted, found_together(session, list(wanted.values())), strict=True))
    for one, there in found.items():
        one.saw(there)
    return [one.record or (found[one].record or False if one in found else True) for one in requests]


def missing(handle: Waiter) -> list[Decided]:
    """Decide a request whose path leads to no entity."""
    try:
        value = handle.request.decide(None)
    except MetastoreError as error:
        return [Decided(handle, error=error, true=True)]
    except Exception:  # noqa: BLE001  (Left, or a bug, which the call raises when it goes alone)
        return []
    return [] if isinstance(value, Proposal) else [Decided(handle, value=value, true=True)]


def commit(members: Sequence[Decided], batch: Batch, backend: Batches) -> Written | None:
    """Commit the proposals of ``members``. Return None if nothing was applied, or each request is in doubt.

    A request in doubt goes to its full operation, which looks up its operation id.
    """
    sent = [member.handle.request for member in members if member.proposal is not None]
    for one in sent:
        one.doubt = _SENT
    outcome: Written | Conflicted | Unknown
    try:
        outcome = backend.write_together(batch, PATIENCE)
        if outcome == Conflicted("name"):  # a name was free when its request was decided, and is taken now
            outcome = _without_renames(batch, backend)
        if outcome == Conflicted("busy"):
            outcome = backend.write_together(batch, 0)
    except MetastoreError as error:  # the database refused the batch, or nothing was sent: nothing was applied
        outcome = Conflicted("serialization")
        if isinstance(error, PoolExhausted):
            _settle(sent, None)
            raise
    # keep the doubt until each request is told, because an interrupt may stop the leader before that
    if isinstance(outcome, Written):
        return outcome
    _settle(sent, outcome if isinstance(outcome, Unknown) else None)
    return None


def _settle(sent: Sequence[Waiting[Any]], doubt: Unknown | None) -> None:
    """Note the outcome of a message that was not applied, or whose answer was lost."""
    for one in sent:
        one.doubt = doubt


def _without_renames(batch: Batch, backend: Batches) -> Written | Conflicted | Unknown:
    kept = [one for one in batch.updates if isinstance(one.write, Update) and one.write.place is None]
    outcome = backend.write_together(batch._replace(updates=kept), 0)
    if not isinstance(outcome, Written):
        return outcome
    results = dict(zip([one.operation_id for one in kept], outcome.updates, strict=True))
    return outcome._replace(updates=[results.get(one.operation_id) for one in batch.updates])
