"""Field cases 52, 53: a holder that was stopped past its time, and goes on, changes nothing and is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import metastore as ms
from tests.concurrency.checks import violations
from tests.concurrency.raw import is_sqlite, rows
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import NOTHING_TO_WRITE, WORK, S, furnish, picture, work_of
from tests.leases.late import Late, taken_over
from tests.servers.postgres import Databases, database_of

TTL = 20.0


@pytest.fixture
def furnished(url: str) -> str:
    with ms.open(url) as store:
        furnish(store)
    return url


@pytest.fixture
def late(furnished: str) -> Iterator[Late]:
    with Late(furnished) as process:
        yield process


@pytest.mark.each_run_on("postgres")
def test_whatever_it_was_about_to_write(late: Late, url: str) -> None:
    """Stopped between its own check and its commit. The new holder writes something else: only the token is in the way.

    Every kind of mutation, and those that would write nothing.
    """
    with ms.open(url, principal="next") as store:
        for what in WORK | NOTHING_TO_WRITE:
            late.begin("commit", what, TTL, work_of(what))
            with taken_over(store, what) as lease:
                assert lease.token == 2, what
                store.tables.alter(f"{S}.other", ms.SetComment(what), lease=lease)
                before = picture(url)
                said = late.go_on()
                assert picture(url) == before, what
                assert (said.error, said.lost, said.told, said.released) == ("LeaseLost", True, 1, False), (what, said)
                assert "(token 1)" in said.text
                holder = store.leases.holder(what)
                assert holder is not None
                assert (holder.token, holder.owner) == (2, "the next")
    assert rows(url, "SELECT id FROM guard WHERE mark IS NOT NULL") == []
    assert late_commits(url) == []
    assert violations(url) == []


def _stage_one(store: ms.Store, lease: ms.Lease) -> None:
    lease.stage(store.tables.load(f"{S}.t"), "metadata_location", "s3://late/v2.json")


def _stage_and_publish(store: ms.Store, lease: ms.Lease) -> None:
    table, other = store.tables.load(f"{S}.t"), store.tables.load(f"{S}.other")
    lease.stage(table, "metadata_location", "s3://late/v3.json")
    lease.stage(other, "metadata_location", "s3://late/v4.json")
    lease.publish({table: [ms.SetComment("late")], other: [ms.SetComment("late")]})


@pytest.mark.one_in(4, on="postgres")
@pytest.mark.parametrize("point", ["leases.stage", "leases.staged", "by_id", "commit"])
def test_what_it_staged_is_never_seen(late: Late, url: str, point: str) -> None:
    """Stopped before it stages, in the middle of publishing, before the commit: gc hands over what it had produced."""
    work = _stage_one if point == "leases.stage" else _stage_and_publish
    with ms.open(url, principal="next") as store:
        late.begin(point, "work", TTL, work)
        with taken_over(store, "work") as lease:
            table = store.tables.load(f"{S}.t")
            lease.stage(table, "metadata_location", "s3://next/v2.json")
            said = late.go_on()
            assert (said.error, said.lost, said.released) == ("LeaseLost", True, False)
            assert "metadata_location" not in store.tables.load(f"{S}.t").properties
            lease.publish()
            found = store.tables.load(f"{S}.t")
            assert (found.properties["metadata_location"], found.comment) == ("s3://next/v2.json", None)
            kept: list[ms.LeftBehind] = []
            store.gc(clean_up=kept.append)
            values = [] if work is _stage_one else ["s3://late/v3.json", "s3://late/v4.json"]
            assert sorted(left.value for left in kept) == values  # not what was published
            assert {(left.lease, left.token, left.principal) for left in kept} == (
                {("work", 1, "late")} if kept else set()
            )
        again: list[ms.LeftBehind] = []
        store.gc(clean_up=again.append)
        assert again == []
        assert store.tables.load(f"{S}.t").properties["metadata_location"] == "s3://next/v2.json"
    assert late_commits(url) == []
    assert rows(url, "SELECT * FROM staged") == []


@pytest.fixture
def copy(furnished: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Give a way to copy the furnished database."""
    made: list[str] = []

    def sqlite() -> str:
        made.append(str(tmp_path / f"copy{len(made)}.db"))
        shutil.copy(furnished.removeprefix("sqlite:///"), made[-1])
        return f"sqlite:///{made[-1]}"

    def postgres() -> str:
        made.append(databases.create_database(template=database_of(furnished)))
        return made[-1]

    if is_sqlite(furnished):
        yield sqlite
        return
    databases: Databases = request.getfixturevalue("postgres_databases")
    yield postgres
    for one in made:
        databases.drop_database(one)


def test_it_is_written_under_a_lease_that_holds(copy: Callable[[], str]) -> None:
    """The control: what is refused above is refused for its token. And the trail shows all of it."""
    for what, work in WORK.items():
        with ms.open(url := copy(), principal="holder") as store:
            before = picture(url)
            with store.leases.acquire("work") as lease:
                work(store, lease)
            assert picture(url) != before, what
            trail = [(event.action, event.token) for event in store.leases.audit("work")]
            assert (trail[0], trail[-1]) == (("acquire", 1), ("release", 2))
            assert set(trail[1:-1]) == {("commit", 1)}, what
    for what, work in NOTHING_TO_WRITE.items():
        with ms.open(copy()) as store, store.leases.acquire("work") as lease:
            work(store, lease)
            assert [event.action for event in store.leases.audit("work")] == ["acquire"], what
