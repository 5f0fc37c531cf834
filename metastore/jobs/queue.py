"""Keep the list of jobs that have not ended, by following the change feed.

The tables are read once. After that each look costs one read of the feed, however many jobs have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from metastore.errors import HistoryGone
from metastore.kinds.job.run import ENDED, Job

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Queue", "is_free"]

_KIND: Final = "job"


class Queue:
    """The jobs that have not ended, oldest first. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position: str | None = None
        self._open: dict[int, Job] = {}

    def look(self) -> None:
        """Apply the changes since the last look."""
        try:
            if self._position is None:
                self._read_all()
            for change in self._store.changes(after=self._position):
                self._position = change.position
                if change.kind == _KIND:
                    self._note(change.entity_id, change.entity if change.action != "drop" else None)
        except HistoryGone:  # this server slept for longer than gc keeps
            self._position = None

    def _read_all(self) -> None:
        self._position = self._store.position()
        self._open = {}
        for lake in self._store.metalakes.list():
            if lake.in_use:
                for job in self._store.jobs.list(lake):
                    self._note(job.id, job)

    def _note(self, id: int, job: object) -> None:
        if isinstance(job, Job) and job.status not in ENDED:
            self._open[id] = job
        else:
            self._open.pop(id, None)

    def free(self, living: Mapping[str, int]) -> Iterator[Job]:
        """Yield the jobs that nobody runs: those that are queued, and those whose server is dead."""
        yield from [job for job in self._open.values() if is_free(job, living)]

    @property
    def any_started(self) -> bool:
        """Whether some server runs a job, or died while it ran one."""
        return any(job.status != "queued" for job in self._open.values())

    def of(self, worker: str, token: int) -> list[Job]:
        """Return the jobs that this server runs, as they are now."""
        return [job for job in self._open.values() if (job.worker, job.token) == (worker, token)]


def is_free(job: Job, living: Mapping[str, int]) -> bool:
    """Whether no server runs a job: it is queued, or its server's seat is empty or has another token.

    One that was imported with the id of another system runs there, and is never free.
    """
    if job.execution_id is not None:
        return False
    return job.status == "queued" or (job.worker is not None and living.get(job.worker) != job.token)
