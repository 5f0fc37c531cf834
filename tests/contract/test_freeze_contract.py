"""What every store promises of a freeze: nobody else writes below, and all of the block or nothing is written."""

# ruff: noqa: PT012  (what raises is the end of the block)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore import Store
from tests.contract.ground import Ground
from tests.contract.intents import eventually, unmarked

pytestmark = pytest.mark.one_in(3)

ONE, T = "m.c.one", "m.c.one.t"
X = ms.SetComment("x")


@pytest.fixture
def other(ground: Ground, url: str) -> Iterator[Store]:
    """Another store on the same database; in memory it is the same one."""
    if url.startswith("memory"):
        yield ground.store
        return
    with ms.open(url, principal="other") as opened:
        yield opened


def below(store: Store, g: Ground, seconds: float) -> dict[str, Callable[[], object]]:
    """What writes the schema, or anything below it."""
    soon: Any = {"deadline": 0.12 + 3 * max(0.0, seconds - 0.02)}
    tables, schemas = store.tables, store.schemas
    return {
        "create": lambda: tables.create("m.c.one.new", **soon),
        "create, parent": lambda: tables.create("new", parent=g.one, **soon),
        "create a schema": lambda: schemas.create("m.c.one.deep", **soon),
        "create a fileset": lambda: store.filesets.create("m.c.one.f", **soon),
        "create_many": lambda: tables.create_many(ONE, [{"name": "a"}, {"name": "b"}], **soon),
        "replace": lambda: tables.create(T, comment="r", if_exists="replace", **soon),
        "alter": lambda: tables.alter(T, X, **soon),
        "alter in hand": lambda: tables.alter(g.table, X, **soon),
        "alter pinned": lambda: tables.alter(T, X, expected_version=1, **soon),
        "rename": lambda: tables.rename(T, "u", **soon),
        "move away": lambda: tables.rename(T, "m.c.two.t", **soon),
        "move here": lambda: schemas.rename("m.c.two", "m.c.one.two", **soon),
        "drop": lambda: tables.drop(T, **soon),
        "purge": lambda: tables.purge(T, **soon),
        "restore here": lambda: schemas.restore("m.c.old", to="m.c.one.old", **soon),
        "partition": lambda: store.partitions.create(T, "q", values={}, **soon),
        "drop a partition": lambda: store.partitions.drop(T, "p", **soon),
        "statistics": lambda: store.statistics.put_many(T, [store.statistics.row("s", {"n": 1})], **soon),
        "alter the schema": lambda: schemas.alter(ONE, X, **soon),
        "rename the schema": lambda: schemas.rename(ONE, "uno", **soon),
        "drop the schema": lambda: schemas.drop(ONE, cascade=True, **soon),
        "freeze": lambda: schemas.exclusive(ONE, timeout=seconds).__enter__(),
        "freeze below": lambda: schemas.exclusive("m.c.one.in", timeout=seconds).__enter__(),
        "transaction": lambda: store.run(lambda tx: tx.tables.create("m.c.one.new"), **soon),
        "transaction, owned": lambda: store.run(lambda tx: tx.partitions.drop(T, "p"), **soon),
        "transaction, twice": lambda: store.run(_twice, **soon),
    }


def _error(call: Callable[[], object]) -> object:
    try:
        return call()
    except ms.MetastoreError as error:
        return error


def _twice(tx: Any) -> Any:
    tx.tables.alter(T, ms.SetComment("1"))
    return tx.tables.alter(T, ms.SetComment("2"))


class TestFrozen:
    def test_nobody_else_writes(self, ground: Ground, other: Store) -> None:
        inside = ground.store.schemas.create("m.c.one.in")
        before = ground.dump()
        wrong: list[str] = []
        with ground.store.schemas.exclusive(ONE, ttl=60.0) as tx:
            frozen = _of_nobody_else(ground.dump(), ground.one.id)
            for name in below(other, ground, 0.0):
                for seconds in (0.03, 1.0, 5.0):  # a busy machine may need more to see what is in the way
                    said = _error(below(other, ground, seconds)[name])
                    told = isinstance(said, ms.ScopeFrozen) and said.operation == tx._id and str(tx._id) in str(said)
                    if told or not isinstance(said, ms.DeadlineExceeded | ms.OutcomeUnknown | ms.ScopeFrozen):
                        break
                wrong += [] if told else [f"{name}: {said!r}"]
                assert _of_nobody_else(ground.dump(), ground.one.id) == frozen, name
        assert wrong == []
        assert unmarked(ground, ground.one)
        eventually(lambda: all(m.mark is None or m.seconds < 0 for m in ground.backend.marked([inside.id])))
        assert _without_guards(ground.dump()) == _without_guards(before)

    def test_others_read_and_work_elsewhere(self, ground: Ground, other: Store) -> None:
        with ground.store.schemas.exclusive(ONE) as tx:
            tx.tables.alter(T, X)
            assert other.tables.load(T) == ground.table
            assert list(other.tables.names(ONE)) == ["t"]
            assert other.schemas.load(ONE).version == 1
            other.tables.create("m.c.two.new")
            other.catalogs.alter("m.c", X)
            other.schemas.rename("m.c.two", "due")
            with other.schemas.exclusive("m.c.due") as second:
                second.tables.drop("m.c.due.new")
        assert other.tables.load(T).comment == "x"
        assert list(other.tables.names("m.c.due")) == []

    def test_the_block_is_one_commit(self, ground: Ground, other: Store) -> None:
        start = len(list(other.changes()))
        with ground.store.schemas.exclusive(ONE, principal="alice") as tx:
            assert tx.tables.load(T) == ground.table
            tx.tables.alter(T, X)
            tx.tables.create("m.c.one.new")
            tx.tables.alter("m.c.one.new", X)
            tx.partitions.create(T, "q", values={})
            tx.schemas.alter(ONE, X)
            assert tx.tables.load(T).comment == "x"
            assert list(tx.tables.names(ONE)) == ["new", "t"]
            tx.tables.create("m.c.two.beside")
            assert len(list(other.changes())) == start
        changes = list(other.changes())[start:]
        assert {(c.operation_id, c.principal) for c in changes} == {(tx._id, "alice")}
        assert [(c.path_after, c.version) for c in changes] == [
            (T, 2),
            ("m.c.one.new", 1),
            ("m.c.one.new", 2),
            ("m.c.one.t.q", 1),
            (ONE, 2),
            ("m.c.two.beside", 1),
        ]
        one = other.schemas.load(ONE)
        assert (one.version, one.scope_version) == (2, 2)
        assert unmarked(ground, ground.one)
        other.tables.alter(T, ms.SetComment("y"))

    def test_a_freeze_is_no_version(self, ground: Ground, other: Store) -> None:
        for _ in range(2):
            with ground.store.schemas.exclusive(ground.one):
                pass
        one = other.schemas.load(ONE)
        assert (one.version, one.scope_version) == (1, 3)
        assert [v.action for v in other.schemas.history(ONE)] == ["create"]
        assert other.tables.create("new", parent=ground.one).version == 1, "who holds the old one goes on"

    def test_an_exception(self, ground: Ground, other: Store) -> None:
        before = _without_guards(ground.dump())
        with pytest.raises(KeyError), ground.store.schemas.exclusive(ONE) as tx:
            tx.tables.create("m.c.one.new")
            tx.schemas.alter(ONE, X)
            raise KeyError
        assert unmarked(ground, ground.one)
        with pytest.raises(ms.EntityAlreadyExists), ground.store.schemas.exclusive(ONE) as tx:
            tx.tables.alter(T, X)
            tx.tables.create(T)
        assert _without_guards(ground.dump()) == before
        other.tables.create("m.c.one.new")

    def test_only_reads(self, ground: Ground, other: Store) -> None:
        with ground.store.schemas.exclusive(ONE) as tx:
            assert [t.path for t in tx.tables.list(ONE)] == [T]
            assert not tx.tables.exists("m.c.one.none")
        assert unmarked(ground, ground.one)
        other.tables.create("m.c.one.none")

    def test_a_read_elsewhere_is_validated(self, ground: Ground, other: Store) -> None:
        with pytest.raises(ms.VersionConflict), ground.store.schemas.exclusive(ONE) as tx:
            tx.schemas.load("m.c.two")
            tx.tables.alter(T, X)
            other.schemas.alter("m.c.two", X)
        assert other.tables.load(T) == ground.table
        assert unmarked(ground, ground.one)


def _of_nobody_else(rows: Any, frozen: int) -> Any:
    """Leave out whose turn it is, and the marks below: those of a freeze in vain that could not be removed in time."""
    return rows | {"guard": [row[:-1] if row[0] == frozen else row[:-3] for row in rows["guard"]]}


def _without_guards(rows: Any) -> Any:
    return {table: values for table, values in rows.items() if table != "guard"}


INSIDE: dict[str, tuple[Callable[[Any], object], Callable[[Store], bool]]] = {
    "alter": (lambda tx: tx.schemas.alter(ONE, X), lambda s: s.schemas.load(ONE).comment == "x"),
    "alter twice": (
        lambda tx: (tx.schemas.alter(ONE, X), tx.schemas.alter(ONE, ms.SetProperty("k", "v"))),
        lambda s: s.schemas.load(ONE).version == 3,
    ),
    "rename": (lambda tx: tx.schemas.rename(ONE, "uno"), lambda s: s.tables.exists("m.c.uno.t")),
    "move": (lambda tx: tx.schemas.rename(ONE, "m.c.two.one"), lambda s: s.tables.exists("m.c.two.one.t")),
    "rename twice": (
        lambda tx: (tx.schemas.rename(ONE, "uno"), tx.schemas.rename("m.c.uno", "eins")),
        lambda s: s.tables.exists("m.c.eins.t"),
    ),
    "there and back": (
        lambda tx: (tx.schemas.rename(ONE, "uno"), tx.schemas.rename("m.c.uno", "one")),
        lambda s: s.tables.exists(T),
    ),
    "rename and create": (
        lambda tx: (tx.schemas.rename(ONE, "uno"), tx.tables.create("m.c.uno.new"), tx.schemas.create(ONE)),
        lambda s: s.tables.exists("m.c.uno.new") and s.schemas.exists(ONE),
    ),
    "create and rename": (
        lambda tx: (tx.tables.create("m.c.one.new"), tx.schemas.alter(ONE, X), tx.schemas.rename(ONE, "uno")),
        lambda s: s.tables.exists("m.c.uno.new"),
    ),
    "drop": (lambda tx: tx.schemas.drop(ONE, cascade=True), lambda s: not s.schemas.exists(ONE)),
    "empty, then drop": (
        lambda tx: (tx.tables.drop(T), tx.schemas.drop(ONE)),
        lambda s: not s.schemas.exists(ONE),
    ),
    "drop and create": (
        lambda tx: (tx.schemas.drop(ONE, cascade=True), tx.schemas.create(ONE, comment="new")),
        lambda s: s.schemas.load(ONE).comment == "new",
    ),
    "drop and restore": (
        lambda tx: (tx.schemas.drop(ONE, cascade=True), tx.schemas.restore(ONE)),
        lambda s: s.tables.exists(T),
    ),
    "rename below": (lambda tx: tx.tables.rename(T, "u"), lambda s: s.tables.exists("m.c.one.u")),
    "move out": (lambda tx: tx.tables.rename(T, "m.c.two.t"), lambda s: s.tables.exists("m.c.two.t")),
    "many": (
        lambda tx: tx.tables.create_many(ONE, [{"name": f"n{n}"} for n in range(20)]),
        lambda s: len(list(s.tables.names(ONE))) == 21,
    ),
}


class TestInside:
    @pytest.mark.parametrize("what", INSIDE)
    def test_of_the_schema_itself(self, ground: Ground, other: Store, what: str) -> None:
        act, check = INSIDE[what]
        with ground.store.schemas.exclusive(ONE) as tx:
            act(tx)
            assert other.tables.load(T) == ground.table
        assert check(other)
        assert unmarked(ground, ground.one)
        assert other.verify() == []


ABOVE: dict[str, tuple[Callable[[Store], object], tuple[str, ...]]] = {
    "rename": (lambda s: s.catalogs.rename("m.c", "d"), ("m.c", "m.d")),
    "drop": (lambda s: s.catalogs.drop("m.c", cascade=True), ("m.c", "c", "one", ONE, "t", T)),
    "disable": (lambda s: s.catalogs.disable("m.c"), ("m.c",)),
    "disable and enable": (lambda s: (s.catalogs.disable("m.c"), s.catalogs.enable("m.c")), ("m.c",)),
    "rename of the metalake": (lambda s: s.metalakes.rename("m", "n"), ("m", "n")),
}


class TestAncestors:
    @pytest.mark.parametrize("what", ABOVE)
    def test_a_change_above(self, ground: Ground, other: Store, what: str) -> None:
        """It is not kept out; the holder's commit fails, and names it."""
        act, names = ABOVE[what]
        with pytest.raises(ms.VersionConflict) as caught, ground.store.schemas.exclusive(ONE) as tx:
            tx.tables.alter(T, X)
            act(other)
        assert caught.value.path in names
        assert unmarked(ground, ground.one)
        assert [v.action for v in other.tables.history(ground.table)] == ["create"]

    def test_below_what_is_disabled(self, ground: Ground) -> None:
        for manager, path in ((ground.store.catalogs, "m.c"), (ground.store.metalakes, "m")):
            manager.disable(path)
            with pytest.raises(ms.NotInUse), ground.store.schemas.exclusive(ONE):
                raise AssertionError
            assert unmarked(ground, ground.one)
            manager.enable(path)


class TestBeginning:
    def test_arguments(self, ground: Ground) -> None:
        before, schemas = ground.dump(), ground.store.schemas
        for seconds in (0, -1, float("nan"), float("inf"), "1", None, True):
            for name in ("ttl", "timeout"):
                with pytest.raises(ms.InvalidArgument):
                    schemas.exclusive(ONE, **{name: seconds})  # type: ignore[arg-type]
        for path in ("", "m..c", 7, None, ground.table, ground.catalog):
            with pytest.raises(ms.InvalidArgument):
                schemas.exclusive(path)  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidArgument):
            schemas.exclusive(ONE, principal="")
        assert ground.dump() == before

    def test_what_is_not_there(self, ground: Ground) -> None:
        before = ground.dump()
        for target in ("m.c.none", "m.none.s", "m.c.old", "m.c.one.none", ground.old):
            with pytest.raises(ms.EntityNotFound), ground.store.schemas.exclusive(target):
                raise AssertionError
        assert ground.dump() == before

    def test_one_that_is_refused_removes_no_mark(
        self, ground: Ground, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has none: to remove one would be a round trip in vain. A mark without an answer may be there."""
        calls: list[str] = []
        kind = type(ground.backend)
        mark, unmark = kind.mark, kind.unmark

        def spied_mark(backend: Any, wanted: Any) -> Any:
            calls.append("no answer")
            outcome = mark(backend, wanted)
            calls[-1] = type(outcome).__name__
            return outcome

        def spied_unmark(backend: Any, entity_id: int, operation_id: UUID) -> bool:
            calls.append("unmark")
            return unmark(backend, entity_id, operation_id)

        with ground.store.schemas.exclusive(ONE):
            with monkeypatch.context() as spied:
                spied.setattr(kind, "mark", spied_mark)
                spied.setattr(kind, "unmark", spied_unmark)
                with pytest.raises(ms.ScopeFrozen), other.schemas.exclusive(ONE, timeout=1.0):
                    raise AssertionError
            assert "Conflicted" in calls
            assert "unmark" not in calls or "no answer" in calls, calls
        assert unmarked(ground, ground.one)

    def test_it_begins_when_the_database_is_back(self, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        kind, away = type(ground.backend), [ms.BackendUnavailable("away")]
        away[0].transient = True
        mark = kind.mark

        def away_at_first(backend: Any, wanted: Any) -> Any:
            if away:
                raise away.pop()
            return mark(backend, wanted)

        monkeypatch.setattr(kind, "mark", away_at_first)
        with ground.store.schemas.exclusive(ONE) as tx:
            tx.tables.alter(T, X)
        assert away == []
        assert ground.store.tables.load(T).comment == "x"

    def test_it_cannot_be_used_before_or_twice(self, ground: Ground) -> None:
        block = ground.store.schemas.exclusive(ONE)
        with pytest.raises(ms.InvalidArgument):
            block.tables.load(T)
        with block:
            pass
        with pytest.raises(ms.InvalidArgument):
            block.tables.load(T)
        before = ground.dump()
        with pytest.raises(ms.InvalidArgument):
            block.__enter__()
        assert ground.dump() == before, "it freezes nothing meanwhile"
        assert unmarked(ground, ground.one)

    def test_not_of_a_transaction(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            assert not hasattr(tx.schemas, "exclusive")
