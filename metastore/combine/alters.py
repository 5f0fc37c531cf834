"""A batch of alters: decide, commit with one statement, and tell each what it came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metastore.combine.lane import Handle, Tell
from metastore.combine.waiting import AGAIN, Left, Waiting
from metastore.errors import MetastoreError
from metastore.operation.request import Proposal
from metastore.port.batches import Altered, AlterStep, AlterTogether, Batches, Below
from metastore.port.commit import Conflicted, Result, Unknown, Update
from metastore.port.records import Record

__all__ = ["Alters"]

Waiter = Handle[Waiting[Any], Any]

PATIENCE: Final = 50
"""How long a batch waits for others' locks (milliseconds). Then it passes over the rows that are locked."""
_MOST_BYTES: Final = 4 << 20
"""How many bytes of documents one batch writes at most."""
_SENT: Final = Unknown("the batch was interrupted")


@dataclass(slots=True)
class _Decided:
    """What one request came to on the record that was found."""

    handle: Waiter
    value: Any = None
    error: MetastoreError | None = None
    proposal: Proposal[Any] | None = None
    version: int = 0
    """Of its proposal: the version that it makes."""
    true: bool = False
    """It is true whether the batch is applied or not: it rests on what was read in this batch."""

    def tell(self, time: int) -> None:
        """Give the request its answer; ``time``: when the batch was applied."""
        one = self.handle.request
        if self.error is not None:
            one.ended("error")
            self.handle.fail(self.error)
        elif self.proposal is None:
            one.ended("value")
            self.handle.answer(self.value)
        else:
            (write,) = self.proposal.writes
            assert isinstance(write, Update)
            one.ended("self")
            self.handle.answer(self.proposal.finish((Result(write.id, self.version, time),)))


@dataclass(slots=True)
class _Group:
    """The requests that alter one entity."""

    record: Record
    """The entity as the last of them leaves it."""
    fresh: bool
    """It was read in this batch."""
    first: Record = field(init=False)
    members: list[_Decided] = field(default_factory=list)
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
                self.members.append(_Decided(handle, value=decided, true=true))
                return 0
            return self._step(handle, decided)
        except MetastoreError as error:
            self.members.append(_Decided(handle, error=error, true=true))
        except Exception:  # noqa: BLE001  (Left, or a bug in the change: its owner meets it alone)
            return 0
        return 0

    def _step(self, handle: Waiter, proposal: Proposal[Any]) -> int:
        one, record = handle.request, self.record
        write = proposal.writes[0]
        if not isinstance(write, Update) or write.doc is None or write.scope_version is not None or proposal.reads:
            raise Left
        self.steps.append(AlterStep(one.id, one.principal, write.doc, write.event.changes))
        self.members.append(_Decided(handle, proposal=proposal, version=record.version + 1))
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
        applied = altered is not None and altered.time is not None
        newest = None if altered is None or applied else self._newest(altered)
        for member in self.members:
            if applied or member.true:
                member.tell(altered.time or 0 if altered is not None else 0)
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
        groups, missing = _decided(handles, self._find(handles))
        sent = [group for group in groups if group.together is not None]
        outcome = self._commit(sent) if sent else []
        answers = dict(zip(map(id, sent), outcome, strict=True)) if isinstance(outcome, list) else {}

        def tell() -> None:
            for one in missing:
                one.tell(0)
            for group in groups:
                group.tell(answers.get(id(group)))

        return tell

    def _find(self, handles: Sequence[Waiter]) -> dict[Below, Record | bool]:
        wanted = list(dict.fromkeys([h.request.below for h in handles if h.request.record is None]))
        asked = [below for below in wanted if below is not None]
        return dict(zip(asked, self._backend.find_below(asked), strict=True)) if asked else {}

    def _commit(self, groups: Sequence[_Group]) -> list[Altered] | None:
        """Commit the groups; None: nothing was applied, or that is not known (then each request is in doubt)."""
        alters = [group.complete() for group in groups]
        sent = [member.handle.request for group in groups for member in group.members if member.proposal is not None]
        for one in sent:
            one.doubt = _SENT
        try:
            outcome = self._backend.alter_together(alters, PATIENCE)
            if isinstance(outcome, Conflicted) and outcome.cause == "busy":
                outcome = self._backend.alter_together(alters, 0)
        except MetastoreError:  # the database refused it, or was not asked: nothing was applied
            outcome = Conflicted("serialization")
        for one in sent:
            one.doubt = outcome if isinstance(outcome, Unknown) else None
        return outcome if isinstance(outcome, list) else None


def _decided(handles: Sequence[Waiter], found: Mapping[Below, Record | bool]) -> tuple[list[_Group], list[_Decided]]:
    """Decide each request on what there is; return the groups by entity, and the requests that name nothing."""
    groups: dict[int, _Group] = {}
    rest: list[tuple[Waiter, int | None]] = []
    for handle in handles:
        one = handle.request
        seen = one.record or (found[one.below] if one.below is not None else True)
        if seen is True:
            continue  # its parents are not where they were: it reads its whole path alone
        rest.append((handle, None if seen is False else seen.chain[-1].id))
        if seen is not False:
            _base(groups, seen, fresh=one.record is None)
    missing: list[_Decided] = []
    left = _MOST_BYTES
    for handle, entity_id in rest:
        if entity_id is None:
            missing += _missing(handle)
        elif left > 0:
            left -= groups[entity_id].decide(handle)
    return list(groups.values()), missing


def _base(groups: dict[int, _Group], seen: Record, *, fresh: bool) -> None:
    """Let a group begin with the newest record of its entity; of equal ones, with the one that this batch read."""
    entity_id = seen.chain[-1].id
    group = groups.get(entity_id)
    if group is None or (seen.version, fresh) > (group.first.version, group.fresh):
        groups[entity_id] = _Group(seen, fresh)


def _missing(handle: Waiter) -> list[_Decided]:
    """Decide a request whose path leads to nothing."""
    try:
        value = handle.request.decide(None)
    except MetastoreError as error:
        return [_Decided(handle, error=error)]
    except Exception:  # noqa: BLE001  (as in _Group.decide)
        return []
    return [] if isinstance(value, Proposal) else [_Decided(handle, value=value)]
