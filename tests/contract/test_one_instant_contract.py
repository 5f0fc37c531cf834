"""An error, and a result that no commit checks, rest on one instant, even if they need two reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

import metastore as ms
from metastore.port.backend import Backend
from tests.contract.ground import Ground, interrupted


class Between:
    """A backend that lets others act right before the n-th call of a method."""

    def __init__(self, backend: Backend, method: str, number: int, action: Callable[[], object]) -> None:
        self._backend = backend
        self._method = method
        self._left = number
        self._action = action

    def in_one_go(self, work: Callable[[], Any], *, for_many: bool = False) -> Any:
        """Work in the caller's task: what the test does in between may call the store, whose only thread is free."""
        return work()

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._left -= 1
            if self._left == 0:
                self._action()
        return getattr(self._backend, name)


@contextmanager
def between(ground: Ground, method: str, number: int, action: Callable[[], object]) -> Iterator[None]:
    """Call ``action`` right before the store's n-th call of ``method``."""
    session, backend = ground.store._session, ground.backend
    acted = list[bool]()

    def act() -> None:
        acted.append(True)
        session.backend = backend
        action()
        session.backend = ours

    session.backend = ours = cast(Backend, Between(backend, method, number, act))
    try:
        yield
    finally:
        session.backend = backend
    assert acted == [True]


@pytest.fixture
def another(ground: Ground) -> ms.Schema:
    """Give an empty schema ``m.c.another``, which takes the place of ``m.c.two``."""
    return ground.store.schemas.create("m.c.another")


def swap(ground: Ground) -> None:
    """Let ``m.c.two`` be another schema, in one commit; put a table into the one that it was."""
    with ground.store.transaction() as tx:
        tx.schemas.rename("m.c.two", "away")
        tx.schemas.rename("m.c.another", "two")
    ground.store.tables.create("m.c.away.t")


def drop_again(ground: Ground) -> ms.Schema:
    """Drop another schema of the name that was dropped already; return it."""
    schema = ground.store.schemas.create("m.c.old")
    ground.store.schemas.drop(schema)
    return schema


class TestRestore:
    @pytest.mark.parametrize("to", [None, "older"])
    def test_the_newest_at_the_commit(self, ground: Ground, to: str | None) -> None:
        dropped = list[ms.Schema]()
        with interrupted(ground.store, lambda: dropped.append(drop_again(ground))):
            assert ground.store.schemas.restore("m.c.old", to=to).id == dropped[0].id
        assert [s.id for s in ground.store.schemas.dropped("m.c")] == [ground.old.id]
        assert ground.store.verify() == []

    def test_the_newest_metalake(self, ground: Ground) -> None:
        metalakes = ground.store.metalakes
        metalakes.drop(metalakes.create("gone"))
        with interrupted(ground.store, lambda: metalakes.drop(metalakes.create("gone"))):
            back = metalakes.restore("gone")
        (older,) = metalakes.dropped()
        assert older.id < back.id

    def test_one_that_is_meant_by_its_id(self, ground: Ground) -> None:
        with interrupted(ground.store, lambda: drop_again(ground)):
            assert ground.store.schemas.restore("m.c.old", id=ground.old.id).id == ground.old.id

    def test_at_each_instant_something_was_dropped_there(self, ground: Ground, another: ms.Schema) -> None:
        store = ground.store
        first, second = (store.tables.create("t", parent=schema) for schema in (ground.two, another))
        for table in (first, second):
            store.tables.drop(table)

        def swap_and_purge() -> None:
            with store.transaction() as tx:
                tx.schemas.rename("m.c.two", "away")
                tx.schemas.rename("m.c.another", "two")
            store.tables.purge(next(store.tables.dropped("m.c.away")))

        with between(ground, "gone", 1, swap_and_purge):
            assert store.tables.restore("m.c.two.t").id == second.id


class TestPurge:
    def test_what_the_path_led_to_was_never_full(self, ground: Ground, another: ms.Schema) -> None:
        with between(ground, "has_children", 1, lambda: swap(ground)):
            assert ground.store.schemas.purge("m.c.two") is True
        assert ground.store.schemas.load("m.c.away").id == ground.two.id
        assert [s.name for s in ground.store.schemas.list("m.c")] == ["away", "one"]

    def test_by_an_entity(self, ground: Ground) -> None:
        """The entity is that one, wherever it is: it was moved and then filled, hence it was full."""
        store = ground.store

        def move_and_fill() -> None:
            store.schemas.rename("m.c.two", "m.c.one.two")
            store.tables.create("m.c.one.two.t")

        with (
            between(ground, "has_children", 1, move_and_fill),
            pytest.raises(ms.NotEmpty, match=r"m\.c\.one\.two is not empty"),
        ):
            store.schemas.purge(ground.two)


class TestCreateMany:
    @pytest.mark.parametrize("if_exists", ["error", "replace"])
    def test_a_name_that_was_never_taken(self, ground: Ground, another: ms.Schema, if_exists: Any) -> None:
        """The path leads to a schema without the table at each instant."""
        with between(ground, "resolve", 2, lambda: swap(ground)):
            written = ground.store.tables.create_many("m.c.two", [{"name": "t"}], if_exists=if_exists)
        assert written == 1
        assert ground.store.tables.load("m.c.two.t").record.chain[-2].id == another.id

    def test_what_is_equal_already_is_there(self, ground: Ground, another: ms.Schema) -> None:
        with between(ground, "resolve", 2, lambda: swap(ground)):
            rows: list[dict[str, Any]] = [{"name": "t", "comment": None}]
            assert ground.store.tables.create_many("m.c.two", rows, if_exists="replace") == 1
        assert [t.path for t in ground.store.tables.list("m.c.two")] == ["m.c.two.t"]


class TestMove:
    def test_to_where_it_never_was(self, ground: Ground, another: ms.Schema) -> None:
        """The old path before a swap and the new one after it lead to one schema, but at each instant to two."""
        store = ground.store
        table = store.tables.create("t", parent=ground.two)

        def swap_names() -> None:
            with store.transaction() as tx:
                tx.schemas.rename("m.c.two", "away")
                tx.schemas.rename("m.c.another", "two")
                tx.schemas.rename("m.c.away", "another")

        with between(ground, "resolve", 2, swap_names), pytest.raises(ms.EntityNotFound):
            store.tables.rename("m.c.two.t", "m.c.another.t")
        assert store.tables.load("m.c.another.t").id == table.id
        assert store.tables.rename("m.c.another.t", "m.c.two.t").path == "m.c.two.t"


class TestWhatIsEqualAlready:
    """It is not written, and yet holds at the instant of the commit: another client makes a step in between."""

    def test_create_many(self, ground: Ground) -> None:
        tables = ground.store.tables
        rows: list[dict[str, Any]] = [{"name": "t", "comment": None}, {"name": "new", "comment": "ours"}]
        with between(ground, "commit", 1, lambda: tables.alter("m.c.one.t", ms.SetComment("theirs"))):
            assert tables.create_many("m.c.one", rows, if_exists="replace") == 1 + 1
        assert tables.load("m.c.one.t").comment is None

    def test_create_many_and_a_drop(self, ground: Ground) -> None:
        tables = ground.store.tables
        rows: list[dict[str, Any]] = [{"name": "t", "comment": None}, {"name": "new", "comment": "ours"}]
        with between(ground, "commit", 1, lambda: tables.drop("m.c.one.t")):
            assert tables.create_many("m.c.one", rows, if_exists="replace") == 1 + 1
        assert tables.exists("m.c.one.t")

    def test_put_many(self, ground: Ground) -> None:
        partitions = ground.store.partitions
        row, other = partitions.row("p", {}, {}), partitions.row("p", {}, {"k": "theirs"})
        with between(ground, "commit", 1, lambda: partitions.put_many(ground.table, [other])):
            assert partitions.put_many(ground.table, [row, partitions.row("new", {}, {})]) == 1 + 1
        assert partitions.load(ground.table, "p").properties == {}

    def test_put_many_and_what_was_not_there_to_drop(self, ground: Ground) -> None:
        partitions = ground.store.partitions
        rows = [partitions.row("new", {}, {})]
        with between(ground, "commit", 1, lambda: partitions.create(ground.table, "gone", values={})):
            assert partitions.put_many(ground.table, rows, drop=["gone"]) == 1 + 1
        assert list(partitions.names(ground.table)) == ["new", "p"]

    def test_of_one_name_twice_the_last_counts(self, ground: Ground) -> None:
        partitions = ground.store.partitions
        rows = [partitions.row("p", {}, {"k": value}) for value in ("first", "last")]
        assert partitions.put_many(ground.table, rows) == 1
        assert partitions.load(ground.table, "p").properties == {"k": "last"}
        two = [{"name": "t", "comment": value} for value in ("first", "last")]
        assert ground.store.tables.create_many("m.c.one", two, if_exists="replace") == 1
        assert ground.store.tables.load("m.c.one.t").comment == "last"

    def test_what_is_no_row(self, ground: Ground) -> None:
        for rows in ([{"name": "p"}], [None], None, "ab"):
            with pytest.raises(ms.InvalidArgument):
                ground.store.partitions.put_many(ground.table, rows)  # type: ignore[arg-type]


class TestModels:
    def test_a_version_that_was_never_so(self, ground: Ground) -> None:
        """The path leads to a model whose version has the property at each instant."""
        store = ground.store
        for name, value in (("one", "1"), ("two", "1")):
            store.models.create(f"m.c.one.{name}")
            store.models.add_version(f"m.c.one.{name}", uris={"u": "s3://x"}, properties={"k": value})

        def swap_models() -> None:
            with store.transaction() as tx:
                tx.models.rename("m.c.one.one", "away")
                tx.models.rename("m.c.one.two", "one")
            store.models.alter_version("m.c.one.away", 1, ms.SetProperty("k", "2"))

        with between(ground, "owned_by_name", 1, swap_models):
            change = ms.SetProperty("k", "3", expected="1")
            assert store.models.alter_version("m.c.one.one", 1, change).properties["k"] == "3"


class TestCreate:
    def test_what_is_there_is_returned_with_a_path_that_is_true(self, ground: Ground) -> None:
        with between(ground, "resolve", 1, lambda: ground.store.schemas.rename("m.c.one", "uno")):
            found = ground.store.tables.create("t", parent=ground.one, if_exists="return")
        assert (found.id, found.path) == (ground.table.id, "m.c.uno.t")
