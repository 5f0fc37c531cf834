"""What every store promises of operation ids: a repeat returns the first result, and writes nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

import metastore as ms
from metastore.errors import MetastoreError
from tests.contract.calls import CALLS, COMMENT, FAILING, Call, T
from tests.contract.ground import Ground, interrupted
from tests.contract.intents import announce, new_id

pytestmark = pytest.mark.one_in(3)


def answer(call: Call, ground: Ground, operation_id: UUID | str) -> Any:
    """Return what a call returned, or the error that it raised, comparable."""
    try:
        found = call(ground, operation_id)
    except MetastoreError as error:
        return type(error), str(error), {k: v for k, v in vars(error).items() if k[0] != "_"}
    return type(found), found, getattr(found, "path", None), getattr(found, "doc", None)


def tidy_up(ground: Ground) -> None:
    """Change, drop or take the place of everything that the calls are about."""
    store = ground.store
    store.catalogs.enable("m.c")
    for entity in (ground.table, ground.one, ground.two):
        manager: Any = store.tables if entity is ground.table else store.schemas
        manager.drop(entity, cascade=True)
    for name in ("one", "two", "none", "old", "x"):
        store.schemas.create(f"m.c.{name}", if_exists="return")
    for path in (T, "m.c.one.none", "m.c.two.none", "m.c.two.x", "m.c.none.t"):
        store.tables.create(path, comment="another", if_exists="replace", parents=True)
    store.metalakes.alter("m", ms.SetProperty("later", "1"))


class TestRepeats:
    @pytest.mark.one_in(4, on="postgres")
    @pytest.mark.parametrize("name", [*CALLS, *FAILING])
    def test_the_first_result(self, ground: Ground, name: str) -> None:
        call, own = (CALLS | FAILING)[name], new_id()
        first = answer(call, ground, own)
        assert issubclass(first[0], MetastoreError) == (name in FAILING), first
        before = ground.dump()
        assert answer(call, ground, own) == first
        assert answer(call, ground, str(own)) == first
        assert ground.dump() == before
        outcome = ground.store.outcome(own)
        assert outcome.state == ("failed" if name in FAILING else "committed")
        if name in FAILING:
            assert (type(outcome.result), str(outcome.result)) == first[:2]
            assert {k: v for k, v in vars(outcome.result).items() if k[0] != "_"} == first[2]
        else:
            assert outcome.result == first[1]
        tidy_up(ground)
        before = ground.dump()
        assert answer(call, ground, own) == first, "whatever others did meanwhile"
        assert ground.dump() == before

    def test_when_it_is_purged(self, ground: Ground) -> None:
        """Who made it, and when, is told as it was the first time."""
        tables, ids = ground.store.tables, [new_id() for _ in range(2)]
        made = tables.create("m.c.two.x", operation_id=ids[0], principal="maker")
        altered = tables.alter("m.c.two.x", COMMENT, operation_id=ids[1])
        tables.purge(made)
        assert tables.create("m.c.two.x", operation_id=ids[0], principal="maker") == made
        assert tables.alter("m.c.two.x", COMMENT, operation_id=ids[1]) == altered

    def test_a_relation_that_is_there_already(self, ground: Ground) -> None:
        """The call changes nothing; what it returned is kept, and told again."""
        store = ground.store
        store.users.create("m.ann")
        store.groups.create("m.staff")
        store.tags.create("m.pii", allowed_values=["high"])
        for own in (new_id(), ms.key("attach")):
            first = store.tags.attach(T, "m.pii", value="high", operation_id=own)
            assert store.tags.attach(T, "m.pii", value="high", operation_id=own) == first
        assert store.outcome(own).result == first
        store.tables.alter(T, ms.AddColumn("mail", "string"))
        for own in (new_id(), ms.key("column")):
            first = store.tags.attach(T, "m.pii", value="high", column="mail", operation_id=own)
            assert store.tags.attach(T, "m.pii", value="high", column="mail", operation_id=own) == first
            assert (first.target_kind, first.column) == ("table", "mail")
        for _ in range(2):
            store.groups.add("m.staff", "m.ann", operation_id=new_id())
        owner = [store.owners.set(T, "m.ann", operation_id=new_id()) for _ in range(2)]
        assert owner[0] == owner[1]

    def test_a_job_that_is_cancelled(self, ground: Ground) -> None:
        """The time that the library takes is not an argument of the caller's."""
        jobs, own = ground.store.jobs, ms.key("cancel")
        jobs.create("m.j", template="t")
        cancelled = jobs.cancel("m.j", operation_id=own)
        assert jobs.cancel("m.j", operation_id=own) == cancelled
        assert jobs.load("m.j").version == 2

    def test_an_announced_one(self, ground: Ground) -> None:
        """As an intent it is the same operation; who helps gives the same result."""
        store = ground.store
        for n in range(3):
            own = new_id()

            def alter(n: int = n, own: UUID = own) -> ms.Table:
                return store.tables.alter(
                    T, ms.AddColumn(f"c{n}", "int"), ms.SetProperty("k", str(n)), operation_id=own
                )

            def other(n: int = n) -> object:
                return store.tables.alter(T, ms.SetProperty("other", str(n)))

            with interrupted(store, other):
                first = alter()
            before = ground.dump()
            assert alter() == first == store.outcome(own).result
            with pytest.raises(ms.InvalidArgument, match="other arguments"):
                store.tables.alter(T, ms.AddColumn(f"c{n}", "long"), operation_id=own)
            assert ground.dump() == before
        assert len(store.tables.load(T).columns) == 3


OF_ROWS: dict[str, Call] = {
    "add a version": lambda g, op: g.store.models.add_version("m.c.one.model", uris={"a": "s3://y"}, operation_id=op),
    "alter a version": lambda g, op: g.store.models.alter_version("m.c.one.model", 1, COMMENT, operation_id=op),
    "drop a version": lambda g, op: g.store.models.drop_version("m.c.one.model", 1, operation_id=op),
    "set an alias": lambda g, op: g.store.models.set_alias("m.c.one.model", "b", 1, operation_id=op),
    "drop an alias": lambda g, op: g.store.models.drop_alias("m.c.one.model", "a", operation_id=op),
    "begin to drop": lambda g, op: g.store.partitions.begin_drop(T, "p", operation_id=op).operation,
    "statistics": lambda g, op: g.store.statistics.set(T, {"custom-a": 1}, partition="p", operation_id=op),
}
"""Calls that write rows which an entity owns."""


@pytest.mark.parametrize("name", OF_ROWS)
def test_an_id_that_only_an_error_told(ground: Ground, name: str) -> None:
    """The caller had none; OutcomeUnknown names the one that the call had."""
    ground.store.models.add_version(
        ground.store.models.create("m.c.one.model"), uris={"a": "s3://x"}, aliases=["a"], operation_id=new_id()
    )
    first = OF_ROWS[name](ground, None)
    before, own = ground.dump(), list(ground.store.changes())[-1].operation_id
    assert OF_ROWS[name](ground, own) == first
    assert ground.dump() == before
    with pytest.raises(ms.OperationIdReused):
        ground.store.topics.create("m.c.one.topic", operation_id=own)
    for owner, path in ((ground.store.models, "m.c.one.model"), (ground.store.tables, T)):
        with pytest.raises(ms.OperationIdReused):  # not the owned row, nor that the owner was dropped
            owner.drop(path, operation_id=own)


DEEDS = ("create", "create, replace", "alter", "rename", "move", "drop", "restore", "purge", "disable")
"""Calls that write a row of an entity, each another deed."""


@pytest.mark.parametrize("name", DEEDS)
def test_an_id_that_only_an_error_told_of_another_deed(ground: Ground, name: str) -> None:
    """Of the same kind: only what was done tells the calls apart."""
    first = CALLS[name](ground, None)
    before, own = ground.dump(), list(ground.store.changes())[-1].operation_id
    assert CALLS[name](ground, own) == first
    alike: dict[str, tuple[str, ...]] = {"create, replace": ("create", "alter"), "alter": ("create", "create, replace")}
    alike |= {"create": ("create, replace",), "rename": ("move",), "move": ("rename",)}
    for other in DEEDS:
        if other not in (name, *alike.get(name, ())):
            with pytest.raises(ms.OperationIdReused):
                CALLS[other](ground, own)
    assert ground.dump() == before


OTHERS: dict[str, Call] = {
    "changes": lambda g, op: g.store.tables.alter(T, ms.SetComment("other"), operation_id=op),
    "target": lambda g, op: g.store.tables.alter("m.c.one.u", COMMENT, operation_id=op),
    "by id": lambda g, op: g.store.tables.alter(g.table, COMMENT, operation_id=op),
    "version": lambda g, op: g.store.tables.alter(T, COMMENT, expected_version=1, operation_id=op),
    "kind": lambda g, op: g.store.schemas.alter("m.c.one", COMMENT, operation_id=op),
    "rename": lambda g, op: g.store.tables.rename(T, "u", operation_id=op),
    "drop": lambda g, op: g.store.tables.drop(T, operation_id=op),
    "create": lambda g, op: g.store.tables.create("m.c.two.x", operation_id=op),
    "create, return": lambda g, op: g.store.tables.create(T, if_exists="return", operation_id=op),
    "create what is there": lambda g, op: g.store.tables.create(T, operation_id=op),
    "restore": lambda g, op: g.store.schemas.restore("m.c.old", operation_id=op),
    "purge": lambda g, op: g.store.tables.purge(T, operation_id=op),
    "disable": lambda g, op: g.store.catalogs.disable("m.c", operation_id=op),
    "partition": lambda g, op: g.store.partitions.create(T, "q", values={}, operation_id=op),
    "drop a partition": lambda g, op: g.store.partitions.drop(T, "p", operation_id=op),
}
PAIRS: list[tuple[Call, Call]] = [
    (
        lambda g, op: g.store.schemas.drop("m.c.two", operation_id=op),
        lambda g, op: g.store.schemas.drop("m.c.two", cascade=True, operation_id=op),
    ),
    (
        lambda g, op: g.store.tables.create("m.c.one.x", comment="a", operation_id=op),
        lambda g, op: g.store.tables.create("m.c.one.x", comment="b", operation_id=op),
    ),
    (
        lambda g, op: g.store.partitions.create(T, "q", values={"a": "1"}, operation_id=op),
        lambda g, op: g.store.partitions.create(T, "q", values={"a": "2"}, operation_id=op),
    ),
    (
        lambda g, op: g.store.tables.rename("m.c.one.x", "y", operation_id=op),
        lambda g, op: g.store.tables.rename("m.c.one.x", "z", operation_id=op),
    ),
    (
        lambda g, op: g.store.catalogs.disable("m.c", operation_id=op),
        lambda g, op: g.store.catalogs.enable("m.c", operation_id=op),
    ),
]


class TestArguments:
    def test_other_ones(self, ground: Ground) -> None:
        own = new_id()
        CALLS["alter"](ground, own)
        before = ground.dump()
        for name, call in OTHERS.items():
            with pytest.raises(ms.InvalidArgument, match="other arguments"):
                call(ground, own)
            assert ground.dump() == before, name

    def test_pairs(self, ground: Ground) -> None:
        for call, other in PAIRS:
            own = new_id()
            call(ground, own)
            before = ground.dump()
            with pytest.raises(ms.InvalidArgument, match="other arguments"):
                other(ground, own)
            assert ground.dump() == before

    def test_after_a_failure(self, ground: Ground) -> None:
        own = new_id()
        with pytest.raises(ms.EntityNotFound):
            FAILING["not found"](ground, own)
        with pytest.raises(ms.InvalidArgument, match="other arguments"):
            CALLS["alter"](ground, own)

    def test_no_uuid7(self, ground: Ground) -> None:
        before = ground.dump()
        wrong: list[Any] = [
            uuid4(),
            str(uuid4()),
            "x",
            "",
            7,
            7.0,
            b"x" * 16,
            UUID(int=0),
            [],
            UUID(int=(1 << 128) - 1),
        ]
        for value in wrong:
            for name in ("create", "alter", "rename", "drop", "restore", "purge", "disable", "partition"):
                with pytest.raises(ms.InvalidArgument):
                    CALLS[name](ground, value)
            with pytest.raises(ms.InvalidArgument):
                ground.store.outcome(value)
        assert ground.dump() == before

    def test_the_string_is_the_same_id(self, ground: Ground) -> None:
        own = new_id()
        own_text: Any = str(own).upper()
        first = CALLS["alter"](ground, own_text)
        assert CALLS["alter"](ground, own) == first
        assert ground.store.outcome(own).result == ground.store.outcome(str(own)).result == first
        assert [v.operation_id for v in ground.store.tables.history(T)][-1] == own

    def test_not_of_many(self, ground: Ground) -> None:
        before = ground.dump()
        with pytest.raises(TypeError):
            ground.store.tables.create_many("m.c.two", [{"name": "x"}], operation_id=new_id())  # type: ignore[call-arg]
        assert ground.dump() == before

    def test_not_in_a_transaction(self, ground: Ground) -> None:
        before, own = ground.dump(), new_id()
        with ground.store.transaction() as tx:
            inside = Ground(**vars(ground) | {"store": tx})
            for name, call in CALLS.items():
                if name != "create, parents":  # see TestMissingParents
                    with pytest.raises(ms.InvalidArgument):
                        call(inside, own)
        assert ground.dump() == before
        assert ground.store.outcome(own).state == "unknown"

    def test_ids_that_cannot_be_told(self, ground: Ground) -> None:
        """Too old, after gc has forgotten, or from the future: refused, also before a failure is noted."""
        ahead = UUID(int=new_id().int + (600_000 << 80))
        ground.backend.forget(ground.backend.now())
        before = ground.dump()
        for own in (new_id(), ahead):
            for name in ("create", "alter", "alter nothing", "rename", "drop nothing", "partition", "purge"):
                with pytest.raises(ms.InvalidArgument, match="cannot be distinguished"):
                    CALLS[name](ground, own)
            with pytest.raises(ms.InvalidArgument, match="cannot be distinguished"):
                FAILING["not found"](ground, own)
            ground.store._session.hot.note(ground.table.id, ("table", ground.table.names))
            with pytest.raises(ms.InvalidArgument, match="cannot be distinguished"):
                CALLS["alter"](ground, own)
            ground.store._session.hot.cool(ground.table.id)
        assert ground.dump() == before


class TestOutcome:
    def test_states(self, ground: Ground) -> None:
        store, backend = ground.store, ground.backend
        unknown, cancelled, forbidden = (new_id() for _ in range(3))
        assert store.outcome(unknown) == ms.Outcome("unknown")
        assert backend.forbid(forbidden) == 1
        assert store.outcome(forbidden) == ms.Outcome("cancelled")
        pending, cancelled = (announce(ground, ground.table, text) for text in ("1", "2"))
        assert store.outcome(pending) == ms.Outcome("pending")
        assert backend.cancel(cancelled)
        assert store.outcome(cancelled) == ms.Outcome("cancelled")
        store.tables.alter(T, ms.SetProperty("k", "v"))
        outcome = store.outcome(pending)
        assert (outcome.state, outcome.result) == ("committed", store.tables.load(T, version=2))
        assert CALLS["alter"](ground, forbidden).version == 4, "a repeat takes it up again"
        assert store.outcome(forbidden).state == "committed"
        with store.transaction() as tx:
            tx.tables.create("m.c.two.a")
            tx.tables.create("m.c.two.b")
        outcome = store.outcome(list(store.changes())[-1].operation_id)
        assert (outcome.state, [t.path for t in outcome.result]) == ("committed", ["m.c.two.a", "m.c.two.b"])


def test_a_repeated_transaction_that_finds_its_own_writes(ground: Ground) -> None:
    """It writes nothing, so it needs no place in the history, and its id may be known."""
    own = new_id()
    for _ in range(2):
        with ground.store.transaction(operation_id=own) as tx:
            if not tx.topics.exists("m.c.one.news"):
                tx.topics.create("m.c.one.news")
    assert len([one for one in ground.store.changes() if one.operation_id == own]) == 1
