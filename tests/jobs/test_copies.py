"""A copy of a database has the original's jobs, and runs none of them until it is told to."""

from __future__ import annotations

import io
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import metastore as ms
from metastore.jobs import WorkerPool, submit
from metastore.kinds.job.run import ENDED
from tests.servers.postgres import Databases, database_of
from tests.servers.process import wait_until

Copy = Callable[[pytest.FixtureRequest, str], str]


def imported(request: pytest.FixtureRequest, url: str, *, ids: bool = False) -> str:
    stream, path = io.BytesIO(), request.getfixturevalue("tmp_path") / "other.db"
    with ms.open(url) as store:
        store.export_to(stream, ids=ids)
    stream.seek(0)
    with ms.open(f"sqlite:///{path}") as store:
        store.import_from(stream)
    return f"sqlite:///{path}"


def restored(request: pytest.FixtureRequest, url: str) -> str:
    return imported(request, url, ids=True)


def beside(request: pytest.FixtureRequest, url: str) -> str:
    """Import it into the same database, in the place of the original."""
    stream = io.BytesIO()
    with ms.open(url) as store:
        store.export_to(stream, "lake")
        store.metalakes.rename("lake", "original")
        for job in store.jobs.list("original"):
            store.jobs.drop(job)
        stream.seek(0)
        store.import_from(stream)
    return url


def copied(request: pytest.FixtureRequest, url: str) -> str:
    path: Path = request.getfixturevalue("tmp_path") / "copy.db"
    shutil.copy(url.removeprefix("sqlite:///"), path)
    return f"sqlite:///{path}"


def from_a_template(request: pytest.FixtureRequest, url: str) -> str:
    databases: Databases = request.getfixturevalue("postgres_databases")
    return databases.create_database(template=database_of(url))


WAYS = [
    *[pytest.param(way, "sqlite_url", id=way.__name__) for way in (imported, restored, beside, copied)],
    pytest.param(from_a_template, "postgres_url", id="from_a_template"),
]


@pytest.mark.parametrize(("copy", "url"), WAYS)
def test_a_copy_runs_none_of_the_originals_jobs(
    request: pytest.FixtureRequest, tmp_path: Path, copy: Copy, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    said, original = tmp_path / "said", request.getfixturevalue(url)
    with ms.open(original) as store:
        store.metalakes.create("lake")
        say = ["-c", f"echo {{{{word}}}} >> {said}"]
        store.job_templates.create("lake.say", type="shell", executable="/bin/sh", arguments=say)
        submit(store, "lake.say", {"word": "queued"})
        began = submit(store, "lake.say", {"word": "began"})
        store.jobs.alter(began, ms.StartJob("job-worker-0", 1, 1))  # the first server in the copy is called so too
    with ms.open(copy(request, original)) as store, caplog.at_level(logging.WARNING, "metastore.jobs"):
        with WorkerPool(store, workers=1):
            submit(store, "lake.say", {"word": "own"})
            assert wait_until(lambda: ended(store) == ["own"], 20.0)
        assert said.read_text().split() == ["own"]
        assert [r.getMessage()[:31] for r in caplog.records] == ["2 jobs that have not ended were"]
        with WorkerPool(store, workers=1, take_over=True):
            assert wait_until(lambda: len(ended(store)) == 3, 20.0)
        assert sorted(said.read_text().split()) == ["began", "own", "queued"]
        assert store.verify() == []


def ended(store: ms.Store) -> list[str]:
    return [job.conf["word"] for job in store.jobs.list("lake") if job.status in ENDED]


def test_jobs_that_were_taken_over_belong_to_the_copy(sqlite_url: str) -> None:
    """A server that dies while it runs one leaves it to the others, whether they take jobs over or not."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        job = store.jobs.create("lake.j", template="t", command={"executable": "true"}, home="elsewhere/1")
        home = submitted_here(store).home
        store.jobs.alter(job, ms.StartJob("dead", 1, 1, home=home))
        with WorkerPool(store):
            assert wait_until(lambda: store.jobs.load(job).status == "succeeded", 20.0)


def submitted_here(store: ms.Store) -> ms.Job:
    store.job_templates.create("lake.t", type="shell", executable="true")
    return submit(store, "lake.t")


def test_an_import_takes_no_progress_of_a_job_back(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        job, stream = submitted_here(store), io.BytesIO()
        store.export_to(stream, "lake")
        store.jobs.alter(job, ms.StartJob("seat", 1, 10))
        stream.seek(0)
        store.import_from(stream, if_exists="replace")
        assert (store.jobs.load(job).status, store.jobs.load(job).worker) == ("started", "seat")
        done = store.jobs.alter(job, ms.FinishJob("seat", 1, 30, "succeeded", 0, "said"))
        stream.seek(0)
        store.import_from(stream, if_exists="replace")
        assert store.jobs.load(job).doc == done.doc
