"""Cases from the field that need one caller only; the numbers are those of the list of cases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import pytest
from sqlalchemy import create_engine, text

import metastore as ms
from metastore.backends.memory import commit as memory_commit
from metastore.kinds.entity import Entity
from tests.contract.ground import Ground

NO_EVENTS = {
    "sqlite": "CREATE TRIGGER no_events BEFORE INSERT ON operation BEGIN SELECT RAISE(ABORT, 'no events'); END",
    "postgresql": "ALTER TABLE operation ADD CONSTRAINT no_events CHECK (false) NOT VALID",
}


def standing(ground: Ground, *entities: Entity) -> list[tuple[int, int] | None]:
    """The version and the scope version of each."""
    known = ground.backend.by_id([e.id for e in entities])
    return [k and (k.record.version, k.record.chain[-1].scope_version) for k in known]


def test_duplicates_and_what_is_not_there(ground: Ground) -> None:
    """Field case 20."""
    tables = ground.store.tables
    tables.create("m.c.one.u")
    with pytest.raises(ms.EntityAlreadyExists):
        tables.create("m.c.one.t")
    with pytest.raises(ms.EntityAlreadyExists):
        tables.rename("m.c.one.u", "t")
    with pytest.raises(ms.EntityNotFound):
        tables.load("m.c.one.none")
    assert tables.drop("m.c.one.none") is False


def test_a_create_leaves_the_parent_alone(ground: Ground) -> None:
    """Field case 21: failed or not."""
    parents = (ground.lake, ground.catalog, ground.one)
    before = standing(ground, *parents)
    ground.store.tables.create("m.c.one.u")
    assert standing(ground, *parents) == before
    with pytest.raises(ms.EntityAlreadyExists):
        ground.store.tables.create("u", parent=ground.one)
    with pytest.raises(ms.InvalidArgument):
        ground.store.tables.create("m.c.one.v", columns=(ms.Column("a", "no such type"),))
    assert standing(ground, *parents) == before


def test_update_of_what_is_gone(ground: Ground) -> None:
    """Field case 22: EntityNotFound, not VersionConflict."""
    ground.store.tables.drop("m.c.one.t")
    for expected in (None, 1, 2):
        for target in (ground.table, "m.c.one.t"):
            with pytest.raises(ms.EntityNotFound):
                ground.store.tables.alter(target, ms.SetComment("x"), expected_version=expected)
            with pytest.raises(ms.EntityNotFound):
                ground.store.tables.rename(target, "u", expected_version=expected)


@pytest.mark.parametrize("kind", ["schemas", "tables", "filesets"])
def test_not_empty(ground: Ground, kind: str) -> None:
    """Field case 23: whatever kind the child has, and nothing changed."""
    child = getattr(ground.store, kind).create("m.c.two.x")
    before = ground.dump()
    for target in ("m.c.two", ground.two):
        with pytest.raises(ms.NotEmpty):
            ground.store.schemas.drop(target)
    assert ground.dump() == before
    assert getattr(ground.store, kind).drop(child)
    assert ground.store.schemas.drop(ground.two)


def test_one_name_in_two_schemas(ground: Ground) -> None:
    """Field case 25: independent; and cycles of drop, create and rename work."""
    tables = ground.store.tables
    other = tables.create("m.c.two.t", comment="other")
    ids = {ground.table.id, other.id}
    for n in range(5):
        assert tables.drop("m.c.one.t")
        made = tables.create("m.c.one.t", comment=str(n))
        assert made.id not in ids
        ids.add(made.id)
        assert tables.rename(made, "u").name == "u"
        assert tables.rename("m.c.one.u", "t").version == 3
    assert tables.load("m.c.two.t") == other
    assert len(list(tables.dropped("m.c.one"))) == 5


def test_retention(ground: Ground) -> None:
    """Field case 26: rows stay until retention passes; then all that hangs on them goes, the newest versions stay."""
    store = ground.store
    for n in range(4):
        store.schemas.alter("m.c.two", ms.SetComment(str(n)))
    store.tables.drop("m.c.one.t")
    assert store.gc(retention=timedelta(days=1), keep_versions=1).entities == 0
    assert store.tables.restore("m.c.one.t").id == ground.table.id
    store.tables.drop("m.c.one.t")
    assert store.gc(retention=timedelta(0), keep_versions=2).entities == 2
    assert standing(ground, ground.table, ground.old) == [None, None]
    assert ground.dump()["owned"] == []
    assert [v.version for v in store.schemas.history("m.c.two")] == [4, 5]


def test_wildcards_are_literal(ground: Ground) -> None:
    """Field case 27."""
    tables, names = ground.store.tables, ["%", "_", "a", "a%", "a_", "ab", "abc"]
    for name in names:
        tables.create(("m", "c", "two", name))
    assert [t and t.name for t in tables.load_many([("m", "c", "two", n) for n in names])] == names
    assert tables.drop("m.c.two.a_")
    assert tables.drop("m.c.two.%")
    assert list(tables.names("m.c.two")) == ["_", "a", "a%", "ab", "abc"]
    assert [t.name for t in tables.dropped("m.c.two")] == ["%", "a_"]


def test_events(ground: Ground) -> None:
    """Field case 31: one for a create; both paths for a rename; one for a cascade drop, of its root."""
    seen = len(list(ground.store.changes()))
    ground.store.tables.create("m.c.one.u")
    ground.store.schemas.rename("m.c.one", "uno")
    ground.store.schemas.drop("m.c.uno", cascade=True)
    found = [(c.kind, c.action, c.path_before, c.path_after) for c in list(ground.store.changes())[seen:]]
    assert found == [
        ("table", "create", None, "m.c.one.u"),
        ("schema", "rename", "m.c.one", "m.c.uno"),
        ("schema", "drop", "m.c.uno", None),
    ]


def test_no_entity_without_its_event(ground: Ground, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 32."""
    before = ground.dump()
    _break_the_log(url, monkeypatch)
    writes: list[Callable[[], object]] = [
        lambda: ground.store.tables.create("m.c.one.u"),
        lambda: ground.store.tables.alter(ground.table, ms.SetComment("x")),
        lambda: ground.store.schemas.rename("m.c.one", "uno"),
        lambda: ground.store.schemas.drop("m.c.two"),
        lambda: ground.store.schemas.restore("m.c.old"),
        lambda: ground.store.tables.create_many("m.c.one", [{"name": "u"}, {"name": "v"}]),
        lambda: ground.store.partitions.create(ground.table, "q", values={}),
        lambda: ground.store.partitions.drop(ground.table, "p"),
    ]
    for write in writes:
        with pytest.raises(ms.MetastoreError):
            write()
    assert ground.dump() == before


def _break_the_log(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the database refuse every new row of the operation table."""
    if url.startswith("memory"):

        def no_events(*_: object) -> NoReturn:
            raise ms.InvalidArgument("no events")

        monkeypatch.setattr(memory_commit._Applying, "_log", no_events)
        return
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(NO_EVENTS[engine.dialect.name]))
    finally:
        engine.dispose()
