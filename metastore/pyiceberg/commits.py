"""Commit to Iceberg tables: the compare-and-swap of the pointer to a table's metadata file.

An attempt reads the table, applies the client's updates to its newest metadata, writes a new metadata file, and swaps
the pointer in one commit of the store. An attempt that loses deletes its file, and the next one begins. From the second
attempt on, the commit holds a lease that is named after the table. Waiters get the lease in the order of arrival, so
the writers of one table commit one after the other. For a while after a commit has lost, new commits to the table wait
from their first attempt on. The lease only orders the commits. The swap alone decides which one wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from cachetools import TTLCache
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from metastore.clock import SYSTEM
from metastore.errors import (
    DeadlineExceeded,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    LeaseHeld,
    MetastoreError,
    OperationIdReused,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
    VersionConflict,
)
from metastore.pyiceberg.attempts import Created, Current, Prepared, TableCommit, TableCreation
from metastore.pyiceberg.files import delete_quietly, next_location, outlived, write_metadata
from metastore.pyiceberg.neighbours import Neighbours
from metastore.pyiceberg.once import Once
from metastore.pyiceberg.places import Places, check_next, check_own_updates
from metastore.pyiceberg.rebase import rebase
from metastore.pyiceberg.rights import is_of_user, require_alter
from metastore.pyiceberg.room import require_known_schema
from metastore.pyiceberg.updates import updated

if TYPE_CHECKING:
    from metastore.leases.lease import LeaseSet
    from metastore.leases.leases import Leases
    from metastore.store import Store

__all__ = ["Commits", "answer"]

_PATIENCE = 600.0
"""How long a commit keeps trying (seconds): far longer than its turn in the queue takes to come."""
_MERGE = "metastore.commit.merge"
"""A table's property: with ``true``, the server merges all appends to the table."""
_TTL = 10.0
"""How long the queue waits for a writer that died (seconds)."""
_CONTENDED: Final[TTLCache[tuple[str, str], bool]] = TTLCache(10_000, 2.0, timer=SYSTEM.monotonic)
"""The tables on which a commit of this process lost lately, each as its database and the lease of its writers."""
_CONTENDED_LOCK: Final = Lock()


class Commits:
    """Commits to the Iceberg tables of one store."""

    def __init__(
        self, store: Store, leases: Leases, places: Places, once: Once, neighbours: Neighbours, *, merging: bool
    ) -> None:
        """``merging``: appends are rebased even if the client's requirement that nothing has changed fails."""
        self._merging, self._neighbours, self._store = merging, neighbours, store
        self._leases = leases
        self._places = places
        self._once = once

    def commit(self, commits: Sequence[TableCommit | TableCreation]) -> list[CommitTableResponse]:
        """Commit to one table, or to several at once: all or none.

        Raises CommitFailedException if a requirement fails and the commit cannot be rebased as an append,
        CommitStateUnknownException if the database did not answer whether the swap happened.
        """
        return self._once.guard(lambda: self._committed(commits), lambda: [_as_it_is(one.load()) for one in commits])

    def _committed(self, commits: Sequence[TableCommit | TableCreation]) -> list[CommitTableResponse]:
        ends = SYSTEM.monotonic() + _PATIENCE
        lost = 0
        with ExitStack() as queue:
            line = self._wait_in_line(queue, None, self._contended(commits), _PATIENCE)
            while SYSTEM.monotonic() < ends:
                attempts = self._prepare(commits)
                if (done := self._swapped(attempts, lost)) is not None:
                    return done
                lost += 1
                names = sorted(attempt.queue for attempt in attempts if attempt.queue is not None)
                self._note_contended(names)
                line = self._wait_in_line(queue, line, names, ends - SYSTEM.monotonic())
        raise CommitFailedException(f"other commits to the table won for {_PATIENCE:.0f} seconds; try again later")

    def _prepare(self, commits: Sequence[TableCommit | TableCreation]) -> list[Prepared | Created]:
        attempts: dict[int, Prepared | Created] = {}
        new = {place: commit for place, commit in enumerate(commits) if isinstance(commit, TableCreation)}
        for creation in new.values():
            creation.absent()
        try:  # if an attempt fails, delete the files of the attempts before it
            for place, commit in enumerate(commits):
                if not isinstance(commit, TableCreation):
                    attempts[place] = self._attempt(commit)
            # creations last: if a requirement fails, the client repeats the commit with the same folders for its new
            # tables
            for place, creation in new.items():
                attempts[place] = self._created(creation)
        except BaseException:
            _discard(attempts.values())
            raise
        return [attempts[place] for place in range(len(commits))]

    def _created(self, commit: TableCreation) -> Created:
        commit.take()
        after = commit.metadata
        location = next_location(self._places.locations(after.location, after.properties), None)
        io = self._places.io(after.properties, location)
        write_metadata(io, after, location)
        return Created(commit.load, commit.path, io, after, location)

    def _attempt(self, commit: TableCommit) -> Prepared:
        current = commit.load()
        require_alter(self._store, current.entity)
        self._places.check_updates(commit.updates)
        locations = self._places.locations(current.metadata.location, current.metadata.properties)
        if is_of_user(self._store):
            check_own_updates(current.metadata, commit.updates)
        if self._places.of_users:
            check_next(current.metadata.location, current.location, locations.new_table_metadata_file_location())
        io = self._places.io(current.metadata.properties, current.location)
        if _is_there(commit.updates, current.metadata):
            return Prepared(commit.load, current, io, current.metadata, current.location, (), ())
        require_known_schema(current.metadata, commit.requirements, commit.held)
        merging = self._merging or current.metadata.properties.get(_MERGE) == "true"
        own = io
        if self._places.of_users:
            # a user's file may name a manifest list of another table, whose content would be shown to the user
            own = self._places.below(io, current.metadata.location, current.location.rpartition("/")[0])
        rebased = rebase(own, locations, current.metadata, commit.requirements, commit.updates, merging=merging)
        written = list(rebased.written)
        try:
            after = updated(current.metadata, rebased.updates, current.location, commit.held)
            if after == current.metadata:
                return Prepared(commit.load, current, io, current.metadata, current.location, (), ())
            location = next_location(self._places.locations(after.location, after.properties), current.location)
            write_metadata(io, after, location)
        except BaseException:
            delete_quietly(io, written)
            raise
        replaced = rebased.replaced
        # a server keeps the client's manifest list, and deletes the metadata files that the log no longer names.
        # Without a server, PyIceberg's own Table deletes those metadata files
        if self._places.serves:
            replaced = tuple(outlived(current.metadata, after, location.rpartition("/")[0]))
        return Prepared(commit.load, current, io, after, location, (*written, location), replaced)

    def _swapped(self, attempts: list[Prepared | Created], lost: int) -> list[CommitTableResponse] | None:
        """Swap the pointers in one commit; return the answers.

        Return None if the attempt was not applied, for example because another commit won. Its files are deleted then.
        """
        options = self._begun(attempts)
        if options is None:  # an earlier attempt under the same key has committed
            _discard(attempts)
            return [_as_it_is(attempt.load()) for attempt in attempts]
        try:
            self._swap(attempts, options)
        except (VersionConflict, OperationIdReused):
            _discard(attempts)
            return None
        except OutcomeUnknown as error:
            if not self._settled(error):
                _discard(attempts)
                return None
        except (EntityNotFound, EntityAlreadyExists, InvalidArgument):
            _discard(attempts)
            if lost:
                raise
            # a table was dropped, or its columns were altered, since this attempt read it: the next one finds out
            return None
        except (DeadlineExceeded, RetriesExhausted, ScopeFrozen) as error:
            _discard(attempts)
            raise CommitFailedException(str(error)) from error
        except MetastoreError:
            _discard(attempts)
            raise
        self._delete_replaced(attempts)
        return [answer(attempt.metadata, attempt.location) for attempt in attempts]

    def _delete_replaced(self, attempts: list[Prepared | Created]) -> None:
        for one in attempts:
            place = one.metadata.location
            # keep the files of a folder that tables share: a user may have named another table's files in the log
            if one.replaced and not (self._places.serves and self._neighbours.may_be_more_than(1, place)):
                delete_quietly(one.io, list(one.replaced))

    def _begun(self, attempts: list[Prepared | Created]) -> dict[str, Any] | None:
        try:
            return self._once.begin()
        except BaseException:
            _discard(attempts)
            raise

    def _swap(self, attempts: list[Prepared | Created], options: dict[str, Any]) -> None:
        if not any(attempt.is_change for attempt in attempts):
            return
        match attempts:
            case [Prepared() as only]:
                self._store.tables.alter(only.current.entity, *only.changes, **options)
            case _:
                with self._store.transaction(**options) as tx:
                    for attempt in attempts:
                        attempt.apply(tx)

    def _settled(self, unknown: OutcomeUnknown) -> bool:
        """Return whether a swap happened although its answer was lost. Later swaps do not matter."""
        try:
            state = self._store.outcome(unknown.operation_id).state
        except MetastoreError as error:
            raise CommitStateUnknownException(
                "the database did not answer whether the commit happened; the files are kept; load the table to see"
            ) from error
        if state in ("committed", "failed", "cancelled"):
            return state == "committed"
        raise CommitStateUnknownException(
            f"the commit has the state {state}; the files are kept; load the table to see whether it happened"
        ) from unknown

    def _wait_in_line(
        self, queue: ExitStack, line: LeaseSet | None, names: list[str], patience: float
    ) -> LeaseSet | None:
        """Return the leases with these names. A commit that holds them already keeps its place."""
        if not names or (line is not None and sorted(line) == names and not line.is_over()):
            return line
        queue.close()  # give up all leases before waiting for others, so that no two commits wait for each other
        try:
            return queue.enter_context(self._leases.acquire_many(names, ttl=_TTL, timeout=max(patience, 1.0)))
        except LeaseHeld as error:
            raise CommitFailedException(str(error)) from error

    def _contended(self, commits: Sequence[TableCommit | TableCreation]) -> list[str]:
        """Return the leases of those tables on which a commit lost lately: new commits wait for them, too.

        Otherwise a writer at the head of the line would keep losing to new commits.
        """
        with _CONTENDED_LOCK:
            if not _CONTENDED:
                return []
        names = sorted(f"iceberg/{one.load().entity.id}" for one in commits if isinstance(one, TableCommit))
        with _CONTENDED_LOCK:
            return [name for name in names if (self._database, name) in _CONTENDED]

    def _note_contended(self, names: Sequence[str]) -> None:
        with _CONTENDED_LOCK:
            for name in names:
                _CONTENDED[self._database, name] = True

    @property
    def _database(self) -> str:
        return self._store._session.backend.origin.database  # noqa: SLF001  (the same package)


def _is_there(updates: tuple[TableUpdate, ...], metadata: TableMetadata) -> bool:
    """Return whether the table already has the snapshots of these updates, because the client repeats a lost commit.

    A client draws the ids of its snapshots at random, and one commit adds all of them.
    """
    added = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
    known = {(one.snapshot_id, one.timestamp_ms) for one in metadata.snapshots}
    return bool(added) and all((one.snapshot_id, one.timestamp_ms) in known for one in added)


def answer(metadata: TableMetadata, location: str) -> CommitTableResponse:
    """Return the answer to a commit: the table's metadata, and the file that has it."""
    fields: dict[str, Any] = {"metadata": metadata, "metadata-location": location}
    return CommitTableResponse(**fields)


def _as_it_is(current: Current) -> CommitTableResponse:
    return answer(current.metadata, current.location)


def _discard(attempts: Iterable[Prepared | Created]) -> None:
    """Delete the files of attempts that did not commit. The client's own files stay, because it may use them again."""
    for attempt in attempts:
        delete_quietly(attempt.io, list(attempt.written))
