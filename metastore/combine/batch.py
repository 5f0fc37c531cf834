"""One batch of writes: decide its requests, commit them in one message, and give each request its answer.

A batch takes two messages. The first one finds the entities at the paths. Then each request's own function decides on
the found record, as it would alone. The second message commits everything: creates, then alters, then renames and
drops. Each entity has its own guards and compare-and-swap; each operation has its own version, history and operation
id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from metastore.combine.decided import MOST_BYTES, Decided, Waiter, bases, commit, missing
from metastore.combine.group import Group
from metastore.combine.handle import BY_AGE
from metastore.combine.lane import Tell
from metastore.combine.last import LastBatch
from metastore.combine.reads import batches
from metastore.combine.waiting import Left
from metastore.operation.helping import BATCH
from metastore.operation.hot import ForgetfulMap
from metastore.operation.request import Proposal
from metastore.operation.session import Session
from metastore.port.batches import Altered, Batch, Taken, Written
from metastore.port.records import Record
from metastore.port.writes import Insert, Result

_STAYS: Final = 1.0
"""How long batches read the intents on an entity after they found intents there (seconds)."""


class _Drawn:
    """The decisions of one batch, sorted by the kind of write."""

    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        """By entity."""
        self.creates: dict[tuple[int, str, str], Decided] = {}
        """The creates, by the name that each takes."""
        self.nowhere: list[Decided] = []
        """Requests whose path leads to no entity."""
        self.later: list[Waiter] = []
        """Creates for the next batch, because another request of this batch takes their name."""
        self._taken = set[tuple[int, str]]()
        """The names that creates and renames take: the id of the parent, and the key."""
        self._left = MOST_BYTES

    def begin(self, seen: Record, *, fresh: bool) -> Group:
        """Let a group begin with its entity's newest record; of equal versions, take the one read in this batch."""
        entity_id = seen.chain[-1].id
        group = self.groups.get(entity_id)
        if group is None or (seen.version, fresh) > (group.first.version, group.fresh):
            group = self.groups[entity_id] = Group(seen, fresh)
        return group

    def decide(self, handle: Waiter, seen: Record | bool) -> None:
        """Decide a request on the record that was found for it.

        A request without an answer goes to the full operation.
        """
        if seen is False:
            self.nowhere += missing(handle)
        elif self._left > 0:
            if isinstance(seen, Record):
                self._left -= self.groups[seen.chain[-1].id].decide(handle, seen, self._taken)
            elif handle.request.creates:
                self._create(handle)

    def _create(self, handle: Waiter) -> None:
        try:
            proposal = handle.request.decide(None)
            write = _made(proposal)
        except Exception:  # noqa: BLE001  (Left, the call's own error on a guess, or a bug in it)
            return
        name = (write.parent_id, write.family, write.key)
        if name in self.creates:
            self.later.append(handle)
        else:
            self._left -= len(write.doc)
            self.creates[name] = Decided(handle, proposal=proposal)
            self._taken.add((write.parent_id, write.key))

    def sent(self, run: str | None) -> tuple[Batch, list[Decided]]:
        """Return the batch to commit in one run of the server, and the requests of its members."""
        creates, groups = list(self.creates.values()), list(self.groups.values())
        altered = [group for group in groups if group.together is not None]
        ended = [group.last for group in groups if group.last is not None]
        batch = Batch(
            [one.single() for one in creates],
            [group.alters() for group in altered],
            [one.single() for one in ended],
            run,
        )
        return batch, [*creates, *[member for group in altered for member in group.members], *ended]

    def behind(self, answers: _Answers) -> Iterator[Waiter]:
        """Yield the requests for the next batch."""
        yield from self.later
        for (parent_id, *_), one, result in zip(self.creates, self.creates.values(), answers.made, strict=False):
            if result is None:
                one.handle.request.unnamed(parent_id)
                if one.handle.request.may_return:
                    yield one.handle
        for entity_id, group in self.groups.items():
            yield from group.behind(*answers.of(entity_id))

    def left(self, answers: _Answers) -> Iterator[Record]:
        """Yield the altered entities as the answers show them."""
        for entity_id, group in self.groups.items():
            record = group.left(*answers.of(entity_id))
            if record is not None:
                yield record

    def tell(self, answers: _Answers) -> None:
        """Give the requests their answers."""
        for one in self.nowhere:
            one.tell()
        for one, result in zip(self.creates.values(), answers.made, strict=False):
            if result is not None:
                one.tell(result)
        for entity_id, group in self.groups.items():
            group.tell(*answers.of(entity_id))


class _Answers:
    """The results of a batch, by entity. ``written`` is None if the batch was not applied."""

    def __init__(self, batch: Batch, written: Written | None) -> None:
        found = Written([], [], []) if written is None else written
        self.made = found.inserts
        self.altered = {one.id: answer for one, answer in zip(batch.alters, found.alters, strict=False)}
        self._ended = {one.write.id: answer for one, answer in zip(batch.updates, found.updates, strict=False)}

    def of(self, entity_id: int) -> tuple[Altered | None, Result | Taken | None]:
        """Return the results of an entity's alters and of its exclusive update; None: no result came."""
        return self.altered.get(entity_id), self._ended.get(entity_id)


def _made(proposal: Any) -> Insert:
    """Return the one write of a create. Raises Left for a proposal that does not fit into a batch."""
    if not isinstance(proposal, Proposal) or proposal.reads or proposal.skip_existing or len(proposal.writes) != 1:
        raise Left
    write = proposal.writes[0]
    if not isinstance(write, Insert) or write.id is not None or any(guard.exclusive for guard in proposal.guards):
        raise Left
    return write


class BatchSender:
    """The sender of batches of writes. ``back`` puts requests back into the queue for the next batch."""

    def __init__(self, session: Session, back: Callable[[Sequence[Waiter]], None]) -> None:
        self._session = session
        self._clock = session.clock
        self._back = back
        self._last = LastBatch()
        self._announced: ForgetfulMap[float] = ForgetfulMap()
        """For each entity on which intents were found, the time until which batches read and carry its intents."""

    def send(self, handles: Sequence[Waiter]) -> Tell:
        """Decide and commit; return the function that gives each request its answer."""
        batch = object()
        for handle in handles:
            handle.request.taken = True
            handle.request.under_way.add(batch)
        try:
            return self._sent(handles)
        finally:
            for handle in handles:
                handle.request.under_way.discard(batch)

    def _sent(self, handles: Sequence[Waiter]) -> Tell:
        run = self._session.backend.origin.run  # read first: the commit checks that the run is still the same
        drawn, batch, members, written = self._session.backend.in_one_go(
            lambda: self._decide_and_commit(handles, run), for_many=True
        )
        answers = _Answers(batch, written)
        for entity_id, answer in answers.altered.items():
            if answer.pending:
                self._announced.set(entity_id, self._clock.monotonic() + _STAYS)
        self._last.note(drawn.left(answers), run)
        if written is not None or not members:
            self._back(sorted(drawn.behind(answers), key=BY_AGE))
        return lambda: drawn.tell(answers)

    def _decide_and_commit(
        self, handles: Sequence[Waiter], run: str | None
    ) -> tuple[_Drawn, Batch, list[Decided], Written | None]:
        drawn = self._drawn(handles, run)
        batch, members = drawn.sent(run)
        return drawn, batch, members, commit(members, batch, batches(self._session)) if members else None

    def _drawn(self, handles: Sequence[Waiter], run: str | None) -> _Drawn:
        """Decide each request: alters first, because a rename or drop ends an entity's name or life."""
        self._last.guess([handle.request for handle in handles], run)
        found = list(zip(handles, bases(self._session, handles), strict=True))
        drawn = _Drawn()
        altered = dict[int, None]()
        for handle, seen in found:
            if isinstance(seen, Record):
                drawn.begin(seen, fresh=handle.request.record is None)
                if handle.request.request.verb == "alter":
                    altered[seen.chain[-1].id] = None
        now = self._clock.monotonic()
        for entity_id in altered:
            if (self._announced.get(entity_id) or 0.0) > now:
                self._carry(entity_id, drawn.groups[entity_id])
        for handle, seen in sorted(found, key=lambda one: one[0].request.request.verb in ("rename", "drop")):
            drawn.decide(handle, seen)
        return drawn

    def _carry(self, entity_id: int, group: Group) -> None:
        seen = self._session.backend.pending(entity_id, None, BATCH)
        group.carry(seen)
        if seen.intents:
            self._announced.set(entity_id, self._clock.monotonic() + _STAYS)
