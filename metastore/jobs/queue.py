"""Keep the list of jobs that have not ended, by following the change feed.

All jobs are read once. After that each look costs one read of the feed, however many jobs have ended, and one read for
each new job. The jobs of a metalake that is enabled or restored are read once more. When a metalake is disabled or
dropped, the jobs are listed again, and the queue forgets those that are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from metastore.errors import DropPending, EntityNotFound, HistoryGone, MetastoreError, NotInUse
from metastore.jobs.home import database_of, home_in
from metastore.kinds.job.run import ENDED, Job
from metastore.kinds.metalake import Metalake

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Queue", "is_free"]

_KIND: Final = "job"
_METALAKE: Final = "metalake"
_BACK: Final = ("enable", "restore")
"""After these actions the jobs of a metalake can run again. A queue that was started in between has not read them."""
_AWAY: Final = ("disable", "drop")
"""After these actions they cannot run. The feed says nothing about entities below the metalake."""
_LOG = logging.getLogger("metastore.jobs")


class Queue:
    """The jobs that have not ended, oldest first. Not thread-safe.

    ``take_over``: include the jobs of another home. Otherwise the queue leaves them alone, and warns.
    """

    def __init__(self, store: Store, *, take_over: bool = False) -> None:
        self._store, self._take_over = store, take_over
        self._position: str | None = None
        self._open: dict[int, Job] = {}
        self._homes: dict[int, str] = {}
        """The home that each open job would have if it was submitted here, by id."""
        self._database, self._warned = "", 0

    def look(self) -> None:
        """Apply the changes since the last look."""
        try:
            if self._position is None:
                self._read_all()
            for change in self._store.changes(after=self._position, unreadable=_unreadable):
                if change.kind == _KIND:
                    self._note(change.entity_id, change.entity if change.action != "drop" else None)
                elif change.kind == _METALAKE and change.action in _BACK:
                    self._read_metalake(change.entity)
                elif change.kind == _METALAKE and change.action in _AWAY:
                    self._leave_out_what_is_away()
                self._position = change.position  # last: after an error the next look begins with this change
        except HistoryGone:  # this server slept for longer than gc keeps history: read all jobs again
            self._position = None
        self._warn()

    def _read_all(self) -> None:
        position = self._store.position()
        self._database = database_of(self._store)
        self._open, self._homes = {}, {}
        for lake in self._store.metalakes.list():
            self._read_jobs(lake)
        self._position = position  # last: after an error the next look reads all

    def _read_metalake(self, lake: object) -> None:
        """Read the jobs of a metalake that is back: the feed says nothing about entities below it."""
        with suppress(EntityNotFound, DropPending, NotInUse):  # the metalake was dropped or disabled again
            if isinstance(lake, Metalake):
                self._read_jobs(self._store.metalakes.load(lake))

    def _leave_out_what_is_away(self) -> None:
        lakes = [lake for lake in self._store.metalakes.list() if lake.in_use]
        there = {job.id for lake in lakes for job in self._jobs(lake)}
        for id in self._open.keys() - there:
            self.leave_out(id)

    def _jobs(self, lake: Metalake) -> Iterator[Job]:
        """Yield the jobs of a metalake; a damaged one must not keep the others from running."""
        return self._store.jobs.list(lake, unreadable=_unreadable)

    def _read_jobs(self, lake: Metalake) -> None:
        if lake.in_use:
            for job in self._jobs(lake):
                self._homes[job.id] = home_in(self._database, job)
                self._note(job.id, job)

    def _note(self, id: int, job: object) -> None:
        if isinstance(job, Job) and job.status not in ENDED:
            self._open[id] = job
        else:
            self.leave_out(id)

    def leave_out(self, id: int) -> None:
        """Forget a job until it changes."""
        self._open.pop(id, None)
        self._homes.pop(id, None)

    def _is_here(self, job: Job) -> bool:
        """Whether this database runs a job."""
        return job.home is None or job.home == self.home(job)

    def home(self, job: Job) -> str | None:
        """Return the home that a job would have if it was submitted here; None if the job is gone."""
        if job.id not in self._homes:
            try:
                loaded = self._store.jobs.load(job)  # the feed does not tell the metalake's id
            except (EntityNotFound, DropPending, NotInUse):
                return None
            self._homes[job.id] = home_in(self._database, loaded)
        return self._homes[job.id]

    def _warn(self) -> None:
        """Log how many jobs are left to another database, and again when there are more."""
        if self._take_over:
            return
        left = sum(job.execution_id is None and not self._is_here(job) for job in self._open.values())
        if left > self._warned:
            _LOG.warning(
                "%d jobs that have not ended were submitted to another database, of which this is a copy, and are not "
                "run here; cancel them, or start one server with --take-over-jobs (WorkerPool: take_over=True)",
                left,
            )
        self._warned = left

    def __contains__(self, id: int) -> bool:
        """Whether a job exists and has not ended, as of the last look."""
        return id in self._open

    def free(self, living: Mapping[str, int]) -> Iterator[Job]:
        """Yield the jobs that this server may claim: queued ones, and those whose server is dead."""
        for job in list(self._open.values()):
            here = self._is_here(job)
            if (here or self._take_over) and is_free(job, living if here else {}):
                yield job

    @property
    def any_started(self) -> bool:
        """Whether some server runs a job, or died while it ran one."""
        return any(job.status != "queued" for job in self._open.values())

    def of(self, worker: str, token: int) -> list[Job]:
        """Return the jobs that this server runs, as of the last look.

        Jobs of another home are left out: in a copy, another server may have the same name and token.
        """
        mine = [job for job in self._open.values() if (job.worker, job.token) == (worker, token)]
        return [job for job in mine if self._is_here(job)]


def _unreadable(error: MetastoreError) -> None:
    _LOG.warning("a job that cannot be read is not run: %s", error)


def is_free(job: Job, living: Mapping[str, int]) -> bool:
    """Whether no server runs a job: it is queued, or its server's seat is empty or has another token.

    A job that was imported with the id of another system runs there, and is never free.
    """
    if job.execution_id is not None:
        return False
    return job.status == "queued" or (job.worker is not None and living.get(job.worker) != job.token)
