"""Revision 0006 tells where the rows of old steps stood: as the program that wrote them would have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import migrations
from metastore.urls import parse_url
from tests.migration.schema import catalog, connected, differences, run
from tests.past.test_as_of import grown
from tests.past.trees import tree, without_makers

pytestmark = pytest.mark.one_in(3)

OLD = "0005"
_PLACES = """SELECT seq, parent_id, name, fold, state, family, key, through FROM operation
  WHERE seq IS NOT NULL ORDER BY seq"""


def places(url: str) -> list[tuple[Any, ...]]:
    """Return where each step says that its row stood."""
    with connected(url) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(_PLACES).all()]


def more(store: ms.Store) -> None:
    """Do what the random history does not: names with dots, disabled catalogs, tags, leases, dropped rows."""
    store.catalogs.disable("m.c")
    store.catalogs.enable("m.c")
    store.catalogs.rename("m.c", "`c.d`")
    store.catalogs.rename("m.`c.d`", "c")
    store.tables.create("m.c.`x.y`.t", parents=True)
    store.schemas.rename("m.c.`x.y`", "`a``b.`")
    store.statistics.put_many("m.c.`a``b.`.t", [store.statistics.row("p.q", {"n": 1}), store.statistics.row("z", {})])
    store.statistics.drop("m.c.`a``b.`.t", "p.q")
    store.tags.create("m.tag")
    store.tags.attach("m.c.`a``b.`.t", "m.tag", kind="table")
    with store.leases.acquire("work"):
        pass


def test_the_replay_gives_what_was_written(empty_url: str) -> None:
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        trees = grown(store, 70, 60)
        more(store)
        trees[store.position()] = tree(store)
    expected = places(empty_url)
    migrations.downgrade(parse_url(empty_url), OLD)
    ms.migrate(empty_url)
    found = places(empty_url)
    assert [row for row in found if row not in expected] == []
    assert found == expected
    with ms.open(empty_url) as store:
        for position, then in trees.items():
            assert tree(store.at(position)) == then
        assert store.verify() == []


def test_where_gc_has_cut_the_history_the_past_begins_with_the_migration(empty_url: str) -> None:
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        trees = grown(store, 71, 30)
        assert store.gc(retention=timedelta(0), keep_versions=1).versions > 0
        now, position = tree(store), store.position()
    migrations.downgrade(parse_url(empty_url), OLD)
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        assert without_makers(tree(store.at(position))) == without_makers(now)
        with pytest.raises(ms.errors.HistoryGone) as gone:
            store.at(min(trees))
        assert gone.value.since.split("-")[1] == position.split("-")[1][:16]
        store.tables.create("m.c.x.t", parents=True)
        assert tree(store.at(store.position())) == tree(store)
        assert store.verify() == []


def test_a_purge_of_a_table_with_partitions_costs_no_past(empty_url: str) -> None:
    """Only the purged table's own history is gone; what could be seen of the others can be seen after the migration."""
    ms.migrate(empty_url)
    shown = dict[str, Any]()
    with ms.open(empty_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.kept", parents=True)
        store.tables.create("m.c.s.gone", columns=[ms.Column("d", "date")], partitioning=["d"])
        store.partitions.create("m.c.s.gone", "d=1", values={"d": "1"})
        store.statistics.put_many("m.c.s.gone", [store.statistics.row("n", {"a": 1})])
        store.tables.alter("m.c.s.kept", ms.SetComment("once"))
        before = store.position()
        store.tables.purge("m.c.s.gone")
        store.gc(retention=timedelta(days=1), keep_versions=100)
        store.tables.alter("m.c.s.kept", ms.SetComment("twice"))
        shown = {position: tree(store.at(position)) for position in (before, store.position())}
    migrations.downgrade(parse_url(empty_url), OLD)
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        for position, then in shown.items():
            assert tree(store.at(position)) == then
        assert store.verify() == []


@pytest.mark.parametrize("damage", ["name = 'other', key = 'other'", "parent_id = 1"])
def test_a_replay_that_leads_elsewhere_does_not_count(empty_url: str, damage: str) -> None:
    """The tables were changed by hand: the past then begins with the migration, as the tables are."""
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        before = store.position()
        table = store.tables.create("m.c.s.t", parents=True)
        position = store.position()
    migrations.downgrade(parse_url(empty_url), OLD)
    run(empty_url, f"UPDATE guard SET {damage}, scope_version = scope_version + 1 WHERE id = {table.id}")
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        with pytest.raises(ms.errors.HistoryGone):
            store.at(before)
        store.at(position)
    assert [row[1:3] for row in places(empty_url)][-1] != (None, None)


def test_there_and_back(empty_url: str, declared: str) -> None:
    ms.migrate(empty_url)
    migrations.downgrade(parse_url(empty_url), OLD)
    before = catalog(empty_url)
    with connected(empty_url) as connection:
        assert connection.exec_driver_sql("SELECT format FROM info").scalar() == 5
    ms.migrate(empty_url)
    assert differences(empty_url, declared) == []
    migrations.downgrade(parse_url(empty_url), OLD)
    assert catalog(empty_url) == before
