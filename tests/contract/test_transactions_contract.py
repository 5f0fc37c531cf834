"""What every store promises of transactions: one commit, its own writes seen, every read validated."""

# ruff: noqa: PT012  (what raises is the end of the block)

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import metastore as ms
from metastore.operation.tickets import running
from tests.contract.ground import Ground


def comment(text: str) -> ms.SetComment:
    return ms.SetComment(text)


class TestOwnWrites:
    def test_seen_inside_and_only_there(self, ground: Ground) -> None:
        store, before = ground.store, ground.dump()
        with store.transaction() as tx:
            made = tx.tables.create("m.c.two.new", comment="1")
            assert tx.tables.load("m.c.two.new") == made
            assert tx.tables.alter(made, comment("2")).version == 2
            assert tx.tables.alter("m.c.one.t", comment("3")).version == 2
            assert tx.tables.load("m.c.one.t").comment == "3"
            assert tx.tables.exists("m.c.two.new")
            assert list(tx.tables.names("m.c.two")) == ["new"]
            assert [t.comment for t in tx.tables.list("m.c.two")] == ["2"]
            assert tx.schemas.drop("m.c.old") is False
            assert tx.schemas.rename("m.c.one", "uno").path == "m.c.uno"
            assert list(tx.schemas.names("m.c")) == ["two", "uno"]
            assert tx.tables.load("m.c.uno.t").comment == "3"
            assert tx.tables.load(ground.table).path == "m.c.uno.t"
            assert not tx.tables.exists("m.c.one.t")
            assert ground.dump() == before, "nothing is sent before the end"
        assert store.tables.load("m.c.two.new").comment == "2"
        assert store.tables.load("m.c.uno.t").comment == "3"

    def test_a_listing_shows_what_was_written_since_it_was_read(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            assert list(tx.tables.names("m.c.two")) == []
            made = tx.tables.create("m.c.two.new")
            assert list(tx.tables.names("m.c.two")) == ["new"]
            tx.tables.alter(made, comment("later"))
            assert [t.comment for t in tx.tables.list("m.c.two")] == ["later"]
            tx.tables.drop(made)
            assert list(tx.tables.names("m.c.two")) == []
            assert [t.name for t in tx.tables.dropped("m.c.two")] == ["new"]

    def test_one_operation(self, ground: Ground) -> None:
        count = len(list(ground.store.changes()))
        with ground.store.transaction(principal="alice") as tx:
            table = tx.tables.create("m.c.two.new")
            tx.tables.alter(table, comment("1"))
            tx.tables.alter(table, comment("2"))
            tx.schemas.rename("m.c.two", "due")
            tx.partitions.create(table, "q", values={})
            tx.partitions.drop(ground.table, "p")
        changes = list(ground.store.changes())[count:]
        assert [(c.kind, c.action, c.version, c.path_before, c.path_after) for c in changes] == [
            ("table", "create", 1, None, "m.c.two.new"),
            ("table", "alter", 2, "m.c.two.new", "m.c.two.new"),
            ("table", "alter", 3, "m.c.two.new", "m.c.two.new"),
            ("schema", "rename", 2, "m.c.two", "m.c.due"),
            ("partition", "create", 1, None, "m.c.due.new.q"),
            ("partition", "drop", 2, "m.c.one.t.p", None),
        ]
        assert len({c.operation_id for c in changes}) == 1
        assert {c.principal for c in changes} == {"alice"}
        assert [v.version for v in ground.store.tables.history("m.c.due.new")] == [1, 2, 3]

    def test_names_change_hands(self, ground: Ground) -> None:
        """Swapped, given up and taken again, in the order in which it was said."""
        with ground.store.transaction() as tx:
            tx.schemas.rename("m.c.one", "tmp")
            tx.schemas.rename("m.c.two", "one")
            tx.schemas.rename("m.c.tmp", "two")
            new = tx.tables.create("m.c.one.t")
            tx.tables.drop("m.c.two.t")
            tx.tables.create("m.c.two.t", comment="again")
        assert ground.store.schemas.load("m.c.one").id == ground.two.id
        assert ground.store.schemas.load("m.c.two").id == ground.one.id
        assert ground.store.tables.load("m.c.one.t").id == new.id
        assert ground.store.tables.load("m.c.two.t").comment == "again"
        assert [v.version for v in ground.store.schemas.history(ground.one)] == [1, 2, 3]

    def test_trees(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            tx.tables.create("m.c.a.b.t", parents=True)
            with pytest.raises(ms.NotEmpty):
                tx.schemas.drop("m.c.one")
            tx.tables.rename("m.c.one.t", "m.c.a.b.u")
            assert tx.schemas.drop("m.c.one")
            assert tx.tables.drop("m.c.a.b.t")
            assert tx.tables.create_many("m.c.a", [{"name": "x"}, {"name": "y"}]) == 2
            assert tx.schemas.restore("m.c.old").version == 3
            assert tx.schemas.drop("m.c.two", cascade=True)
            with pytest.raises(ms.EntityNotFound):
                tx.tables.create("m.c.two.t")
        assert list(ground.store.schemas.names("m.c")) == ["a", "old"]
        assert list(ground.store.tables.names("m.c.a")) == ["x", "y"]
        assert list(ground.store.tables.names("m.c.a.b")) == ["u"]

    def test_what_was_written_in_a_folding_catalog_is_found_by_any_spelling(self, ground: Ground) -> None:
        ground.store.catalogs.create("m.Folds", type="relational", fold_case=True)
        table = ground.store.tables.create("m.Folds.Straße.Orders", parents=True)
        with ground.store.transaction() as tx:
            tx.tables.alter(table, ms.SetComment("1"))
            tx.schemas.alter("m.Folds.Straße", ms.SetComment("2"))
            assert tx.tables.load("m.Folds.STRASSE.orders").comment == "1"
            assert tx.schemas.load("m.Folds.strasse").comment == "2"
            with pytest.raises(ms.EntityAlreadyExists):
                tx.schemas.create("m.Folds.STRASSE")
            assert tx.tables.drop("m.Folds.STRASSE.ORDERS")
            assert not tx.tables.exists("m.Folds.Straße.Orders")
        assert list(ground.store.tables.names("m.Folds.Straße")) == []

    def test_owned_rows_have_the_version_that_they_get(self, ground: Ground) -> None:
        store = ground.store
        model = store.models.create("m.c.one.model")
        number = store.models.add_version(model, uris={"default": "s3://a"}).number
        with store.transaction() as tx:
            made = tx.partitions.create(ground.table, "q", values={})
            altered = tx.models.alter_version(model, number, ms.SetComment("1"))
            again = tx.models.alter_version(model, number, ms.SetComment("2"))
        assert [made.version, altered.version, again.version] == [1, 2, 3]
        assert store.partitions.load(ground.table, "q").version == 1
        assert store.models.load_version(model, number).version == 3

    def test_owned_rows(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            tx.partitions.create("m.c.one.t", "q", values={"a": "b"})
            with pytest.raises(ms.EntityAlreadyExists):
                tx.partitions.create("m.c.one.t", "q", values={})
            assert list(tx.partitions.names("m.c.one.t")) == ["p", "q"]
            assert tx.partitions.drop("m.c.one.t", "p")
            assert list(tx.partitions.names("m.c.one.t")) == ["q"]
            tx.statistics.put_many("m.c.one.t", [tx.statistics.row("s", {"n": 1})])
        assert list(ground.store.partitions.names("m.c.one.t")) == ["q"]
        assert ground.store.statistics.load("m.c.one.t", "s").values == {"n": 1}

    def test_an_error_writes_nothing(self, ground: Ground) -> None:
        before = ground.dump()
        with pytest.raises(KeyError), ground.store.transaction() as tx:
            tx.tables.create("m.c.two.new")
            raise KeyError
        with pytest.raises(ms.EntityAlreadyExists), ground.store.transaction() as tx:
            tx.tables.create("m.c.two.new")
            tx.tables.create("m.c.one.t")
        with ground.store.transaction():
            pass
        assert ground.dump() == before

    def test_over(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            tx.tables.create("m.c.two.new")
        with pytest.raises(ms.InvalidArgument):
            tx.tables.create("m.c.two.newer")


class TestBelowADroppedAncestor:
    @pytest.fixture
    def gone(self, ground: Ground) -> Ground:
        """The ground, of which only the metalake is left; everything else is in hand."""
        ground.store.catalogs.drop("m.c", cascade=True)
        return ground

    def test_alter(self, gone: Ground) -> None:
        with gone.store.transaction() as tx, pytest.raises(ms.EntityNotFound):
            tx.tables.alter(gone.table, comment("x"))

    def test_create(self, gone: Ground) -> None:
        with gone.store.transaction() as tx, pytest.raises(ms.EntityNotFound):
            tx.tables.create("orphan", parent=gone.one)

    def test_drop(self, gone: Ground) -> None:
        with gone.store.transaction() as tx:
            assert tx.schemas.drop(gone.two) is False


class TestRun:
    def test_again_after_a_conflict(self, ground: Ground) -> None:
        calls: list[int] = []

        def add(tx: Any) -> str:
            table = tx.tables.load("m.c.one.t")
            calls.append(table.version)
            if len(calls) < 3:
                ground.store.tables.alter("m.c.one.t", ms.SetProperty("n", str(len(calls))))
            tx.tables.alter(table, comment(f"after {table.properties.get('n')}"))
            return f"done {len(calls)}"

        assert ground.store.run(add) == "done 3"
        assert calls == [1, 2, 3]
        table = ground.store.tables.load("m.c.one.t")
        assert (table.version, table.comment, table.properties) == (4, "after 2", {"n": "2"})

    def test_over_a_listing_it_runs_twice_beside_those_who_create(self, ground: Ground) -> None:
        """A listing has no row for a ticket: its scope is marked."""
        store, seen = ground.store, list[int]()

        def theirs() -> None:
            mine = running.set(None)  # as another caller: a call of the function takes the function's mark away
            with suppress(ms.DeadlineExceeded, ms.ScopeFrozen):
                store.tables.create(f"m.c.one.n{len(seen)}", deadline=0.03)
            running.reset(mine)

        def count(tx: Any) -> None:
            seen.append(len(list(tx.tables.names("m.c.one"))))
            theirs()
            tx.schemas.alter("m.c.two", comment(str(seen[-1])))

        store.run(count)
        assert seen == [1, 2]
        assert store.schemas.load("m.c.two").comment == "2"

    def test_what_it_raises(self, ground: Ground) -> None:
        before = ground.dump()

        def fail(tx: Any) -> None:
            tx.tables.create("m.c.two.new")
            raise KeyError

        with pytest.raises(KeyError):
            ground.store.run(fail)
        with pytest.raises(ms.EntityAlreadyExists):
            ground.store.run(lambda tx: tx.tables.create("m.c.one.t"))
        assert ground.dump() == before

    @pytest.mark.parametrize("error", [KeyError, ms.InvalidArgument])
    def test_its_error_rests_on_one_instant(self, ground: Ground, error: type[Exception]) -> None:
        """A transaction writes two entities; a function that reads one before it and one after it runs again."""
        store, seen = ground.store, list[tuple[str | None, str | None]]()

        def write_both(tx: Any) -> None:
            tx.tables.alter("m.c.one.t", comment("1"))
            tx.schemas.alter("m.c.two", comment("1"))

        def compare(tx: Any) -> None:
            before = tx.tables.load("m.c.one.t").comment
            if not seen:
                store.run(write_both)
            seen.append((before, tx.schemas.load("m.c.two").comment))
            raise error(seen[-1])

        with pytest.raises(error) as raised:
            store.run(compare)
        assert seen[-1] == ("1", "1")
        assert raised.value.args[0] == seen[-1]
        assert len(seen) == 2

    def test_one_that_raises_writes_nothing(self, ground: Ground) -> None:
        """Not even the scope version that a change of rights counts up."""
        store, user = ground.store, ground.store.users.create(("m", "ann"))
        role = store.roles.create("m.reader")

        def fail(tx: Any) -> None:
            tx.roles.assign(role, user)
            raise KeyError

        with pytest.raises(KeyError):
            store.run(fail)
        assert store.users.load(user).scope_version == user.scope_version

    def test_one_that_raises_waits_in_line_too(self, ground: Ground) -> None:
        """Its reads are validated as by a commit, so others cannot make it run again for ever."""
        store, runs = ground.store, list[int]()

        def fail(tx: Any) -> None:
            runs.append(tx.tables.load("m.c.one.t").version)
            mine = running.set(None)  # as another caller: a call of the function goes on the function's own ticket
            with suppress(ms.DeadlineExceeded):  # while the function has its turn, others wait
                store.tables.alter("m.c.one.t", comment(str(len(runs))), deadline=0.05)
            running.reset(mine)
            raise ms.InvalidArgument(str(runs[-1]))

        with pytest.raises(ms.InvalidArgument) as raised:
            store.run(fail, deadline=10.0)
        assert raised.value.args[0] == str(runs[-1])
        assert len(runs) <= 4

    def test_two_creates_of_one_name(self, ground: Ground) -> None:
        seen: list[str] = []

        def make(tx: Any) -> None:
            seen.append("call")
            tx.tables.create("m.c.two.new", comment="mine")
            if len(seen) == 1:
                ground.store.tables.create("m.c.two.new", comment="theirs")

        with pytest.raises(ms.EntityAlreadyExists):
            ground.store.run(make)
        assert len(seen) == 2
        assert ground.store.tables.load("m.c.two.new").comment == "theirs"

    def test_deadline(self, ground: Ground) -> None:
        def never(tx: Any) -> None:
            tx.tables.alter("m.c.one.t", comment("mine"))
            ground.store.tables.alter("m.c.one.t", ms.SetProperty("n", str(ground.backend.now())))

        with pytest.raises((ms.DeadlineExceeded, ms.OutcomeUnknown)):  # the latter: a commit is on its way just then
            ground.store.run(never, deadline=0.2)
        assert ground.store.tables.load("m.c.one.t").comment is None
