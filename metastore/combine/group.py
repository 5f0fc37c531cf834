"""Decide the requests of a batch on one entity, one after the other, and give them their answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from metastore.combine.decided import Decided, Waiter
from metastore.combine.waiting import Left
from metastore.errors import MetastoreError
from metastore.operation.helping import BatchSize, plan
from metastore.operation.kept_result import OF_THE_COMMIT
from metastore.operation.request import Proposal
from metastore.port.batches import Altered, AlterStep, AlterTogether, Taken
from metastore.port.records import Pending, Record
from metastore.port.writes import Result, Update

_SEVERAL = 2


@dataclass(slots=True)
class Group:
    """One entity's requests: its alters in the order of arrival, then one exclusive update (a rename or drop).

    All of them waited when the batch began, so any order is a valid serial order. Other exclusive updates of the entity
    wait for the next batch.
    """

    record: Record
    """The entity after the last decided request."""
    fresh: bool
    """This batch has read the record."""
    first: Record = field(init=False)
    members: list[Decided] = field(default_factory=list)
    steps: list[AlterStep] = field(default_factory=list)
    together: AlterTogether | None = None
    last: Decided | None = None
    """The exclusive update."""
    later: list[Waiter] = field(default_factory=list)
    helps: bool = False
    """The record was read together with the intents on the entity."""
    closed: bool = False
    """The batch sends nothing for this entity: the full operation takes its requests."""

    def __post_init__(self) -> None:
        self.first = self.record

    def carry(self, seen: Pending) -> None:
        """Begin with one snapshot: resolve its pending intents before the group's requests."""
        if seen.known is None or seen.known.record.chain != self.first.chain:
            self.closed = True  # the entity was renamed or dropped: let each request read it again, alone
            return
        if any(intent.fences is not None for intent in seen.intents):
            self.closed = True  # a user's intent needs its own guards: leave it to the full operation
            return
        self.first = self.record = seen.known.record
        self.helps = True
        self.resolve(seen)

    def resolve(self, seen: Pending) -> None:
        """Resolve the intents of a snapshot on the present record, as the next steps."""
        assert seen.known is not None
        planned = plan(seen._replace(known=seen.known._replace(record=self.record)), None, BatchSize())
        for one in () if planned is None else planned.help.resolutions:
            self.steps.append(AlterStep(one.operation_id, one.principal, one.doc, one.changes, one))
            if one.action == "alter" and one.doc is not None:
                self._stepped(one.doc, one.principal)

    def _stepped(self, doc: str, principal: str | None) -> None:
        self.record = self.record._replace(
            version=self.record.version + 1, doc=doc, modified_by=principal, modified_at=OF_THE_COMMIT
        )

    def decide(self, handle: Waiter, seen: Record, taken: set[tuple[int, str]]) -> int:
        """Apply a request to the record; return how many bytes it writes. Skip a request that raises Left.

        ``seen``: the record that was found for the request. ``taken``: the names that requests of this batch take (the
        parent's id, the key); a rename adds its own.
        """
        if self.closed or (handle.request.path is not None and seen.chain != self.first.chain):
            return 0  # another process has moved the entity since: resolve its path again, alone
        exclusive = handle.request.request.verb != "alter"
        if exclusive and self.last is not None:
            self.later.append(handle)
            return 0
        true = self.fresh and not self.steps
        try:
            decided = handle.request.decide(self.record)
            if not isinstance(decided, Proposal):
                self.members.append(Decided(handle, value=decided, true=true))
                return 0
            return self._end(handle, decided, taken) if exclusive else self._step(handle, decided)
        except MetastoreError as error:
            self.members.append(Decided(handle, error=error, true=true))
        except Exception:  # noqa: BLE001  (Left, or a bug, which the call raises when it goes alone)
            return 0
        return 0

    def _step(self, handle: Waiter, proposal: Proposal[Any]) -> int:
        one, record, write = handle.request, self.record, _only(proposal)
        assert write.doc is not None  # an alter writes the whole document
        if self.together is not None and self.together.guards != proposal.guards:
            raise Left
        self.steps.append(AlterStep(one.id, one.principal, write.doc, write.event.changes))
        self.members.append(Decided(handle, proposal=proposal, version=record.version + 1))
        self._stepped(write.doc, one.principal)
        if self.together is None:
            node, path = record.chain[-1], write.event.path_after or ""
            guards, version, kind = proposal.guards, self.first.version, write.event.kind
            self.together = AlterTogether(guards, node.id, version, node.scope_version, kind, path, (), self.helps)
        return len(write.doc)

    def _end(self, handle: Waiter, proposal: Proposal[Any], taken: set[tuple[int, str]]) -> int:
        write = _only(proposal)
        if write.scope_version is None or write.doc is not None or write.empty:
            raise Left
        if self.steps and self.together is None:
            raise Left  # the group has no alter yet, and only an alter's step can carry the intents in this record
        if write.place is not None:
            name = write.place.parent_id, write.place.key
            if name in taken:
                self.later.append(handle)
                return 0
            taken.add(name)
        follows = self.steps[-1].operation_id if self.steps else None
        self.last = Decided(handle, proposal=proposal, follows=follows)
        return 0

    def alters(self) -> AlterTogether:
        """Return the group's alters."""
        assert self.together is not None
        return self.together._replace(steps=tuple(self.steps))

    def behind(self, altered: Altered | None, last: Result | Taken | None) -> Iterator[Waiter]:
        """Yield the requests for the next batch: they lost to another commit, met intents, or came too late.

        ``altered``, ``last``: the results of the alters and of the exclusive update; None: they were not applied.
        """
        yield from self.later
        losers = [member.handle for member in self.members if not member.true]
        if altered is None or altered.time is not None:
            losers = []
        elif altered.queued:  # a transaction is in line: the full operation of each loser announces its change
            for handle in losers:
                handle.request.queued(self.first)
            losers = []
        if self.last is not None and last is None:
            losers.append(self.last.handle)
        for handle in losers:
            self._lost(handle, altered)
            if handle.request.may_return:
                yield handle

    def _lost(self, handle: Waiter, altered: Altered | None) -> None:
        """Note why a request lost."""
        newest = self._newest(altered)
        if newest is not None:
            handle.request.overtaken(self.first.version, newest)
        elif altered is not None and altered.pending:
            handle.request.hindered(self.first)
        else:
            handle.request.outdated(self.first)

    def left(self, altered: Altered | None, last: Result | Taken | None) -> Record | None:
        """Return the entity as the batch left it or the answer shows it; None: unknown, or not worth keeping.

        It is worth keeping if several requests met here, because more will come soon. ``altered``, ``last``: see
        :meth:`behind`.
        """
        if isinstance(last, Result) or self.closed or len(self.members) < _SEVERAL:
            return None
        if altered is not None and altered.time is not None:
            return self.record._replace(modified_at=altered.time)
        return self._newest(altered)

    def _newest(self, altered: Altered | None) -> Record | None:
        """Return the entity as the answer shows it, if only its version has changed."""
        if altered is None or altered.version is None or altered.doc is None or altered.queued or altered.pending:
            return None
        return self.first._replace(
            version=altered.version,
            doc=altered.doc,
            modified_by=altered.modified_by,
            modified_at=altered.modified_at,
        )

    def tell(self, altered: Altered | None, last: Result | Taken | None) -> None:
        """Give the requests their answers; ``altered``, ``last``: see :meth:`behind`.

        A request without an answer goes to the full operation.
        """
        entity_id = self.first.chain[-1].id
        time = 0 if altered is None or altered.time is None else altered.time
        for member in self.members:
            if time or member.true:
                member.tell(Result(entity_id, member.version, time))
        if self.last is not None and last is not None:
            self.last.tell(last)


def _only(proposal: Proposal[Any]) -> Update:
    """Return the one write of a proposal. Raises Left for a proposal that does not fit into a batch."""
    (write,) = proposal.writes if len(proposal.writes) == 1 else (None,)
    barred = proposal.reads or proposal.exclusive or any(guard.exclusive for guard in proposal.guards)
    if not isinstance(write, Update) or barred:
        raise Left
    return write
