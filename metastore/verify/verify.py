"""Check the invariants of a whole database.

It checks that documents can be read, and the invariants of docs/correctness.md that show in the content, by number:

1. version chains; 2. no orphans, at no position of the feed; 3. unique and well-formed names;
4. an operation by path commits while the path leads to its entity, as far as the feed shows it;
6. an operation was applied, or its one row has the reason; 7. an intent can be applied or expires, a mark expires;
8. a replay of the feed gives the tables; 9. each commit under a lease has the token that the lease had then;
13. both ends of a relation are live when it is written, and an exclusive relation is alone;
14. no commit of a user relies on a right that was taken away before; taking one away increases a scope version;
15. the steps that the past shows have the places of their rows, and a kept step took the name: they agree with their
    events, and in the end with the tables;
17. no value that a catalog declares secret is plain text, and its data key exists.

The feed is replayed only if gc has removed nothing from it. The other invariants concern behaviour, which does not show
in the content.

Everything is read from one snapshot, so concurrent writes cause no false alarms. The streams are ordered by key, and
merged. It keeps in memory about 24 bytes for each entity, about 1 KB for each one that can have children, and the
violations; never a whole table. Writers do not wait; on PostgreSQL, vacuum cannot remove rows while verify runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.drop import DROP, is_drop_name, target_id
from metastore.kinds.registry import KINDS
from metastore.names import clean_name, fold
from metastore.port.backend import Backend
from metastore.port.conditions import DROPPED, DROPPING, LIVE, PURGING, ROOT_ID
from metastore.port.note import read_note
from metastore.port.snapshot import TableSnapshot
from metastore.verify.evidence import Evidence
from metastore.verify.history import ChainReader, doc_problem, time_problem
from metastore.verify.leases import LEASE, Fencing, check_lease
from metastore.verify.models import Aliases
from metastore.verify.operations import check_operations
from metastore.verify.relations import COLUMNS, check_relation, was_deleted
from metastore.verify.replay import FeedEvent, Replay
from metastore.verify.secrets import check_data_keys, check_secrets, data_keys_needed
from metastore.verify.steps import AUDIT, Made, Place
from metastore.verify.taken import check_taken
from metastore.verify.violations import Places, Violation, surviving

__all__ = ["verify"]

Row = tuple[Any, ...]

_PLACE = ("id", "parent_id", "kind", "name", "fold", "state")
_GUARD = (*_PLACE, "family", "key", "in_use", "scope_version", "dropped_at", "mark", "marked_at", "marked_until")
_OWNED = ("id", "owner_id", "kind", "name", "version", "doc", *AUDIT)
_STEP = (
    *("entity_id", "version", "seq", "operation_id", "owner_id", "kind", "action", "path_before", "path_after"),
    *("scope_version", "in_use", "doc", "changes", "time", "principal", "other_id"),
    *("parent_id", "name", "state", "key", "through", "fold", "family"),
)
_EVENT = (
    *("seq", "operation_id", "entity_id", "version", "fences"),
    *("owner_id", "kind", "action", "path_before", "path_after", "other_id", "other_path", "parent_id", "fold"),
    "scope_version",
)
_LATE = 3_600_000_000
"""A pending intent is a violation if it is this much older than a drop (µs).

An intent that is announced while the drop waits for its locks is invisible to the drop's statement, but may have an
earlier time. Its owner withdraws it."""


def verify(backend: Backend) -> list[Violation]:
    """Return all violations of the invariants."""
    with backend.snapshot() as snapshot:
        found, needed = list(_violations(snapshot)), data_keys_needed(snapshot)
    return [*found, *check_data_keys(backend, needed)]


def _violations(snapshot: TableSnapshot) -> Iterator[Violation]:
    infos = list(snapshot.rows("info", ("collected_seq", "past_from"), ("id",)))
    if len(infos) != 1:
        yield Violation(8, None, None, f"the table info has {len(infos)} rows instead of one")
    for sequence in snapshot.cached():
        message = (
            f"the sequence {sequence} has another CACHE than 1, so that its numbers are not in the order of commits"
        )
        yield Violation(8, None, None, f"{message}; ALTER SEQUENCE {sequence} CACHE 1, then close all connections")
    for problem in snapshot.damaged():
        yield Violation(8, None, None, f"the file is damaged: {problem}; put a backup back")
    for table, row_id, column in snapshot.not_utf8():
        yield Violation(8, row_id, None, f"the text in column {column} of its row in the table {table} is not UTF-8")
    collected, past_from = infos[0] if infos else (1, 0)
    complete = collected == 0
    places = Places(snapshot.rows("guard", _PLACE, ("id",)))
    yield from places.cycles()
    replay = Replay(places) if complete else None
    evidence = Evidence()
    yield from _feed(snapshot, replay, evidence)
    yield from _readers(snapshot)
    yield from check_operations(snapshot, complete=complete, past_from=past_from)
    yield from check_taken(snapshot)
    yield from _siblings(snapshot, places)
    yield from _Rows(snapshot, places, replay, past_from, evidence).check()
    yield from check_secrets(snapshot, places)


def _feed(snapshot: TableSnapshot, replay: Replay | None, evidence: Evidence) -> Iterator[Violation]:
    """Check the positions of the feed, and replay its events."""
    last, fencing = 0, Fencing()
    rows = snapshot.rows("operation", _EVENT, ("seq", "operation_id", "ordinal"))
    for seq, operation, entity_id, version, fences, *columns, scope_version in rows:
        event = FeedEvent(*columns)
        path = event.after or event.before
        if seq == last:
            yield Violation(8, entity_id, path, f"position {seq} is taken twice, the second time by {operation}")
        last = seq
        if entity_id is None:
            yield Violation(8, None, path, f"position {seq} (operation {operation}) is of no entity")
        elif event.kind == LEASE:
            yield from surviving(fencing.event(entity_id, version, event.action, path), entity_id, path)
        elif replay is not None:
            yield from surviving(replay.apply(seq, entity_id, event), entity_id, path)
        if fences is not None:
            yield from surviving(_noted(seq, entity_id, fences, path, fencing, evidence), entity_id, path)
        if entity_id is not None and event.owner_id is None:
            evidence.stood(seq, entity_id, scope_version)
    yield from fencing.rest(complete=replay is not None)
    drawn = snapshot.numbers()[1]
    if last > drawn:
        yield Violation(8, None, None, f"position {last} is beyond {drawn}, the last that was drawn")


def _readers(snapshot: TableSnapshot) -> Iterator[Violation]:
    """Check that no pin and no consumer is ahead of the feed: it would miss the changes up to its position."""
    drawn = snapshot.numbers()[1]
    for table in ("pin", "consumer"):
        for name, seq in snapshot.rows(table, ("name", "seq"), ("name",)):
            if not 0 <= seq <= drawn:
                yield Violation(8, None, None, f"the {table} {name!r} is at {seq}, and {drawn} is the last position")


def _noted(
    seq: int, entity_id: int | None, text: str, path: str | None, fencing: Fencing, evidence: Evidence
) -> Iterator[Violation]:
    """Check the notes of a commit: its leases, and the evidence of its rights."""
    try:
        noted = read_note(text)
    except ValueError:
        yield Violation(9, None, path, f"position {seq}: the leases that it was committed under cannot be read")
        return
    yield from fencing.commit(seq, noted.leases, path)
    for message in evidence.commit(seq, noted.evidence, noted.raised):
        yield Violation(14, entity_id, path, message)


def _siblings(snapshot: TableSnapshot, places: Places) -> Iterator[Violation]:
    """Check that no two siblings that are live, or being dropped in steps, have the same name."""
    columns = ("parent_id", "family", "key", "state", "id", "name")
    taken, by = None, 0
    for parent_id, family, key, state, entity_id, name in snapshot.rows("guard", columns, columns[:5]):
        if state not in (LIVE, DROPPING):
            continue
        if (parent_id, family, key) == taken:
            yield Violation(3, entity_id, places.path(parent_id, name), f"it has the name of entity {by}: {key!r}")
        taken, by = (parent_id, family, key), entity_id


class _Rows:
    """Checks all rows of one id together: the guard row, the entity or owned row, the history."""

    def __init__(
        self, snapshot: TableSnapshot, places: Places, replay: Replay | None, past_from: int, evidence: Evidence
    ) -> None:
        self._past_from, self._evidence = past_from, evidence
        self._snapshot, self._places, self._replay = snapshot, places, replay
        self._drawn = snapshot.numbers()[0]
        self._aliases = Aliases()
        rows = snapshot.rows("owned", ("owner_id", "kind", "name"), ("owner_id", "kind", "name"), [ROOT_ID])
        self._drops = {target_id(name) for _, kind, name in rows if kind == DROP.name and is_drop_name(name)}

    def check(self) -> Iterator[Violation]:
        rows = self._snapshot.rows
        guards = rows("guard", _GUARD, ("id",))
        entities = rows("entity", ("id", "version", "doc", *AUDIT), ("id",))
        owned = rows("owned", _OWNED, ("id", "owner_id", "kind", "name"))
        relations = rows("relation", COLUMNS, ("id",))
        leases = rows("lease", ("id", "name", "token", "owner"), ("id",))
        steps = rows("operation", _STEP, ("entity_id", "version", "seq"))
        for row_id, rows_of in _merged(guards, entities, owned, relations, leases, steps):
            yield from surviving(self._one(row_id, *rows_of), row_id, None)
        yield from surviving(self._aliases.violations(), None, None)

    def _one(
        self,
        row_id: int,
        guard: Iterator[Row],
        entity: Iterator[Row],
        own: Iterator[Row],
        relation: Iterator[Row],
        lease: Iterator[Row],
        history: Iterator[Row],
    ) -> Iterator[Violation]:
        """Check all rows of one id."""
        reader = ChainReader(row_id, history, complete=self._replay is not None, past_from=self._past_from)
        if row_id > self._drawn:
            message = f"its id is beyond {self._drawn}, the last that was drawn"
            yield Violation(8, row_id, None, message)
        if (held := next(lease, None)) is not None or reader.first_kind == LEASE:
            complete = self._replay is not None
            yield from check_lease(row_id, held and held[1:], reader.links(), complete=complete)
        elif (row := next(own, None)) is not None:
            yield from self._owned(row, reader, next(own, None))
        elif (row := next(relation, None)) is not None:
            yield from check_relation(row, next(relation, None), reader, self._places)
        elif (place := next(guard, None)) is not None or row_id in self._places:
            yield from self._entity(place, next(entity, None), reader)
        elif (left := next(entity, None)) is not None:
            yield Violation(8, row_id, None, f"an entity (version {left[1]}) without a guard row: it has no place")
        else:
            yield from self._gone(row_id, reader)

    # --- entities

    def _entity(self, guard: Row | None, entity: Row | None, reader: ChainReader) -> Iterator[Violation]:
        assert guard is not None
        row_id, parent_id, kind, name, folds, state, family, key, in_use, scope_version, dropped_at, *mark = guard
        if row_id == ROOT_ID:
            return
        path = self._places.path(parent_id, name)
        for invariant, message in (
            *self._place_problems(parent_id, kind, state, family),
            *self._name_problems(parent_id, name, key),
            *self._state_problems(state, dropped_at),
            *self._fold_problems(parent_id, kind, bool(folds), entity),
            *self._mark_problems(*mark),
        ):
            yield Violation(invariant, row_id, path, message)
        if problem := self._evidence.beyond(row_id, scope_version):
            yield Violation(14, row_id, path, problem)
        if self._replay is not None and (problem := self._replay.differs(row_id, parent_id)):
            yield Violation(8, row_id, path, problem)
        if entity is None:
            yield Violation(8, row_id, path, "a guard row without an entity: it has no document and no version")
            return
        yield from _time_problems(row_id, path, entity[3:5])
        if problem := doc_problem(kind, entity[2]):
            yield Violation(8, row_id, path, problem)
        elif kind == "model":
            self._aliases.model(row_id, path, entity[2])
        if state == DROPPING and row_id not in self._drops:
            yield Violation(8, row_id, path, "it is being dropped in steps, but no row has its progress")
        # during a drop in steps, the last event is a drop, too
        stood = DROPPED if state == DROPPING else state
        stands = {"scope version": scope_version, "in use": bool(in_use), "name": name, "state": stood}
        place = Place(parent_id, name, bool(folds), state, family, key)
        yield from reader.check(path, kind, entity[1], entity[2], stands, place, Made(*entity[3:]))
        waits_since = reader.waits_since
        if state != LIVE and None not in (dropped_at, waits_since) and waits_since < dropped_at - _LATE:
            yield Violation(7, row_id, path, "it was dropped, and an intent from long before still waits to be applied")

    def _place_problems(self, parent_id: int, kind: str, state: int, family: str) -> Iterator[tuple[int, str]]:
        what = "a live" if state == LIVE else "a dropped"
        if parent_id not in self._places:
            yield 2, f"{what} {kind} whose parent {parent_id} is missing"
            return
        if kind not in KINDS:
            return
        parent = self._places.containers.get(parent_id)
        wanted = KINDS[kind].parents or ("root",)
        if parent is None or (parent.kind not in wanted and parent.kind in (*KINDS, "root")):
            below = "an entity that can have no children" if parent is None else f"a {parent.kind}"
            yield 8, f"a {kind} must be below a {' or a '.join(wanted)}, not below {below}"
        if family != KINDS[kind].family:
            yield 3, f"a {kind} is of the family {KINDS[kind].family}, not {family}"

    def _name_problems(self, parent_id: int, name: str, key: str) -> Iterator[tuple[int, str]]:
        try:
            clean = clean_name(name)
        except InvalidArgument as error:
            yield 3, str(error)
            return
        if clean != name:
            yield 3, f"the name {name!r} is not in the form NFC"
        parent = self._places.containers.get(parent_id)
        wanted = fold(clean) if parent is not None and parent.fold else clean
        if parent is not None and key != wanted:
            yield 3, f"{name!r} is compared as {key!r} instead of {wanted!r}"

    def _state_problems(self, state: int, dropped_at: int | None) -> Iterator[tuple[int, str]]:
        if state not in (LIVE, DROPPED, PURGING, DROPPING):
            yield 8, f"it has the state {state}, which is not a state"
        if state != PURGING and (dropped_at is None) != (state in (LIVE, DROPPING)):
            untimed, timed = "it is dropped, but has no time of its drop", "it is not dropped, but has the time of one"
            yield 8, untimed if state == DROPPED else timed

    def _mark_problems(self, mark: Any, since: int | None, until: int | None) -> Iterator[tuple[int, str]]:
        if len({part is None for part in (mark, since, until)}) > 1:
            yield 7, f"it is marked by {mark} since {since} until {until}: a mark has all three or none"
        elif since is not None and until is not None and until < since:
            yield 7, f"it is marked since {since}, but only until {until}"

    def _fold_problems(self, parent_id: int, kind: str, folds: bool, entity: Row | None) -> Iterator[tuple[int, str]]:
        parent = self._places.containers.get(parent_id)
        wanted = parent.fold if parent is not None else folds
        if kind == "catalog":
            doc = entity[2] if entity is not None else ""
            wanted = folds if doc_problem(kind, doc) else json.loads(doc)["fold_case"]
        if wanted != folds:
            yield 3, f"its fold flag is {folds} instead of {wanted}"

    # --- owned rows, and ids without a row

    def _owned(self, row: Row, reader: ChainReader, second: Row | None) -> Iterator[Violation]:
        row_id, owner_id, kind, name, version, doc, *made = row
        path = reader.first_path or name
        if second is not None:
            yield Violation(8, row_id, path, f"two rows of entities {owner_id} and {second[1]} have one id")
        if row_id in self._places:
            yield Violation(8, row_id, path, "an entity and an owned row have one id")
        if kind == DROP.name and not is_drop_name(name):
            yield Violation(8, row_id, path, f"it has the progress of a drop in steps, but {name!r} names no target")
        if owner_id not in self._places:
            yield Violation(8, row_id, path, f"a {kind} whose owner {owner_id} is missing")
        try:
            if clean_name(name) != name:
                yield Violation(3, row_id, path, f"the name {name!r} is not in the form NFC")
        except InvalidArgument as error:
            yield Violation(3, row_id, path, str(error))
        yield from _time_problems(row_id, path, made[:2])
        if problem := doc_problem(kind, doc):
            yield Violation(8, row_id, path, problem)
        elif kind == "model_version":
            self._aliases.version(owner_id, name, doc)
        place = Place(owner_id, name, None, LIVE, kind, name)
        yield from reader.check(
            path, kind, version, doc, {"owner": owner_id, "name": name, "state": LIVE}, place, Made(*made)
        )

    def _gone(self, row_id: int, reader: ChainReader) -> Iterator[Violation]:
        """Check the history of an id whose row no longer exists."""
        yield from reader.walk(reader.first_path)
        last = reader.last
        if last is None or last.action == "purge":
            return
        path = last.path_after or last.path_before
        if last.other_id is not None and (last.action == "drop" or was_deleted(last, self._places)):
            return
        if last.owner_id is not None:
            if last.action != "drop" and last.owner_id in self._places:
                yield Violation(8, row_id, path, f"its last change is {last.action}, but there is no such {last.kind}")
        elif self._replay is not None and not self._replay.is_purged(row_id):
            yield Violation(8, row_id, path, "the feed made it and never purged it, but it is not in the tables")


def _time_problems(row_id: int, path: str, times: Sequence[object]) -> Iterator[Violation]:
    for what, micros in zip(("created", "modified"), times, strict=True):
        if problem := time_problem(what, micros):
            yield Violation(8, row_id, path, problem)


def _merged(*streams: Iterator[Row]) -> Iterator[tuple[int, list[Iterator[Row]]]]:
    """Yield each id with its rows in each stream; rows that the caller does not take are skipped."""
    heads: list[Row | None] = [next(stream, None) for stream in streams]

    def take(n: int, row_id: int) -> Iterator[Row]:
        while (row := heads[n]) is not None and row[0] == row_id:
            heads[n] = next(streams[n], None)
            yield row

    while there := [row[0] for row in heads if row is not None]:
        first = min(there)
        rows = [take(n, first) for n in range(len(streams))]
        yield first, rows
        for _ in chain(*rows):
            pass
