"""The list of jobs that have not ended, as the change feed keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

import metastore as ms
from metastore.jobs import WorkerPool, submit
from metastore.jobs.queue import Queue
from metastore.kinds.kind import MAX_DOC, to_json
from tests.concurrency.raw import connect
from tests.servers.process import wait_until

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


def test_a_look_that_fails_is_repeated(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue was taken as read, and the jobs that were there before were never run."""
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")
        first = submit(store, "lake.t")
        queue = Queue(store)
        with monkeypatch.context() as patch:
            patch.setattr(type(store.jobs), "list", _away)
            with pytest.raises(ms.BackendUnavailable):
                queue.look()
        queue.look()
        assert first.id in queue
        store.metalakes.disable("lake")
        with monkeypatch.context() as patch:
            patch.setattr(type(store.metalakes), "list", _away)
            with pytest.raises(ms.BackendUnavailable):
                queue.look()
        queue.look()
        assert first.id not in queue


def _away(*_: object, **__: object) -> NoReturn:
    raise ms.BackendUnavailable("the database is away")


def test_a_job_that_cannot_be_started_holds_up_no_other_one(sqlite_url: str) -> None:
    """One that is damaged, and one whose document is full, kept all jobs of all servers from running."""
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")
        damaged = submit(store, "lake.t")
        rest = MAX_DOC - len(to_json({**damaged.doc, "command": {"executable": "true", "arguments": [""]}}))
        full = store.jobs.create("lake.full", template="t", command={"executable": "true", "arguments": ["x" * rest]})
        job = submit(store, "lake.t")
        with connect(sqlite_url) as rows:
            rows.execute("UPDATE entity SET doc = '{' WHERE id = ?", (damaged.id,))
        with WorkerPool(store, workers=1):
            assert wait_until(lambda: store.jobs.load(job).status == "succeeded", 20.0)
        assert store.jobs.load(full).status == "queued"
