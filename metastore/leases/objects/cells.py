"""Settled compare-and-swap on lock files: the result of a call is final, even if single requests failed.

A change is a function of the present lock file. If its write is refused, or the answer is lost, the file is read again,
and the function decides again. It gets the nonces of all writes that this call has tried, because each may have been
applied. So the function recognises a write that was applied, but answered with 500 or not answered; such a write does
not look like a lost race. No decision relies on an answer that another process's write may have caused.

A write may start from a version that this process wrote or read before, which saves a read: that version is the
condition of the write. A decision not to write always relies on a fresh read. Two answers may be a proxy's mistake, and
are asked for again before a decision relies on them: a missing lock file, and an object that is not a lock file.

A write without an answer may still be on its way when the call gives up. It is applied to exactly the version that it
was made for, or not at all. Its nonce is kept (:meth:`Cells.abandoned`), so this process knows that nobody holds the
lease that such a write acquired; for other processes, the lease lasts for its ttl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from metastore.clock import Clock
from metastore.errors import BackendUnavailable, MetastoreError, MigrationNeeded
from metastore.leases.objects.client import ConditionFailed, Objects, Unsettled
from metastore.leases.objects.effort import Effort
from metastore.leases.objects.format import Format
from metastore.leases.objects.lock_file import LockFile, unreadable

__all__ = ["Cells", "Decide", "Done"]

T = TypeVar("T")
V = TypeVar("V")
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The decision not to write, with the answer of the call."""

    answer: T


Decide = Callable[[LockFile | None, AbstractSet[str], str], "LockFile | Done[T]"]
"""A function of the lock file (None: it does not exist), the nonces of the writes tried so far, and a new nonce."""


class _Seen(NamedTuple):
    file: LockFile | None
    etag: str | None


class Cells:
    """The lock files of one place."""

    def __init__(
        self, objects: Objects, form: Format, place: str, clock: Clock, note: Callable[[LockFile], None]
    ) -> None:
        """Call ``note`` with each lock file that is read."""
        self._objects, self._form, self._place, self._clock, self._note = objects, form, place, clock, note
        self._seen: dict[str, _Seen] = {}
        self._abandoned: dict[str, None] = {}

    def abandon(self, nonces: AbstractSet[str]) -> None:
        """Note that this process never holds a lease that these writes acquire."""
        for nonce in nonces:
            _put(self._abandoned, nonce, None)

    def abandoned(self, nonce: str) -> bool:
        """Whether the write with this nonce was abandoned."""
        return nonce in self._abandoned

    def glance(self, name: str, ends: float) -> LockFile | None:
        """Return the lock file as one answer shows it; None: the answer says that there is none."""
        return self._read(name, Effort(self._clock, self._place, ends)).file

    def read(self, name: str, ends: float) -> LockFile | None:
        """Return the present lock file; None: it does not exist."""
        return self.change(name, lambda file, *_: Done(file), ends)

    def change(self, name: str, decide: Decide[T], ends: float) -> LockFile | T:
        """Write the lock file that ``decide`` returns, and return it; or return its answer, based on a fresh read.

        Raises BackendUnavailable or DeadlineExceeded at the time ``ends``; a write may still be applied after that.
        """
        effort = Effort(self._clock, self._place, ends)
        tried: set[str] = set()
        seen = self._seen.get(name)
        fresh, absent = seen is None, 0
        try:
            seen = seen or self._read(name, effort)
            while True:
                absent = absent + fresh if seen.file is None else 0
                nonce = self._clock.operation_id().hex
                plan = decide(seen.file, tried, nonce)
                if not isinstance(plan, Done):
                    effort.check()
                    tried.add(nonce)
                    if self._written(name, plan, seen.etag, effort, fresh):
                        return plan
                elif fresh and absent != 1:
                    return plan.answer
                seen, fresh = self._read(name, effort), True
        except BaseException:
            self.abandon(tried)
            raise

    def _written(self, name: str, file: LockFile, etag: str | None, effort: Effort, fresh: bool) -> bool:
        self._seen.pop(name, None)
        try:
            new = self._objects.put(self._form.key(name), self._form.encode(file), etag)
        except ConditionFailed:
            if fresh:  # another process wrote after this one's read, so wait; an old kept version needs no wait
                effort.pause()
            return False
        except Unsettled as trouble:
            effort.pause(trouble)
            return False
        if new is not None:
            _put(self._seen, name, _Seen(file, new))
        return True

    def _read(self, name: str, effort: Effort) -> _Seen:
        seen = self._look(self._form.key(name), name, effort)
        _put(self._seen, name, seen)
        return seen

    def _look(self, key: str, name: str | None, effort: Effort) -> _Seen:
        while True:
            effort.check()
            try:
                stored = self._objects.get(key)
            except Unsettled as trouble:
                effort.pause(trouble)
                continue
            if stored is None:
                return _Seen(None, None)
            try:
                file = self._form.decode(name, stored.data, f"{self._place}/{key}")
            except BackendUnavailable as error:
                effort.pause(Unsettled("not a lock file", error))
                continue
            self._note(file)
            return _Seen(file, stored.etag)

    def all(
        self, keys: Iterable[str], ends: float, damaged: Callable[[MetastoreError], object] | None
    ) -> Iterator[LockFile]:
        """Yield the lock files with these keys; ``damaged`` gets the errors of unreadable ones (None: raise them)."""
        for key in keys:
            if not key.endswith(".json") or "/" in key:
                continue
            try:
                file = self._look(key, None, Effort(self._clock, self._place, ends)).file
                if file is not None and self._form.key(file.name) != key:
                    raise unreadable(f"{self._place}/{key}", f"it is the lock file of {file.name!r}")
            except (BackendUnavailable, MigrationNeeded) as error:
                if damaged is None or getattr(error, "transient", False):  # the storage does not answer now
                    raise
                damaged(error)
                continue
            if file is not None:
                yield file

    def keys(self, ends: float) -> list[str]:
        """Return the keys of all objects in the place."""
        effort = Effort(self._clock, self._place, ends)
        while True:
            effort.check()
            try:
                return list(self._objects.keys())
            except Unsettled as trouble:
                effort.pause(trouble)


def _put(entries: dict[str, V], key: str, value: V) -> None:
    """Add an entry, and keep the newest thousand."""
    entries.pop(key, None)
    entries[key] = value
    with suppress(StopIteration, RuntimeError):  # another thread may remove entries, too
        while len(entries) > _MOST:
            entries.pop(next(iter(entries)), None)
