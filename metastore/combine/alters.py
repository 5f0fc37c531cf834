"""A batch of alters: decide, commit with one statement, and tell each what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from metastore.combine.decided import MOST_BYTES, Decided, Waiter, bases, commit, missing
from metastore.combine.lane import Tell
from metastore.combine.reads import batches
from metastore.combine.waiting import ROUNDS, Left
from metastore.errors import MetastoreError
from metastore.operation.helping import BATCH, Batch, plan
from metastore.operation.hot import Bounded
from metastore.operation.request import Proposal
from metastore.operation.session import Session
from metastore.port.batches import Altered, AlterStep, AlterTogether
from metastore.port.commit import Result, Update
from metastore.port.records import Pending, Record

__all__ = ["Alters"]


_STAYS = 1.0
"""How long after intents were met on an entity a batch looks for others (seconds)."""


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
    helps: bool = False
    """Its record was read with the intents on it."""
    closed: bool = False
    """Nothing is sent for it: its requests are left to the full operation."""

    def __post_init__(self) -> None:
        self.first = self.record

    def carry(self, seen: Pending) -> None:
        """Begin with what one snapshot shows: resolve the intents that are pending there before the own requests."""
        if seen.known is None or seen.known.record.chain != self.first.chain:
            self.closed = True  # it was renamed or dropped meanwhile: each request finds out alone
            return
        if any(intent.fences is not None for intent in seen.intents):
            self.closed = True  # a user's intent needs guards of its own: the full operation helps it
            return
        self.first = self.record = seen.known.record
        self.helps = True
        planned = plan(seen, None, Batch())
        for one in () if planned is None else planned.help.resolutions:
            self.steps.append(AlterStep(one.operation_id, one.principal, one.doc, one.changes, one))
            if one.action == "alter" and one.doc is not None:
                self._stepped(one.doc, one.principal)

    def _stepped(self, doc: str, principal: str | None) -> None:
        self.record = self.record._replace(version=self.record.version + 1, doc=doc, modified_by=principal)

    def decide(self, handle: Waiter) -> int:
        """Apply a request to the record; return how many bytes it writes. One that raises Left is left out."""
        if self.closed:
            return 0
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
        if not isinstance(write, Update) or write.doc is None or write.scope_version is not None:
            raise Left
        others = proposal.reads or proposal.exclusive or len(proposal.writes) != 1
        if others or (self.together is not None and self.together.guards != proposal.guards):
            raise Left
        self.steps.append(AlterStep(one.id, one.principal, write.doc, write.event.changes))
        self.members.append(Decided(handle, proposal=proposal, version=record.version + 1))
        self._stepped(write.doc, one.principal)
        if self.together is None:
            node, path = record.chain[-1], write.event.path_after or ""
            guards, version, kind = proposal.guards, self.first.version, write.event.kind
            self.together = AlterTogether(guards, node.id, version, node.scope_version, kind, path, (), self.helps)
        return len(write.doc)

    def complete(self) -> AlterTogether:
        """Return what to commit."""
        assert self.together is not None
        return self.together._replace(steps=tuple(self.steps))

    def behind(self, altered: Altered | None) -> list[Waiter]:
        """Return the requests that lost to another commit, or met intents, and may go into another batch."""
        if altered is None or altered.time is not None:
            return []
        losers = [member.handle for member in self.members if not member.true]
        if altered.queued:  # a transaction is in line: the full operation announces them
            for handle in losers:
                handle.request.queued(self.first)
            return []
        if altered.pending:
            for handle in losers:
                handle.request.hindered(self.first)
        elif altered.version is not None and altered.doc is not None:
            newest = self.first._replace(
                version=altered.version,
                doc=altered.doc,
                modified_by=altered.modified_by,
                modified_at=altered.modified_at,
            )
            for handle in losers:
                handle.request.overtaken(self.first.version, newest)
        else:
            return []
        return [handle for handle in losers if handle.request.lost < ROUNDS]

    def tell(self, altered: Altered | None) -> None:
        """Give the requests their answers; ``altered``: what became of the group, None if it was not sent.

        One that gets no answer is left to the full operation.
        """
        entity_id = self.first.chain[-1].id
        time = 0 if altered is None or altered.time is None else altered.time
        for member in self.members:
            if time or member.true:
                member.tell(Result(entity_id, member.version, time))


class Alters:
    """Batches of alters."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._clock = session.clock
        self._announced: Bounded[float] = Bounded()
        """Until when a batch looks for intents on an entity, and carries them along: some were met there lately."""

    def send(self, handles: Sequence[Waiter]) -> Tell:
        """Decide and commit; return what tells each request what it came to.

        Those that lose to another process's commit are sent once more at once, on the newest version.
        """
        groups, nowhere = self._decided(handles)
        sent = [group for group in groups if group.together is not None]
        alters = [group.complete() for group in sent]
        members = [member for group in sent for member in group.members]
        outcome = commit(members, partial(batches(self._session).alter_together, alters)) if sent else None
        answers = {} if outcome is None else dict(zip(map(id, sent), outcome, strict=True))
        behind = [handle for group in groups for handle in self._behind(group, answers.get(id(group)))]
        again = self._once_more(behind) if behind else None

        def tell() -> None:
            for one in nowhere:
                one.tell()
            for group in groups:
                group.tell(answers.get(id(group)))
            if again is not None:
                again()

        return tell

    def _behind(self, group: _Group, altered: Altered | None) -> list[Waiter]:
        if altered is not None and altered.pending:
            self._announced.set(group.first.chain[-1].id, self._clock.monotonic() + _STAYS)
        return group.behind(altered)

    def _once_more(self, handles: Sequence[Waiter]) -> Tell | None:
        try:
            return self.send(handles)
        except Exception:  # noqa: BLE001  (what was applied before is told all the same; these go alone)
            return None

    def _decided(self, handles: Sequence[Waiter]) -> tuple[list[_Group], list[Decided]]:
        """Decide each request on what there is; return the groups by entity, and the requests that name nothing."""
        found = bases(batches(self._session), handles)
        groups: dict[int, _Group] = {}
        for handle, seen in zip(handles, found, strict=True):
            if isinstance(seen, Record):
                _begin(groups, seen, fresh=handle.request.record is None)
        now = self._clock.monotonic()
        for entity_id, group in groups.items():
            if (self._announced.get(entity_id) or 0.0) > now:
                self._carry(entity_id, group)
        nowhere: list[Decided] = []
        left = MOST_BYTES
        for handle, seen in zip(handles, found, strict=True):
            if seen is False:
                nowhere += missing(handle)
            elif isinstance(seen, Record) and left > 0:
                left -= groups[seen.chain[-1].id].decide(handle)
        return list(groups.values()), nowhere

    def _carry(self, entity_id: int, group: _Group) -> None:
        seen = self._session.backend.pending(entity_id, None, BATCH)
        group.carry(seen)
        if seen.intents:
            self._announced.set(entity_id, self._clock.monotonic() + _STAYS)


def _begin(groups: dict[int, _Group], seen: Record, *, fresh: bool) -> None:
    """Let a group begin with the newest record of its entity; of equal ones, with the one that this batch read."""
    entity_id = seen.chain[-1].id
    group = groups.get(entity_id)
    if group is None or (seen.version, fresh) > (group.first.version, group.fresh):
        groups[entity_id] = _Group(seen, fresh)
