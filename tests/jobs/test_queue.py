"""The list of jobs that have not ended, as the change feed keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_a_job_needs_the_template_that_it_names() -> None:
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")
        with pytest.raises(ms.EntityNotFound, match=r"lake\.none does not exist"):
            store.jobs.create("lake.j", template="none")
        with pytest.raises(ms.EntityNotFound, match=r"lake\.none does not exist"):
            store.jobs.create_many("lake", [{"name": "a", "template": "t"}, {"name": "b", "template": "none"}])
        assert list(store.jobs.names("lake")) == []
        assert store.jobs.create_many("lake", [{"name": "a", "template": "t"}]) == 1


def test_a_job_that_is_there_needs_its_template_no_more() -> None:
    """To create many again, as after an error, failed once a template of the first time was dropped."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        for name in ("t", "u"):
            store.job_templates.create(("lake", name), type="shell", executable="true")
        rows = [{"name": "a", "template": "t"}, {"name": "b", "template": "u"}]
        store.jobs.create_many("lake", rows[:1])
        store.job_templates.drop("lake.t")
        assert store.jobs.create_many("lake", rows, if_exists="return") == 1
        assert store.jobs.create_many("lake", rows, if_exists="return") == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda store: store.jobs.create("lake.j", template="t"),
        lambda store: store.jobs.create_many("lake", [{"name": "j", "template": "t"}]),
    ],
    ids=["one", "many"],
)
def test_a_job_is_not_made_after_the_drop_of_its_template(make: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")
        commit, backend = store._session.backend.commit, store._session.backend

        def beside(*given: Any, **more: Any) -> Any:
            monkeypatch.setattr(backend, "commit", commit)
            store.job_templates.drop("lake.t")
            return commit(*given, **more)

        monkeypatch.setattr(backend, "commit", beside)
        with pytest.raises(ms.EntityNotFound, match=r"lake\.t does not exist"):
            make(store)
        assert list(store.jobs.names("lake")) == []
