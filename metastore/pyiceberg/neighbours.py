"""Find out which Iceberg tables have their folder inside another one.

A client that gets a key for a folder, or can have its files deleted, reaches the files of all tables in it. The store
knows the folder of each table, but nothing keeps the folders apart that operators choose. So a server, and a purge, use
this module. It reads all folders once, which takes seconds for 50,000 tables, and then follows each commit. Tables of
other formats do not count: a user may make one at any location, and could so keep other users out of their tables.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Final

from metastore.cache.positions import MOST, Positions
from metastore.clock import SYSTEM
from metastore.errors import BackendUnavailable, MetastoreError
from metastore.port.conditions import DROPPED
from metastore.port.records import Known, Origin
from metastore.pyiceberg.confined import END, keys_of
from metastore.pyiceberg.entities import FORMAT, POINTER, UUID_OF
from metastore.transfer.walk import batched

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Neighbours"]

_PAGE: Final = 100
_STORE: Final = 3
"""How many parts of a key name its object store or file system."""
_PAGES: Final = 10
"""If more pages of changes than this are missing, all folders are read again instead."""
_RECENT: Final = 500
"""Commits that were open when all folders were read may be among this many of the newest changes."""


class Neighbours:
    """The folders of all Iceberg tables of a store. The store must not be a user's."""

    def __init__(self, store: Store) -> None:
        self._backend = store._session.backend  # noqa: SLF001  (the same package)
        self._lock = Lock()
        self._began = float("-inf")
        """When the folders were last read (monotonic seconds)."""
        self._origin: Origin | None = None
        self._positions: Positions | None = None
        """The changes that the folders include; None: the folders were not read yet."""
        self._of: dict[int, tuple[str, ...]] = {}
        self._sorted: list[tuple[str, int]] = []
        """The keys of all folders, each with the id of its table. Places in a folder sort after the folder's key."""

    def look(self) -> None:
        """Read the folders of all tables, so that no later caller waits for it."""
        self._ids(lambda _: (), ())

    def are_more_than(self, most: int, location: str, patience: float = -1.0) -> bool:
        """Whether more than ``most`` live tables have their folder at a location, or below it.

        Tables with one UUID at exactly that location count as one, because a copy of a table has its files.
        ``patience``: how long to wait for another thread that reads the folders (seconds; -1: no limit). After that,
        BackendUnavailable is raised.
        """
        folders = keys_of(location)
        tables, ids = set[Hashable](), self._ids(self._below, folders, patience)
        if len(ids) <= most:
            return False
        for some in batched(ids, _PAGE):
            for number, uuid, keys in self._live(some):
                if any(key.startswith(folder) for key in keys for folder in folders):
                    tables.add(uuid if uuid is not None and not {*keys}.isdisjoint(folders) else number)
            if len(tables) > most:
                return True
        return False

    def may_be_more_than(self, most: int, location: str) -> bool:
        """Whether :meth:`are_more_than` is true, or cannot be answered because the database does not answer."""
        try:
            return self.are_more_than(most, location)
        except MetastoreError:
            return True

    def has_around(self, location: str) -> bool:
        """Whether a location lies in the folder of a live table, or is that folder."""
        folders = keys_of(location)
        found = self._live(self._ids(self._around, folders))
        return any(folder.startswith(key) for _, _, keys in found for key in keys for folder in folders)

    def _live(self, ids: list[int]) -> Iterator[tuple[int, str | None, tuple[str, ...]]]:
        """Yield the id, the UUID, and the keys of the folder of each table that is live, or being dropped in steps."""
        found = self._backend.by_id(ids)
        gone = [number for number, known in zip(ids, found, strict=True) if _is_gone(known)]
        if gone and self._lock.acquire(blocking=False):  # if the lock is taken, the next caller forgets them
            try:
                self._read(gone)
            finally:
                self._lock.release()
        for known in found:
            if known is not None and (known.live or known.dropping):
                properties = json.loads(known.record.doc).get("properties", {})
                yield known.record.chain[-1].id, properties.get(UUID_OF), _keys(known.record.doc)

    def _ids(self, find: Callable[[str], Iterable[int]], folders: tuple[str, ...], patience: float = -1.0) -> list[int]:
        """Return the ids of the tables that ``find`` returns for these folders. Some may have been dropped since."""
        asked = SYSTEM.monotonic()
        if not self._lock.acquire(timeout=patience):
            raise BackendUnavailable("another request reads the folders of all tables; try again in a few seconds")
        try:
            if self._began < asked:  # otherwise another thread has read the feed since this call began
                began = SYSTEM.monotonic()
                self._follow()
                self._began = began
            return sorted({number for folder in folders for number in find(folder)})
        finally:
            self._lock.release()

    def _below(self, folder: str) -> Iterator[int]:
        return self._from(folder, lambda key: key.startswith(folder))

    def _around(self, folder: str) -> Iterator[int]:
        parts = folder.split(END)
        for length in range(_STORE, len(parts)):
            above = END.join([*parts[:length], ""])
            yield from self._from(above, above.__eq__)

    def _from(self, first: str, fits: Callable[[str], bool]) -> Iterator[int]:
        for at in range(bisect_left(self._sorted, (first,)), len(self._sorted)):
            key, number = self._sorted[at]
            if not fits(key):
                return
            yield number

    def _follow(self) -> None:
        """Read the changes. The caller holds the lock."""
        origin, positions = self._backend.origin, self._positions
        is_same = positions is not None and self._origin == origin and self._has_followed(positions)
        # the first call, too many changes, or some are gone (gc, a fail-over, a restore): read all tables
        if not is_same or self._backend.origin != origin:
            self._positions = None
            self._read_all()

    def _has_followed(self, positions: Positions) -> bool:
        """Read the changed tables. Return False if too much has changed, or if some changes no longer exist.

        A committed change counts at once, even if its number comes after that of an open commit. The feed would wait,
        because any other transaction of the database server may keep it from passing that number.
        """
        for _ in range(_PAGES):
            after = positions.last
            answer = self._backend.touched(after, sorted(positions.missing), MOST - 1)
            self._read(sorted({row.entity_id for row in answer.rows if row.entity_id is not None}))
            if not positions.apply(answer, after):
                return False
            if positions.stubborn:
                positions.watermark = self._backend.watermark()
            if sum(row.seq > after for row in answer.rows) < MOST:
                return True
        return False

    def _read_all(self) -> None:
        origin, drawn = self._backend.origin, self._backend.watermark().position
        answer = self._backend.touched(drawn, (), 0)
        # a commit that is open now may have an earlier number
        positions = Positions(answer.epoch, max(answer.collected, drawn - _RECENT))
        with self._backend.snapshot() as snapshot:
            rows = snapshot.rows("entity", ("id", "doc"), ("id",))
            self._of = {number: keys for number, doc in rows if (keys := _keys(doc))}
        self._sorted = sorted((key, number) for number, keys in self._of.items() for key in keys)
        self._origin, self._positions = origin, positions

    def _read(self, ids: list[int]) -> None:
        """Read the folders of some tables. The caller holds the lock. A restore after this read is a later change."""
        for some in batched(ids, _PAGE):
            for number, known in zip(some, self._backend.by_id(some), strict=True):
                for key in self._of.pop(number, ()):
                    del self._sorted[bisect_left(self._sorted, (key, number))]
                if known is not None and not _is_gone(known) and (keys := _keys(known.record.doc)):
                    self._of[number] = keys
                    for key in keys:
                        insort(self._sorted, (key, number))


def _is_gone(known: Known | None) -> bool:
    """Whether a table was purged, or was dropped itself: only its own restore would bring it back."""
    return known is None or (known.state == DROPPED and not known.dropping)


def _keys(doc: str) -> tuple[str, ...]:
    """Return the keys of the folder of an Iceberg table, from its document; nothing for another entity."""
    fields = json.loads(doc) if f'"{POINTER}"' in doc else {}
    location = fields.get("location")
    is_table = fields.get("format") == FORMAT and POINTER in fields.get("properties", {})
    return keys_of(location) if is_table and isinstance(location, str) and location else ()
