"""Check relations and rights in the feed: both ends are live, an exclusive relation is alone, no lost right is used.

The events of relations carry the id of the relation itself. It keeps one event in memory for each existing relation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from metastore.checker.event import Event
from metastore.checker.finding import Finding
from metastore.kinds.registry import RELATIONSHIPS
from metastore.kinds.relation import relation_named
from metastore.port.note import read_note
from metastore.verify.evidence import Evidence

__all__ = ["Related", "Rights"]

_ACTIONS: Final = ("create", "alter", "drop")
PathOf = Callable[[int], str | None]
"""A function from an entity's id to its present path; None: no path leads to it. Raises KeyError if gc has removed the
steps that created the entity.
"""


class Related:
    """The relations that exist after the feed's events so far."""

    def __init__(self, path_of: PathOf) -> None:
        self._path_of = path_of
        self._last: dict[int, Event] = {}
        self._alone: dict[tuple[int, str], int] = {}

    def apply(self, event: Event) -> Iterator[Finding]:
        """Apply the next event of a relation; yield each contradiction."""
        if event.action not in _ACTIONS:
            yield Finding("replay", f"the event at {event.seq} is not one of a relation", (str(event),))
        if event.action != "drop":
            yield from self._ends(event)
            yield from self._stands_alone(event)
        if event.action == "drop":
            self._last.pop(event.entity_id, None)
            self._alone.pop((event.owner_id or 0, event.kind), None)
        else:
            self._last[event.entity_id] = event

    def last(self, relation_id: int) -> Event | None:
        """Return the last event of an existing relation."""
        return self._last.get(relation_id)

    def _ends(self, event: Event) -> Iterator[Finding]:
        """Check that both ends were live when the relation was written, at the paths in its event."""
        said = {event.path_after or event.path_before, event.other_path}
        for end in (event.owner_id, event.other_id):
            try:
                path = self._path_of(end or 0)
            except KeyError:  # gc has removed the steps that created the entity
                continue
            if path is None:
                message = f"the relation {event.entity_id} was written at {event.seq}, and entity {end} was not live"
                yield Finding("orphan", message, (str(event),))
            elif path not in said:
                message = f"the relation written at {event.seq} names {' and '.join(map(str, said))}, not {path}"
                yield Finding("replay", message, (str(event),))

    def _stands_alone(self, event: Event) -> Iterator[Finding]:
        if event.kind not in RELATIONSHIPS or not relation_named(event.kind).exclusive:
            return
        label = (event.owner_id or 0, event.kind)
        other = self._alone.setdefault(label, event.entity_id)
        if other != event.entity_id:
            message = f"entity {event.owner_id} has two relations {event.kind} at {event.seq}"
            yield Finding("name", message, (str(self._last[other]), str(event)))


class Rights:
    """The evidence in the notes of users' commits, and the scope versions after other commits."""

    def __init__(self) -> None:
        self._evidence = Evidence()

    def apply(self, event: Event) -> Iterator[Finding]:
        """Take the next event of the feed; yield a finding for each commit that relies on a lost right."""
        if event.fences is not None:
            try:
                note = read_note(event.fences)
            except ValueError:
                yield Finding("rights", f"the evidence of position {event.seq} cannot be read", (str(event),))
            else:
                for message in self._evidence.commit(event.seq, note.evidence, note.raised):
                    yield Finding("rights", message, (str(event),))
        if event.owner_id is None:
            self._evidence.stood(event.seq, event.entity_id, event.scope_version)
