"""A backup that is put back in place: a consumer whose position was lost with it is told so, the others go on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psycopg
import pytest

import metastore as ms
from tests.progress.replica import Replica, primary
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer, database_of
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)


class Sqlite:
    """Copies the file there and back."""

    def __init__(self, url: str) -> None:
        self.url, self._path = url, Path(url.removeprefix("sqlite:///"))
        self._copy = self._path.with_suffix(".backup")

    def back_up(self) -> None:
        shutil.copy(self._path, self._copy)

    def put_back(self) -> None:
        shutil.copy(self._copy, self._path)

    @contextmanager
    def open(self) -> Iterator[Callable[[], ms.Store]]:
        """Give the store of a program that closes it while the file is copied, and opens it again."""
        with ExitStack() as stack:
            yield lambda: stack.enter_context(ms.open(self.url))


class Postgres:
    """Copies the data directory of a server of its own there and back, while it is stopped."""

    def __init__(self, server: PostgresServer) -> None:
        self.url, self._server = server.create_database(), server
        self._copy = server.data.with_name("backup")
        ms.migrate(self.url)

    def through(self, pooler: PgBouncer) -> Self:
        """Use it through a pooler, which hides that the server was started again."""
        self.url = pooler.url(database_of(self.url))
        return self

    def back_up(self) -> None:
        self._swap(self._server.data, self._copy)

    def put_back(self) -> None:
        self._swap(self._copy, self._server.data)

    @contextmanager
    def open(self) -> Iterator[Callable[[], ms.Store]]:
        """Give the store of a program that stays open meanwhile."""
        with ms.open(self.url, cache=ms.Cache("validate")) as store:
            yield lambda: store

    def _swap(self, source: Path, target: Path) -> None:
        self._server.halt()
        subprocess.run(["rm", "-rf", target], check=True)
        subprocess.run(["cp", "-a", source, target], check=True)
        self._server.start()
        assert wait_until(self._answers, 60.0)  # a pooler that could not log in meanwhile refuses for a moment

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url.replace("+psycopg", "", 1)) as connection:
                connection.execute("SELECT 1")  # a pooler takes a client before it has logged in itself
        except psycopg.OperationalError:
            return False
        return True


_SERVER = pytest.mark.postgres


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_SERVER)])
def place(request: pytest.FixtureRequest) -> Iterator[Sqlite | Postgres]:
    """Give a database, and a way to put an older state of it back."""
    if request.param == "sqlite":
        yield Sqlite(request.getfixturevalue("sqlite_url"))
        return
    with PostgresServer() as server, ExitStack() as stack:
        place = Postgres(server)
        yield place if request.param == "postgres" else place.through(stack.enter_context(PgBouncer(server)))


def create(url: str, *names: str) -> list[str]:
    """Create metalakes; return the position of each."""
    with ms.open(url) as store:
        for name in names:
            store.metalakes.create(name)
        positions = {change.path_after: change.position for change in store.changes()}
        return [positions[name] for name in names]


def test_what_was_lost_is_told_at_once(place: Sqlite | Postgres) -> None:
    (kept,) = create(place.url, "kept")
    place.back_up()
    lost = create(place.url, "lost", "too")
    place.put_back()
    with ms.open(place.url) as store:
        for position in lost:
            with pytest.raises(ms.InvalidArgument, match=r"restored from an older backup; read the tables again"):
                store.changes(after=position)
        assert list(store.changes(after=kept)) == []


def test_what_was_lost_is_told_when_others_have_its_numbers(place: Sqlite | Postgres) -> None:
    (kept,) = create(place.url, "kept")
    place.back_up()
    lost = create(place.url, "lost", "too")
    place.put_back()
    new = create(place.url, "new", "newer", "newest")
    assert [p.rpartition("-")[2][:16] for p in lost] == [p.rpartition("-")[2][:16] for p in new[:2]]
    with ms.open(place.url) as store:
        for position in lost:
            with pytest.raises(ms.InvalidArgument, match="restored"):
                store.changes(after=position)
        assert [change.path_after for change in store.changes(after=kept)] == ["new", "newer", "newest"]
        assert [change.path_after for change in store.changes(after=new[0])] == ["newer", "newest"]


def run_of(entity: ms.Entity) -> str | None:
    assert entity.origin is not None
    return entity.origin.run


def check_first_writes(held: list[tuple[ms.Store, ms.Metalake, ms.Metalake]]) -> None:
    """Check the first changes of stores that have only read: each asks for members of the cache before it sends."""
    for number, (store, base, gone) in enumerate(held):
        if number == 0:
            assert dict(store.metalakes.alter(base, ms.SetProperty("new", "yes")).properties) == {"new": "yes"}
            continue
        if number == 1:  # what has the id by now is hot: its changes are announced at once
            store._session.hot.note(gone.id)
        with pytest.raises(ms.EntityNotFound):
            store.metalakes.alter(gone, ms.SetComment("z"))


@pytest.mark.parametrize(
    "place",
    ["sqlite", pytest.param("postgres", marks=_SERVER), pytest.param("pooled", marks=_SERVER)],
    indirect=True,
)
def test_an_entity_from_before_is_no_base(place: Sqlite | Postgres) -> None:
    """Its id and version may be another entity's, or another state's: the change lands on what is there, or fails."""
    with ms.open(place.url) as store:
        store.metalakes.create("kept")
        store.catalogs.create("kept.c", type="relational")
    place.back_up()
    with place.open() as opened, ExitStack() as quiet:
        store = opened()
        kept = store.metalakes.alter("kept", ms.SetProperty("lost", "yes"))
        lost = store.metalakes.create("lost")
        scope = store.schemas.create("kept.c.lost")
        store.tables.create("kept.c.lost.t")
        with store.transaction() as tx:
            drafted = tx.metalakes.create("drafted")
        stores = [quiet.enter_context(ms.open(place.url)) for _ in range(3 if isinstance(place, Postgres) else 0)]
        held = [(one, one.metalakes.load("kept"), one.metalakes.load("lost")) for one in stores]
        if isinstance(place, Sqlite):
            store.close()
        with ExitStack() as block:
            if isinstance(place, Postgres):
                block.enter_context(pytest.raises(ms.VersionConflict, match="was started again"))
                tx = block.enter_context(store.transaction())
                assert list(tx.metalakes.names()) == ["drafted", "kept", "lost"]
            place.put_back()
            with ms.open(place.url) as other:
                there = other.metalakes.alter("kept", ms.SetProperty("new", "yes"))
                names = [other.metalakes.create(name) for name in ("new", "newer")]
                schema = other.schemas.create("kept.c.new")
                other.schemas.create("kept.c.newest")
        assert (there.id, there.version, names[0].id) == (kept.id, kept.version, lost.id)
        check_first_writes(held)
        store = opened()
        with pytest.raises(ms.VersionConflict, match="an older backup was restored"):
            store.metalakes.alter(kept, ms.SetComment("x"), expected_version=kept.version)
        assert dict(store.metalakes.alter(kept, ms.SetComment("x")).properties) == {"new": "yes"}
        with pytest.raises(ms.EntityNotFound):
            store.metalakes.alter(lost, ms.SetComment("y"))
        with pytest.raises(ms.EntityNotFound):
            store.metalakes.rename(lost, "y")
        assert not store.metalakes.drop(lost)
        assert not store.metalakes.purge(lost)
        with pytest.raises(ms.EntityNotFound):
            store.tables.create("t", parent=scope)
        with pytest.raises(ms.EntityNotFound):
            store.tables.create("kept.c.lost.t")
        assert store.metalakes.load("new").comment is None
        assert run_of(store.metalakes.load("new")) != run_of(kept)
        assert list(store.tables.names(schema)) == []
        assert store.verify() == []
        assert drafted.id  # its times are not the database's: it is told by its kind alone


def test_positions_of_programs_before(url: str) -> None:
    """They say nothing of the operation, and are accepted as ever."""
    first, second = create(url, "first", "second")
    with ms.open(url) as store:
        assert [change.position for change in store.changes(after=first[:-8])] == [second]
        for wrong in (first[:-1], first[:-9], first + "0"):
            with pytest.raises(ms.InvalidArgument):
                store.changes(after=wrong)


def test_a_replica_that_is_behind_is_no_backup() -> None:
    """It does not have the change yet; after it has taken the primary's place, positions go on as they were."""
    with primary() as first:
        url = first.create_database()
        ms.migrate(url)
        create(url, "before")
        with Replica(first) as replica:
            there = replica.url(database_of(url))
            with psycopg.connect(replica.dsn(), autocommit=True) as connection:
                connection.execute("SELECT pg_wal_replay_pause()")
                paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
                assert wait_until(lambda: connection.execute(paused).fetchone() == (True,), 30)
                seen, _ = create(url, "seen", "unseen")
                with ms.open(there) as store:
                    assert [change.path_after for change in store.changes()] == ["before"]
                    assert list(store.changes(after=seen)) == []
                connection.execute("SELECT pg_wal_replay_resume()")
            replica.promote()
            with ms.open(there) as store:
                assert [change.path_after for change in store.changes(after=seen)] == ["unseen"]
