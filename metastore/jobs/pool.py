"""A server's workers: threads that claim jobs and run them, under the server's seat.

A claim is one commit. It requires that the job is still free, and writes this server's seat and token into it. So only
one of several servers that see the same job gets it. A server that dies loses its seat when its lease is over; its
commands die before that (guard.py). Then the others may claim its jobs, and its later writes have no effect.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from metastore.clock import SYSTEM
from metastore.errors import (
    DropPending,
    EntityNotFound,
    InvalidArgument,
    LeaseLost,
    MetastoreError,
    NotInUse,
    UnreadableRow,
    VersionConflict,
)
from metastore.jobs.folder import sweep
from metastore.jobs.queue import Queue
from metastore.jobs.run import run
from metastore.jobs.seat import living, take_seat
from metastore.kinds.job.run import FinishJob, Job, StartJob
from metastore.leases.lease import Lease

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["WorkerPool"]

_LOOKS: Final = 0.25
"""How often the pool looks for jobs (seconds), besides when :meth:`WorkerPool.wake` is called."""
_AFTER_AN_ERROR: Final = 2.0
_LOG = logging.getLogger("metastore.jobs")


class WorkerPool:
    """Runs jobs until it is closed: ``with WorkerPool(store, workers=2): …``.

    ``workers``: how many jobs run at once. ``ttl``: how long after a server's last renewal others take its jobs over
    (seconds); they notice up to half a second later. ``take_over``: also run jobs that were submitted to another
    database, of which this one is a copy; if the original runs too, they run twice. Close the pool before its store.
    """

    def __init__(self, store: Store, *, workers: int = 2, ttl: float = 6.0, take_over: bool = False) -> None:
        self._store, self._workers, self._ttl, self._take_over = store, workers, ttl, take_over
        self._wake, self._closing = threading.Event(), threading.Event()
        self._running: dict[int, str | None] = {}
        """The jobs that run here, by id, with the reason why each must end, or None."""
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="metastore-jobs", daemon=True)

    def __enter__(self) -> Self:
        sweep()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wake(self) -> None:
        """Look for jobs at once."""
        self._wake.set()

    def close(self) -> None:
        """End the commands that run here, and give the seat back: other servers run these jobs again, at once."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        with ThreadPoolExecutor(self._workers, "metastore-job") as threads:
            while not self._closing.is_set():
                try:
                    self._work_on_a_seat(threads)
                except MetastoreError as error:
                    _LOG.warning("no jobs are run for now: %s", error)
                    self._closing.wait(_AFTER_AN_ERROR)
                except Exception:  # noqa: BLE001  (the server goes on without it, and tries again)
                    _LOG.exception("no jobs are run for now")
                    self._closing.wait(_AFTER_AN_ERROR)

    def _work_on_a_seat(self, threads: ThreadPoolExecutor) -> None:
        """Claim and run jobs until the seat is lost, or the pool closes."""
        seat, queue = take_seat(self._store, self._ttl), Queue(self._store, take_over=self._take_over)
        try:
            while not self._closing.is_set() and not seat.is_over():
                self._wake.clear()
                try:
                    self._look(seat, queue, threads)
                except MetastoreError as error:  # running jobs continue while this server holds the seat
                    _LOG.warning("the queue of jobs could not be read: %s", error)
                self._wake.wait(_LOOKS)
        finally:
            with self._guard:  # each running job reads its reason here, and ends its command
                self._running = dict.fromkeys(self._running, "leave")
            while self._running:
                self._wake.wait(_LOOKS)
            with suppress(MetastoreError):
                seat.release()

    def _look(self, seat: Lease, queue: Queue, threads: ThreadPoolExecutor) -> None:
        queue.look()
        mine = queue.of(seat.name, seat.token or 0)
        cancelled = {job.id for job in mine if job.status == "cancelling"}
        with self._guard:
            for id in self._running:
                if id in cancelled:
                    self._running[id] = "cancel"
                # the job or its metalake was dropped or disabled: stop the job; it runs again if they come back
                elif id not in queue:
                    self._running[id] = "leave"
        alive = living(self._store) if queue.any_started else {}
        if queue.any_started and seat.name not in alive:
            return  # this server's renewal is late, so it cannot tell which servers live
        lost = [job for job in mine if job.id not in self._running]  # no thread of this server runs these jobs any more
        for job in (*lost, *queue.free(alive)):
            if len(self._running) >= self._workers:
                return
            if job.id in self._running:
                continue
            try:
                claimed = self._claim(job, seat, queue.home(job))
            except (InvalidArgument, UnreadableRow) as error:
                _LOG.warning("the job %s cannot be started: %s", job.path, error)
                queue.leave_out(job.id)  # so that the jobs after it are run
                continue
            if claimed is not None:
                self._running[claimed.id] = None
                threads.submit(self._run, claimed, seat)

    def _claim(self, job: Job, seat: Lease, home: str | None) -> Job | None:
        """Claim a free job and set its home; None if another server has it, or it was cancelled or is gone."""
        name, token, at = seat.name, seat.token or 0, SYSTEM.micros()
        start = StartJob(name, token, at, home=home)
        if job.status != "queued":
            start = replace(start, dead_worker=job.worker, dead_token=job.token)
        try:
            claimed = self._store.jobs.alter(job, start, lease=seat)
            if claimed.status != "cancelling":
                return claimed
            output = "it was cancelled while its server was dead"
            self._store.jobs.alter(claimed, FinishJob(name, token, at, "cancelled", None, output), lease=seat)
        except (VersionConflict, EntityNotFound, DropPending, NotInUse):
            return None
        except LeaseLost:
            self._wake.set()
        return None

    def _run(self, job: Job, seat: Lease) -> None:
        try:
            run(self._store, job, seat, lambda: self._running.get(job.id, "leave"))
        except Exception:  # noqa: BLE001  (the next look claims the job again)
            _LOG.exception("the job %s could not be run to its end", job.path)
        finally:
            with self._guard:
                self._running.pop(job.id, None)
            self._wake.set()
