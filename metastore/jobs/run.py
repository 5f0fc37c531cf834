"""Run one job that this server has claimed, to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
from metastore.jobs.command import Stopped, environment, words
from metastore.jobs.folder import job_folder
from metastore.jobs.process import Process
from metastore.kinds.job.run import FinishJob, Job
from metastore.leases.lease import Lease

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["MOST_ATTEMPTS", "Stop", "run"]

MOST_ATTEMPTS: Final = 5
"""How often a job is started at most: without this limit, a job that kills its servers would be started for ever."""
_TICK: Final = 0.1
"""How often a running job is checked (seconds)."""
_PAUSE: Final = 1.0
"""How long to wait before the end of a job is written again after a failure (seconds)."""
_MARGIN: Final = 0.5
"""How long before the end of the lease the command is killed (seconds)."""
_LOG = logging.getLogger("metastore.jobs")

Stop = Callable[[], str | None]
"""Says whether the job must end now: "cancel", "leave" (the server stops or lost its seat), or None."""


def run(store: Store, job: Job, seat: Lease, stop: Stop) -> None:
    """Run a job until it ends, and write its status; a server that has lost its seat writes nothing."""
    if job.attempts > MOST_ATTEMPTS:
        _finish(store, job, seat, "failed", None, f"its server died {job.attempts - 1} times while it ran")
        return
    with job_folder() as folder:
        try:
            argv = words(job.type, job.command, folder, stop)
            process = Process(argv, environment(job.command), folder)
        except Stopped:
            if stop() == "cancel":
                _finish(store, job, seat, "cancelled", None, "it was cancelled while its files were fetched")
            return
        except (MetastoreError, OSError, ValueError) as error:
            _finish(store, job, seat, "failed", None, f"it could not be started: {error}")
            return
        try:
            why = _watch(process, seat, stop)
            if why != "leave":
                _finish(store, job, seat, *_ending(process, why))
        finally:
            process.close()


def _watch(process: Process, seat: Lease, stop: Stop) -> str | None:
    """Watch the command while the seat is held; return why it was ended, or None if it ended by itself."""
    why = None
    while not process.wait(0):
        process.trim()
        if why is None and (why := stop()) is not None:
            process.stop() if why == "cancel" else process.kill()
        if seat.is_over():
            process.kill()
            why = "leave"
        else:
            process.allow(max(0.0, seat.seconds_left() - _MARGIN))
        process.wait(_TICK)
    return why


def _ending(process: Process, why: str | None) -> tuple[str, int | None, str]:
    code, output = process.code(), process.output()
    if why == "cancel":
        return "cancelled", code, output
    if code is None:
        return "failed", None, f"{output}\nits guard was killed, and the command with it"
    return "succeeded" if code == 0 else "failed", code, output


def _finish(store: Store, job: Job, seat: Lease, status: str, code: int | None, output: str) -> None:
    assert job.token is not None
    assert job.worker is not None
    ending = FinishJob(job.worker, job.token, SYSTEM.micros(), status, code, output)
    while not seat.is_over():
        try:
            store.jobs.alter(job, ending, lease=seat)
        except (VersionConflict, LeaseLost):  # another server has taken the job
            return
        # the job or its metalake was dropped or disabled: the job runs again if they come back
        except (EntityNotFound, DropPending, NotInUse):
            return
        except (InvalidArgument, UnreadableRow) as error:  # do not try again: the worker is needed for other jobs
            _LOG.error("the end of the job %s cannot be written: %s", job.path, error)
            return
        except MetastoreError as error:  # try again: no other server takes the job while this one holds the seat
            _LOG.warning("the end of the job %s is not written yet: %s", job.path, error)
            SYSTEM.sleep(_PAUSE)
        else:
            _LOG.info("job %s: %s, exit code %s", job.path, status, code)
            return
