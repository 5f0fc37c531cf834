"""Following one entity: every change of it and of what was below it, whatever shares its path, and nothing else.

The oracle replays the parents and states of all rows by their ids. It never looks at a path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import HistoryGone, InvalidArgument, MetastoreError
from metastore.feed.subject import LEASE
from metastore.kinds.registry import RELATIONSHIPS
from metastore.port.conditions import LIVE
from metastore.port.records import Step
from tests.contract import boards

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

Row = tuple[int, int | None]
"""The parent of a row, and its state."""


def started(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")


def steps_of(store: Store) -> list[Step]:
    """Return all steps of the feed."""
    backend: Any = store._session.backend
    return list(backend.feed(0, 1 << 20).rows)


def expected(steps: list[Step], entity_id: int) -> list[tuple[int | None, int | None]]:
    """Return the steps of an entity, and of the rows below it before the step or after."""
    rows, found = dict[int, Row](), list[tuple[int | None, int | None]]()
    for step in steps:
        subject = step.owner_id if step.owner_id is not None else step.entity_id
        if step.kind in RELATIONSHIPS and step.kind == "grant":
            subject = step.other_id
        purged = step.owner_id is None and step.action == "purge"
        before = _below(rows, subject, entity_id, dead=purged)
        if step.owner_id is None and step.kind != LEASE and step.entity_id is not None:
            rows[step.entity_id] = (step.parent_id or 0, step.state)
        if subject == entity_id or before or _below(rows, subject, entity_id, dead=False):
            found.append((step.entity_id, step.version))
    return found


def _below(rows: dict[int, Row], subject: int | None, above: int, *, dead: bool) -> bool:
    """Whether a row is below another one, and both are live unless ``dead``."""
    chain = list[int]()
    while subject is not None and subject in rows:
        chain.append(subject)
        subject = rows[subject][0]
    return above in chain[1:] and (dead or all(rows[one][1] == LIVE for one in chain))


SCHEMAS = ["m.c.a", "m.c.b", "m.c.a.t", "m.c.b.t", "m.c.a.t.u"]
TABLES = [f"{schema}.{name}" for schema in ("m.c.a", "m.c.b", "m.c.a.t") for name in ("t", "u")]


def acts(choose: random.Random, store: Store, path: str, other: str) -> list[Callable[[], object]]:
    manager: Any = store.schemas if choose.random() < 0.5 else store.tables
    paths = SCHEMAS if manager is store.schemas else TABLES
    at, to = choose.choice(paths), choose.choice(paths)

    def gone() -> Any:
        return choose.choice(list(manager.dropped(at.rpartition(".")[0])))

    def elsewhere() -> None:
        one = gone()
        manager.restore(one.path, id=one.id, to=to)

    return [
        lambda: manager.create(at, parents=True),
        lambda: manager.create(at, parents=True),
        lambda: manager.alter(at, ms.SetComment(str(choose.random()))),
        lambda: manager.rename(at, to),
        lambda: manager.drop(at, cascade=True),
        elsewhere,
        lambda: manager.restore(at),
        lambda: manager.purge(gone()),
        lambda: store.statistics.put_many(path, [store.statistics.row("rows", {"n": choose.random()})]),
        lambda: store.tags.attach(at, "m.tag", kind="schema" if manager is store.schemas else "table"),
        lambda: together(store, path, other),
    ]


def together(store: Store, path: str, other: str) -> None:
    """Several changes in one commit, the first of which moves a parent."""
    with store.transaction() as tx:
        above = path.rpartition(".")[0]
        tx.schemas.rename(above, "w")
        new = f"{above.rpartition('.')[0]}.w"
        tx.tables.create(f"{new}.{other.rpartition('.')[2]}{len(other)}", if_exists="replace")
        tx.schemas.rename(new, above)


def lived(store: Store, seed: int, count: int) -> None:
    """Live through a random history in which schemas and tables share names."""
    choose = random.Random(seed)
    started(store)
    store.tags.create("m.tag")
    for _ in range(count):
        with suppress(MetastoreError, IndexError, TypeError):
            choose.choice(acts(choose, store, choose.choice(TABLES), choose.choice(TABLES)))()


def followed(store: Store, entity: Any, after: str | None) -> list[tuple[int, int]]:
    return [(one.entity_id, one.version) for one in store.changes(under=entity, after=after)]


def paged(store: Store, entity: Any, after: str | None) -> Iterator[tuple[int, int]]:
    while True:
        page = store.changes_page(under=entity, after=after, size=7)
        yield from ((one.entity_id, one.version) for one in page.items)
        if page.next_token is None:
            return
        after = page.next_token


def entities_of(store: Store) -> list[ms.Entity]:
    """Return every entity that there ever was, in hand."""
    found = {one.entity_id: one.entity for one in store.changes() if one.action == "create"}
    return [one for one in found.values() if isinstance(one, ms.Entity)]


@pytest.mark.only_whole(on="sqlite")
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 30))])
def test_every_entity_from_every_position(store: Store, seed: int) -> None:
    lived(store, seed, 120)
    steps = steps_of(store)
    changes = list(store.changes())
    entities = entities_of(store)
    choose = random.Random(seed)
    assert len(entities) > 10
    for entity in entities:
        whole = expected(steps, entity.id)
        assert followed(store, entity, None) == whole
        for at in choose.sample(range(len(changes)), 4):
            rest = whole[len([1 for s in whole if s in {(c.entity_id, c.version) for c in changes[: at + 1]}]) :]
            assert followed(store, entity, changes[at].position) == rest
        assert list(paged(store, entity, None)) == whole


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 30))])
def test_what_a_consumer_has_not_read_is_still_followed(store: Store, seed: int) -> None:
    """gc has removed the past at the consumer's position, and kept the changes since."""
    lived(store, seed, 60)
    consumer = store.consumers.get("slow", start="now")
    entities = {entity.id: entity for entity in entities_of(store)}
    choose = random.Random(seed + 1000)
    for _ in range(60):
        with suppress(MetastoreError, IndexError, TypeError):
            choose.choice(acts(choose, store, choose.choice(TABLES), choose.choice(TABLES)))()
    entities |= {entity.id: entity for entity in entities_of(store)}
    steps = steps_of(store)
    seen = {(c.entity_id, c.version) for c in store.changes(after=consumer.position)}
    store.gc(retention=timedelta(0), keep_versions=1)
    with pytest.raises(HistoryGone):
        store.at(consumer.position)
    known = 0
    for entity in entities.values():
        whole = [one for one in expected(steps, entity.id) if one in seen]
        with suppress(HistoryGone):
            found = followed(store, entity, consumer.position)
            assert [one for one in found if one in seen] == whole
            known += 1
    assert known > len(entities) / 2


def test_a_namesake_of_another_family_is_not_followed(store: Store) -> None:
    started(store)
    schema, table = store.schemas.create("m.c.a.x", parents=True), store.tables.create("m.c.a.x")
    store.tables.create("m.c.a.x.below")
    store.schemas.rename(schema, "m.c.a.y")
    store.statistics.put_many(table, [store.statistics.row("rows", {"n": 1})])
    store.tables.rename(table, "z")
    store.tables.create("m.c.a.y.below2")
    said = [(one.kind, one.action) for one in store.changes(under=schema)]
    assert said == [("schema", "create"), ("table", "create"), ("schema", "rename"), ("table", "create")]
    said = [(one.kind, one.action) for one in store.changes(under=table)]
    assert said == [("table", "create"), ("statistic", "create"), ("table", "rename")]
    for one in (schema, table):  # in hand since before it was renamed
        assert list(store.changes_page(under=one).items) == list(store.changes(under=one))


def test_a_declared_container_with_the_path_of_a_schema(store: Store) -> None:
    """A note below the board is not below the schema. What is attached to a note does not say of which kind it is."""
    started(store)
    store.tags.create("m.tag")
    schema = store.schemas.create("m.c.s.x", parents=True)
    board = store.manager(boards.BOARD.name).create("m.c.s.x", owner="ann")
    of_board = [board, store.manager(boards.NOTE.name).create("m.c.s.x.same")]
    of_schema = [schema, store.tables.create("m.c.s.x.same")]
    store.statistics.put_many(of_schema[1], [store.statistics.row("rows", {"n": 1})])
    for one in (*of_board, *of_schema):
        store.tags.attach(one, "m.tag")
    below = ["schema create", "table create", "statistic create", "tag_on create", "tag_on create"]
    assert [f"{one.kind} {one.action}" for one in store.changes(under=schema)] == below
    below = ["board create", "note create", "tag_on create", "tag_on create"]
    assert [f"{one.kind} {one.action}" for one in store.changes(under=board)] == below


def test_an_ancestor_that_is_dropped_at_the_position_comes_back_elsewhere(store: Store) -> None:
    started(store)
    table = store.tables.create("m.c.a.b.t", parents=True)
    above, between = store.schemas.load("m.c.a"), store.schemas.load("m.c.a.b")
    store.schemas.drop(above, cascade=True)
    dropped = store.position()
    store.schemas.create("m.c.a.b", parents=True)
    store.tables.create("m.c.a.b.t")
    store.schemas.restore("m.c.a", id=above.id, to="m.c.q")
    store.tables.alter("m.c.q.b.t", ms.SetComment("x"))
    assert [one.action for one in store.changes(under="m.c.q.b.t", after=dropped)] == ["alter"]
    assert [one.action for one in store.changes_page(under=table, after=dropped).items] == ["alter"]
    assert [one.action for one in store.changes_page(under=between, after=dropped).items] == ["alter"]


def test_a_position_inside_a_commit(store: Store) -> None:
    started(store)
    schema = store.schemas.create("m.c.a")
    with store.transaction() as tx:
        tx.schemas.rename("m.c.a", "b")
        tx.tables.create("m.c.b.t")
    renamed = list(store.changes())[-2]
    assert renamed.action == "rename"
    assert [one.kind for one in store.changes(under=schema, after=renamed.position)] == ["table"]
    assert [one.kind for one in store.changes_page(under=schema, after=renamed.position).items] == ["table"]


def test_a_path_that_two_families_share(store: Store) -> None:
    started(store)
    before = store.position()
    store.schemas.create("m.c.a.x", parents=True)
    store.tables.create("m.c.a.x.below")
    table = store.tables.create("m.c.a.x")
    made = store.position()
    store.tables.alter(table, ms.SetComment("x"))
    store.tables.create("m.c.a.x.new")
    calls: list[Callable[..., Any]] = [
        lambda **kind: list(store.changes(under="m.c.a.x", after=made, **kind)),
        lambda **kind: list(store.changes_page(under="m.c.a.x", after=made, **kind).items),
        lambda **kind: list(store.diff(made, under="m.c.a.x", **kind)),
        lambda **kind: store.revert("m.c.a.x", to=made, dry_run=True, **kind),
        lambda **kind: store.revert("m.c.a.x", to=made, **kind),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"is a (schema and a table|table and a schema); say which"):
            call()
        with pytest.raises(InvalidArgument, match="there is no kind"):
            call(kind="tabel")
        assert len(call(kind="table")) == 1
    assert store.tables.exists("m.c.a.x.new")
    for call in calls:
        assert [one.path_after or one.path_before for one in call(kind="schema")] == ["m.c.a.x.new"]
    assert not store.tables.exists("m.c.a.x.new")
    assert store.tables.load("m.c.a.x").comment is None
    for wrong in (
        lambda: store.changes(kind="table"),
        lambda: store.changes_page(kind="table"),
        lambda: store.diff(before, kind="table"),
        lambda: store.changes(under=table, kind="schema"),
        lambda: store.revert(table, to=made, kind="schema"),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    with pytest.raises(ms.EntityNotFound):
        store.changes(under="m.c.a.x", kind="view")


def test_a_path_below_an_entity_that_holds_no_entities(store: Store) -> None:
    started(store)
    store.schemas.create("m.c.s")
    store.tables.create("m.c.s.t")
    for below, message in (
        ("m.c.s.t.x", "m.c.s.t.x is not the path of an entity: m.c.s.t is a table; "),
        ("m.c.s.u.x", "m.c.s.u.x does not exist: there is no m.c.s.u; "),
    ):
        with pytest.raises(ms.EntityNotFound) as error:
            list(store.changes(under=below))
        assert str(error.value).startswith(message)
