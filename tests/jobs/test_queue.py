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


def test_a_queued_job_keeps_its_command_whatever_becomes_of_its_template() -> None:
    """Only the owner of a template drops it. A job of another user waits on, and runs what the template said."""
    with ms.open("memory://", principal="root") as store:
        store.metalakes.create("lake")
        template = store.job_templates.create("lake.t", type="shell", executable="echo", arguments=["{{what}}"])
        role = store.roles.create("lake.runner")
        for word in ("run_job", "use_job_template"):
            store.roles.grant(role, word, "lake", kind="metalake")
        for name in ("ann", "bob"):
            store.roles.assign(role, store.users.create(("lake", name)))
        store.owners.set(template, ("lake", "ann"))
        ann, bob = store.as_user("ann"), store.as_user("bob")
        job = submit(bob, "lake.t", {"what": "hello"})
        with pytest.raises(ms.PermissionDenied):
            bob.job_templates.drop("lake.t")
        assert ann.job_templates.drop("lake.t")
        with pytest.raises(ms.EntityNotFound):
            submit(bob, "lake.t")
        store.job_templates.create("lake.t", type="shell", executable="rm")
        queue = Queue(store)
        queue.look()
        assert [free.id for free in queue.free({})] == [job.id]
        assert bob.jobs.load(job).command == job.command
        assert (job.command["executable"], list(job.command["arguments"])) == ("echo", ["hello"])
        assert bob.jobs.cancel(job).status == "cancelled"
        assert store.verify() == []
