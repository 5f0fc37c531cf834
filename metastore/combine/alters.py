"""A batch of alters: decide, commit with one statement, and tell each what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from metastore.combine.decided import MOST_BYTES, Decided, Waiter, bases, commit, missing
from metastore.combine.lane import Tell
from metastore.combine.waiting import AGAIN, Left
from metastore.errors import MetastoreError
from metastore.operation.request import Proposal
from metastore.port.batches import Altered, AlterStep, AlterTogether, Batches
from metastore.port.commit import Result, Update
from metastore.port.records import Record

__all__ = ["Alters"]


@dataclass(slots=True)
class _Group:
    """The requests that alter one entity."""

    record: Record
    """The entity as the last of them leaves it."""
    fresh: bool
    """It was read in this batch."""
    first: Record = field(init=False)
    members: list[Decided] = field(default_factory=list)
    steps: list[AlterStep] = field(default_factory=list)
    together: AlterTogether | None = None

    def __post_init__(self) -> None:
        self.first = self.record

    def decide(self, handle: Waiter) -> int:
        """Apply a request to the record; return how many bytes it writes. One that raises Left is left out."""
        one = handle.request
        true = self.fresh and not self.steps
        try:
            decided = one.decide(self.record)
            if not isinstance(decided, Proposal):
                self.members.append(Decided(handle, value=decided, true=true))
                return 0
            return self._step(handle, decided)
        except MetastoreError as error:
            self.members.append(Decided(handle, error=error, true=true))
        except Exception:  # noqa: BLE001  (Left, or a bug in the change: its owner meets it alone)
            return 0
        return 0

    def _step(self, handle: Waiter, proposal: Proposal[Any]) -> int:
        one, record = handle.request, self.record
        write = proposal.writes[0]
        if not isinstance(write, Update) or write.doc is None or write.scope_version is not None or proposal.reads:
            raise Left
        self.steps.append(AlterStep(one.id, one.principal, write.doc, write.event.changes))
        self.members.append(Decided(handle, proposal=proposal, version=record.version + 1))
        self.record = record._replace(version=record.version + 1, doc=write.doc, modified_by=one.principal)
        if self.together is None:
            node = record.chain[-1]
            path = write.event.path_after or ""
            self.together = AlterTogether(
                proposal.guards, node.id, record.version, node.scope_version, write.event.kind, path, ()
            )
        return len(write.doc)

    def complete(self) -> AlterTogether:
        """Return what to commit."""
        assert self.together is not None
        return self.together._replace(steps=tuple(self.steps))

    def tell(self, altered: Altered | None) -> None:
        """Give the requests their answers; ``altered``: what became of the group, None if it was not sent.

        One that gets no answer is left to the full operation.
        """
        entity_id, time = self.first.chain[-1].id, 0 if altered is None else altered.time or 0
        applied = altered is not None and altered.time is not None
        newest = None if altered is None or applied else self._newest(altered)
        for member in self.members:
            if applied or member.true:
                member.tell(Result(entity_id, member.version, time))
            elif newest is not None:
                member.handle.request.overtaken(self.first.version, newest)
                member.handle.answer(AGAIN)

    def _newest(self, altered: Altered) -> Record | None:
        if altered.version is None or altered.doc is None:
            return None
        return self.first._replace(
            version=altered.version,
            doc=altered.doc,
            modified_by=altered.modified_by,
            modified_at=altered.modified_at,
        )


class Alters:
    """Batches of alters."""

    def __init__(self, backend: Batches) -> None:
        self._backend = backend

    def send(self, handles: Sequence[Waiter]) -> Tell:
        """Decide and commit; return what tells each request what it came to."""
        groups, nowhere = _decided(handles, bases(self._backend, handles))
        sent = [group for group in groups if group.together is not None]
        alters = [group.complete() for group in sent]
        members = [member for group in sent for member in group.members]
        outcome = commit(members, partial(self._backend.alter_together, alters)) if sent else None
        answers = {} if outcome is None else dict(zip(map(id, sent), outcome, strict=True))

        def tell() -> None:
            for one in nowhere:
                one.tell()
            for group in groups:
                group.tell(answers.get(id(group)))

        return tell


def _decided(handles: Sequence[Waiter], found: Sequence[Record | bool]) -> tuple[list[_Group], list[Decided]]:
    """Decide each request on what there is; return the groups by entity, and the requests that name nothing."""
    groups: dict[int, _Group] = {}
    for handle, seen in zip(handles, found, strict=True):
        if isinstance(seen, Record):
            _begin(groups, seen, fresh=handle.request.record is None)
    nowhere: list[Decided] = []
    left = MOST_BYTES
    for handle, seen in zip(handles, found, strict=True):
        if seen is False:
            nowhere += missing(handle)
        elif isinstance(seen, Record) and left > 0:
            left -= groups[seen.chain[-1].id].decide(handle)
    return list(groups.values()), nowhere


def _begin(groups: dict[int, _Group], seen: Record, *, fresh: bool) -> None:
    """Let a group begin with the newest record of its entity; of equal ones, with the one that this batch read."""
    entity_id = seen.chain[-1].id
    group = groups.get(entity_id)
    if group is None or (seen.version, fresh) > (group.first.version, group.fresh):
        groups[entity_id] = _Group(seen, fresh)
