"""Select changes of the feed, and wait for more.

Waiting is asking again: soon after a change, and at most a second apart when there is none for a while. A hint from a
process that writes ends a pause (:mod:`metastore.feed.hints`). Nothing rests on hints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from metastore.arguments import items, positive_seconds, shown
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.feed.feed import changes, number_in, read
from metastore.feed.visible import Passed, Sight
from metastore.kinds.entity import Change, Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS, OWNED_KINDS, RELATIONSHIPS
from metastore.managers.target import look_again
from metastore.names import Path, format_path, parse_path
from metastore.operation.dropping import LookAgain, pending_at
from metastore.operation.request import committed
from metastore.operation.session import Session
from metastore.port.backend import Reads
from metastore.port.feed import Hearing
from metastore.port.past import NotKept
from metastore.port.records import Lookup, Resolved, Step
from metastore.port.unreadable import Unreadable

__all__ = ["Selection", "kinds_of", "selected"]

LEASE = "lease"
"""The kind of the events of leases, which are no entities."""

_SOON, _SLOWEST, _SLOWER = 0.01, 1.0, 1.5
"""The first pause before the feed is asked again, the longest (seconds), and how much longer each is."""


@dataclass(frozen=True)
class Selection:
    """Which changes, and whether to wait for more."""

    kinds: Iterable[str] | None = None
    under: Path | Entity | None = None
    follow: bool = False
    timeout: float | None = None


def selected(
    session: Session, after: str | None, limit: int | None, unreadable: Unreadable | None, chosen: Selection
) -> Iterator[Change]:
    """Yield the changes that are selected. Raises as :func:`metastore.feed.feed.changes` does, and EntityNotFound."""
    kinds = None if chosen.kinds is None else kinds_of(chosen.kinds)
    if chosen.timeout is not None:
        positive_seconds(chosen.timeout, "the time after which following ends")
    # checks the position and the limit in this call, not at the first change
    changes(session.backend, session.clock, after, limit)
    tracked = None if chosen.under is None else _tracked(session, chosen.under, after)
    fits = partial(_fits, kinds, tracked)
    sight = None if session.access is None else Sight(session.access, fits)
    followed = _followed(session, after, unreadable, chosen, sight)
    shown = followed if sight is not None else (c for c in followed if c is None or fits(c))
    return _limited(shown, session, limit, chosen.timeout)


def _fits(kinds: frozenset[str] | None, tracked: Tracked | None, change: Change | Step) -> bool:
    inside = tracked is None or tracked.has(change)  # it sees every change, because it notes renames
    return inside and (kinds is None or change.kind in kinds)


def _followed(
    session: Session, after: str | None, unreadable: Unreadable | None, chosen: Selection, sight: Sight | None
) -> Iterator[Change | None]:
    """Yield changes, and None after each pause."""
    if not chosen.follow:
        yield from changes(session.backend, session.clock, after, None, unreadable, sight)
        return
    with session.backend.hearing() as hearing:
        yield from _on_and_on(session, after, unreadable, hearing, sight)


def _on_and_on(
    session: Session, after: str | None, unreadable: Unreadable | None, hearing: Hearing | None, sight: Sight | None
) -> Iterator[Change | None]:
    pause = _SOON
    while True:
        before = after
        for one in read(session.backend, session.clock, after, None, unreadable, sight):
            after = one.position
            yield None if isinstance(one, Passed) else one
        pause = _SOON if after != before else min(_SLOWEST, pause * _SLOWER)
        if hearing is None:
            session.clock.sleep(pause)
        elif hearing.wait(pause):
            pause = _SOON
        yield None


def _limited(
    changes: Iterator[Change | None], session: Session, limit: int | None, timeout: float | None
) -> Iterator[Change]:
    left, ends = limit, None if timeout is None else session.clock.monotonic() + timeout
    if left == 0:
        return
    for change in changes:
        if change is not None:
            yield change
            left = None if left is None else left - 1
            ends = None if timeout is None else session.clock.monotonic() + timeout
            if left == 0:
                return
        elif ends is not None and session.clock.monotonic() >= ends:
            return


def kinds_of(kinds: Iterable[str]) -> frozenset[str]:
    """Return the words. Raises InvalidArgument."""
    words = items(kinds, "kinds")
    known_kinds = {*KINDS, *OWNED_KINDS, *RELATIONSHIPS, LEASE}
    for one in words:
        if not isinstance(one, str):
            raise InvalidArgument(f"a kind is a word such as table, not {shown(one)}")
        if one not in known_kinds:
            known = ", ".join(sorted(known_kinds))
            raise InvalidArgument(f"there is no kind {shown(one)}; known are {known}")
    return frozenset(words)


@dataclass
class Tracked:
    """An entity, followed through renames of itself and of what is above it; and where it stands after each change."""

    id: int
    path: tuple[str, ...] | None
    """None: it was not made yet."""
    dropped: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Where those above it stood that are dropped."""

    def has(self, change: Change | Step) -> bool:
        """Whether a change is of the entity or of something below it; note where the entity stands after it."""
        try:
            before, after = (p and parse_path(p) for p in (change.path_before, change.path_after))
        except InvalidArgument:  # a damaged row of a user's feed: who sees it is told
            return True
        inside = change.entity_id == self.id or self._below(before)
        self._note(change, before or None, after or None)
        return inside or self._below(after)

    def _below(self, path: tuple[str, ...] | str | None) -> bool:
        return self.path is not None and path is not None and tuple(path[: len(self.path)]) == self.path

    def _note(self, change: Change | Step, before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> None:
        entity_id = change.entity_id or 0
        if change.entity_id == self.id and after is not None:
            self.path = after
        elif self.path is None or change.action not in ("rename", "move", "drop", "restore"):
            return
        if before is not None and after is None:
            self.dropped[entity_id] = before
        old = self.dropped.pop(entity_id, None) if before is None else before
        if old is not None and after is not None and self.path is not None and self.path[: len(old)] == old:
            self.path = (*after, *self.path[len(old) :])


def _tracked(session: Session, under: Path | Entity, after: str | None) -> Tracked:
    """Return the entity with where it stood at a position; where that is not known any more, where it stands."""
    backend = session.backend
    past = (backend if session.access is None else session.access.backend).past
    if isinstance(under, Entity):
        committed(backend, under)
        entity_id, path = under.id, under.names
    else:
        names = parse_path(under)
        kinds = [kind for kind in KINDS.values() if families_of(kind, len(names)) is not None]
        lookups = list(dict.fromkeys(Lookup(families_of(kind, len(names)) or (), names) for kind in kinds))
        resolved = backend.resolve(lookups)
        records = [one.record for one in resolved if one.record is not None]
        if not records:
            try:
                _raise_missing(backend, lookups, resolved, format_path(names))
            except LookAgain as changed:  # something has the name by now
                return look_again(changed, lambda: _tracked(session, under, after))
        entity_id, path = records[0].chain[-1].id, names
    try:
        (then,) = past.by_id(0 if after is None else number_in(backend, after), [entity_id])
    except NotKept:
        return Tracked(entity_id, path)
    return Tracked(entity_id, None if then is None else tuple(node.name for node in then.record.chain))


def _raise_missing(backend: Reads, lookups: Sequence[Lookup], resolved: Sequence[Resolved], path: str) -> NoReturn:
    """Raise DropPending for what is being dropped in steps, EntityNotFound, or LookAgain."""
    for where, one in zip(lookups, resolved, strict=True):
        if (pending := pending_at(backend, where, one.nodes)) is not None:
            raise pending
    raise EntityNotFound(path)
