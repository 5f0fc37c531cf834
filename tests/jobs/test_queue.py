"""The list of jobs that have not ended, as the change feed keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import metastore as ms
from metastore.jobs import submit
from metastore.jobs.queue import Queue

Act = Callable[[ms.Store], object]


@pytest.mark.parametrize(
    ("away", "back"),
    [
        (lambda store: store.metalakes.disable("lake"), lambda store: store.metalakes.enable("lake")),
        (lambda store: store.metalakes.drop("lake", cascade=True), lambda store: store.metalakes.restore("lake")),
    ],
    ids=["disabled", "dropped"],
)
def test_jobs_of_a_metalake_that_comes_back_are_seen(sqlite_url: str, away: Act, back: Act) -> None:
    """The server started while the metalake was away: the feed has no change of its jobs."""
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.greet", type="shell", executable="/bin/true")
        job = submit(store, "lake.greet", {})
        away(store)
        queue = Queue(store)
        queue.look()
        assert not list(queue.free({}))

        back(store)
        queue.look()
        assert [free.id for free in queue.free({})] == [job.id]
