"""A database with a little of everything, and how two databases are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import metastore as ms
from metastore.backends.sql.tables import metadata
from metastore.clock import SYSTEM
from metastore.port.commit import Commit, Committed
from metastore.port.conditions import Guard
from metastore.port.intents import Entry
from metastore.port.writes import Event, Insert, Put
from metastore.store import Store
from tests.contract.ground import Dump, dump

__all__ = ["UNKNOWN", "build", "collect", "difference", "numbers", "opened", "port", "rows"]

ODD = ("a.b", "back`quote", "100%_", "Zürich", "日本語", "with blank", " at both ends ", "line\u2028end", "emoji 🦆")
UNKNOWN = '{"comment":null,"properties":{},"anything":[1,{"b":2.5,"a":null}],"\\u0000":"\\ud800"}'


def opened(url: str) -> Store:
    return ms.open(url, principal="tester")


def port(store: Store) -> Any:
    return store._session.backend


def build(store: Store) -> None:
    """Fill an empty store: all kinds, and one that nobody knows, in all states, with a history."""
    store.metalakes.create("lake", comment="the first", properties={"b": "2", "a": "\u0000"})
    store.metalakes.create("closed")
    catalog = store.catalogs.create("lake.c", type="relational", provider="x")
    columns = [ms.Column("id", "long", nullable=False), ms.Column("at", "timestamp(6)", comment="é")]
    table = store.tables.create("lake.c.s.t", parents=True, columns=columns, partitioning=["day(at)"], format="csv")
    for day in range(5):
        store.partitions.create(table, f"day={day}", values={"day": str(day)}, properties={"n": "1"})
    store.partitions.drop(table, "day=3")
    statistics = store.statistics
    statistics.put_many(table, [statistics.row("all", {"rows": 12, "mean": 0.1, "deep": {"z": [1], "a": None}})])
    for n, name in enumerate(ODD):
        store.tables.create(("lake", "c", "s", name), properties={name: str(n)})
    store.tables.alter(table, ms.AddColumn("x", "map<string,int>"), ms.SetComment("changed"))
    _other_kinds(store)
    _related(store)
    _moved_and_dropped(store)
    _disabled(store)
    _operations(store, table, catalog.id)
    with store.leases.acquire("a lease") as lease:
        store.catalogs.alter("lake.c", ms.SetProperty("under", "a lease"), lease=lease)


def _related(store: Store) -> None:
    """Relations: live ones, with a dead end, of a dropped column, and an exclusive one."""
    store.catalogs.create("lake.governed", type="relational")
    columns = [ms.Column("id", "long"), ms.Column("x", "int")]
    table = store.tables.create("lake.governed.s.t", parents=True, columns=columns)
    store.partitions.create(table, "day=1", values={})
    for name in ("pii", "gone"):
        store.tags.create(("lake", name), allowed_values=("é", "b"))
        store.tags.attach(table, ("lake", name), value="é")
        store.tags.attach(table, ("lake", name), value="b", column="id")
    store.tags.attach(table, "lake.pii", value="b", column="x")
    store.tables.alter(table, ms.DropColumn("x"))
    store.tags.drop("lake.gone")
    ann = store.users.create(("lake", "ann@corp.com"))
    store.groups.create("lake.staff")
    store.roles.create("lake.reader")
    store.owners.set(table, ann)
    store.owners.set(table, "lake.staff")
    store.groups.add("lake.staff", ann)
    store.roles.assign("lake.reader", "lake.staff")
    store.roles.grant("lake.reader", "select_table", table, effect="deny")
    store.users.disable(ann)
    store.statistics.set(table, {"custom-rows": 5})
    store.statistics.set(table, {"custom-rows": 1}, partition="day=1")


def _other_kinds(store: Store) -> None:
    store.filesets.create("lake.c.s.t", locations={"default": "file:///x"})
    store.topics.create("lake.c.s.t", comment="the same name, another family")
    store.views.create("lake.c.s.v", columns=[ms.Column("a", "int")], representations=[ms.SQL("spark", "SELECT 1 a")])
    store.models.create("lake.c.s.m")
    for n in range(3):
        store.models.add_version("lake.c.s.m", uris={"default": f"s3://m/{n}"}, aliases=[f"alias{n}"])
    store.models.set_alias("lake.c.s.m", "prod", 2)
    schema = store.schemas.load("lake.c.s")
    guards = tuple(Guard(n.id, n.scope_version) for n in schema.record.chain)
    box, thing = port(store).reserve_ids(2)
    writes = (
        Insert(schema.id, "box", "boxes", "b", "b", False, UNKNOWN, Event("box", "create", None, "lake.c.s.b"), box),
        Insert(box, "box", "boxes", "b", "b", False, UNKNOWN, Event("box", "create", None, "lake.c.s.b.b"), thing),
        Put(thing, "label", "x", 0, UNKNOWN, Event("label", "create", None, "lake.c.s.b.b.x")),
    )
    for write in writes:  # one by one: a client that puts something into a box has seen the box
        outcome = port(store).commit(Commit(SYSTEM.operation_id(), "other program", guards, (), (write,)))
        assert isinstance(outcome, Committed), outcome


def _moved_and_dropped(store: Store) -> None:
    store.schemas.create("lake.c.old")
    store.tables.create_many("lake.c.old", [{"name": f"n{n}"} for n in range(30)])
    store.catalogs.create("lake.newer", type="relational")
    store.schemas.create("lake.newer.deep.er", parents=True)
    store.schemas.rename("lake.c.old", "lake.newer.deep.er.moved")  # below what has a higher id
    store.tables.drop("lake.newer.deep.er.moved.n7")
    for _ in range(2):  # several of one name
        store.schemas.create("lake.c.gone")
        store.tables.create("lake.c.gone.with_it")
        store.schemas.drop("lake.c.gone", cascade=True)
    store.tables.create("lake.c.s.once")
    store.tables.drop("lake.c.s.once")
    store.tables.restore("lake.c.s.once", to="lake.c.s.twice")
    store.tables.create("lake.c.s.purged")
    store.tables.purge("lake.c.s.purged")


def _disabled(store: Store) -> None:
    store.catalogs.create("closed.folds", type="fileset", fold_case=True)
    store.filesets.create("closed.folds.Straße.İstanbul", parents=True)
    store.catalogs.disable("closed.folds")
    store.metalakes.disable("closed")


def _operations(store: Store, table: ms.Table, catalog_id: int) -> None:
    """Operations that callers named: done, failed, nothing to do; one withdrawn, one that waits."""
    store.tables.alter(table, ms.SetProperty("k", "v"), operation_id=ms.new_operation_id())
    store.tables.drop("lake.c.s.never", operation_id=ms.new_operation_id())
    with contextlib.suppress(ms.EntityAlreadyExists):
        store.schemas.create("lake.c.s", operation_id=ms.new_operation_id())
    changes = '[{"change":"SetComment","text":"later"}]'
    for path in ("lake.newer", None):
        entry = Entry(SYSTEM.operation_id(), "pending", "p", catalog_id, "catalog", path, changes, 1, 3600.0)
        assert isinstance(port(store).write_down(entry), Committed)
        if path is None:
            assert port(store).cancel(entry.operation_id)
    assert port(store).forbid(SYSTEM.operation_id()) is not None


def rows(store: Store) -> Dump:
    """Return every row of every table."""
    return dump(port(store))


def carried(found: Dump) -> Dump:
    """Return the rows without the column that says which program wrote them: an export does not."""
    at = [c.name for c in metadata.tables["operation"].columns if c.name != "generation"].index("writer")
    return {**found, "operation": [(*row[:at], *row[at + 1 :]) for row in found["operation"]]}


def numbers(store: Store) -> Sequence[Any]:
    """Return what is counted: ids, positions, what gc has removed."""
    with port(store).snapshot() as snapshot:
        return [*snapshot.numbers(), *snapshot.rows("info", ("collected_seq",), ("id",))]


def difference(one: Store, other: Store) -> list[str]:
    """Return the tables in which two databases differ, row by row. Leases stay where they are held."""
    ours, theirs = carried(rows(one)), carried(rows(other))
    assert set(ours) == set(metadata.tables) - {"info"}
    found = [name for name in ours if ours[name] != theirs[name] and name != "lease"]
    return found + (["numbers"] if numbers(one) != numbers(other) else [])


def collect(store: Store) -> None:
    """Let gc remove what it can."""
    store.gc(retention=timedelta(0), keep_versions=1)
