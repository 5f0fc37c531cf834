"""What people put on tables and partitions stays, also while a crawl runs, and keeps a table from being dropped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from tests.crawl.conftest import Crawler

TABLE = "lake.main.s.t"
Edit = Callable[[ms.Store], object]


@pytest.mark.parametrize("gone", [False, True])
def test_a_table_that_is_being_dropped_in_steps_has_no_second_one(crawler: Crawler, gone: bool) -> None:
    crawler.lake.parquet("s/t/1.parquet", {"x": [1]})
    crawler.crawl()
    crawler.store.tables.rename(TABLE, "u")
    pending = crawler.store.tables.begin_drop("lake.main.s.u")
    if gone:
        shutil.rmtree(crawler.lake.root / "s")
    else:
        crawler.lake.parquet("s/t/2.parquet", {"x": [1]})
    report = crawler.crawl(on_missing="drop", max_missing=1)
    assert [failure.reason[:35] for failure in report.failures] == ["its table is being dropped in steps"] * (not gone)
    pending.roll_back()
    crawler.lake.parquet("s/t/3.parquet", {"x": [1]})
    assert [row.path for row in crawler.crawl().results] == ["lake.main.s.u"]


def tag(store: ms.Store, **column: Any) -> None:
    store.tags.create("lake.pii")
    store.tags.attach(TABLE, "lake.pii", **column)


def policy(store: ms.Store) -> None:
    store.policies.create("lake.keep", type="custom", content={})
    store.policies.attach(TABLE, "lake.keep")


def right(store: ms.Store) -> None:
    store.roles.create("lake.reader")
    store.roles.grant("lake.reader", "select_table", TABLE)


def owner(store: ms.Store) -> None:
    store.users.create(("lake", "ann"))
    store.owners.set(TABLE, ("lake", "ann"))


def part(store: ms.Store) -> None:
    store.partitions.create(TABLE, "m=9", values={"m": "9"})


def on_a_part(store: ms.Store) -> None:
    old = store.partitions.load(TABLE, "m=1")
    row = store.partitions.row("m=1", old.values, {**old.properties, "mine": "x"})
    store.partitions.put_many(TABLE, [row])


def statistic(store: ms.Store) -> None:
    store.statistics.put_many(TABLE, [store.statistics.row("mine", {"a": 1})])


EDITS: dict[str, Edit] = {
    "a tag": tag,
    "a tag on a column": lambda store: tag(store, column="x"),
    "a policy": policy,
    "a right": right,
    "an owner": owner,
    "a partition": part,
    "a property of a partition": on_a_part,
    "a statistic": statistic,
}


@pytest.fixture
def parted(crawler: Crawler) -> Crawler:
    """Give a crawler that has crawled two tables with two partitions each."""
    for name in "tu":
        for month in (1, 2):
            crawler.lake.parquet(f"s/{name}/m={month}/a.parquet", {"x": [1]})
    crawler.crawl()
    return crawler


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("marked", [True, False])
def test_what_people_put_on_a_table_spares_it(parted: Crawler, edit: str, marked: bool) -> None:
    EDITS[edit](parted.store)
    shutil.rmtree(parted.lake.root / "s/t")
    if marked:
        parted.crawl()
    for dry_run in (True, False):
        report = parted.crawl(on_missing="drop", max_missing=1, dry_run=dry_run)
        assert (report.missing, report.dropped) == (1, 0)
        assert any("people have changed it" in note.text for note in report.notes) or not marked
    writes = parted.writes()
    report = parted.crawl(on_missing="drop", max_missing=1)
    assert (report.missing, report.dropped, parted.writes()) == (1, 0, writes)
    assert "people have changed it" in report.notes[0].text


def test_the_crawler_s_own_ownership_and_statistics_spare_nothing(parted: Crawler) -> None:
    table, store = parted.table("s.t"), parted.store
    store.users.create(("lake", "crawler"))
    store.owners.set(table, ("lake", "crawler"))  # as where rights are enforced: who creates owns
    store.statistics.put_many(table, [store.statistics.row("profile", {"rows": 1})])
    shutil.rmtree(parted.lake.root / "s/t")
    assert parted.crawl(on_missing="drop", max_missing=1).dropped == 1


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_what_people_write_on_a_partition_during_the_crawl_stays(
    parted: Crawler, monkeypatch: pytest.MonkeyPatch, together: bool, gone: bool
) -> None:
    parted.lake.parquet("s/t/m=1/b.parquet", {"x": [2]})
    if together:
        parted.lake.parquet("s/u/m=3/a.parquet", {"x": [2]})
    if gone:
        shutil.rmtree(parted.lake.root / "s/t/m=2")
    find, pending = parted.catalog.find, [True]

    def found(*args: Any) -> Any:
        states = find(*args)
        if pending.pop() if pending else False:
            for name in ("m=1", "m=2"):
                old = parted.store.partitions.load(TABLE, name)
                kept = {} if name == "m=2" else dict(old.properties)  # without numFiles it is theirs
                row = parted.store.partitions.row(name, old.values, {**kept, "mine": "x"})
                parted.store.partitions.put_many(TABLE, [row])
        return states

    monkeypatch.setattr(parted.catalog, "find", found)
    report = parted.crawl()
    assert report.failures == ()
    parts = parted.partitions("s.t")
    assert (parts["m=1"]["mine"], parts["m=1"]["numFiles"]) == ("x", "2")
    assert parts["m=2"]["mine"] == "x"


@pytest.mark.parametrize("edit", ["a property", "a statistic"])
def test_a_partition_on_which_people_wrote_stays(parted: Crawler, edit: str) -> None:
    if edit == "a property":
        on_a_part(parted.store)
    else:
        parted.store.statistics.set(TABLE, {"custom-mine": 1}, partition="m=1")
    for name in "tu":
        shutil.rmtree(parted.lake.root / f"s/{name}/m=1")
    report = parted.crawl()
    said = "the partition m=1 has no files any more; people have written on it, so it stays"
    assert report.partitions_removed == 1
    assert [(note.path, note.text) for note in report.notes] == [(TABLE, said)]
    assert (set(parted.partitions("s.t")), set(parted.partitions("s.u"))) == ({"m=1", "m=2"}, {"m=2"})
    writes = parted.writes()
    assert len(parted.crawl().notes) == 1
    assert parted.writes() == writes


def test_a_partition_that_people_keep_makes_no_record_at_each_crawl(crawler: Crawler) -> None:
    """The data set is read each time, because a file of it cannot be used."""
    for day in "ab":
        crawler.lake.parquet(f"s/events/day={day}/f.parquet", {"id": [1]})
    crawler.crawl()
    table = crawler.table("s.events")
    crawler.store.statistics.set(table, {"custom-seen": 1}, partition="day=a")
    shutil.rmtree(crawler.lake.root / "s/events/day=a")
    (crawler.lake.root / "s/events/day=b/broken.parquet").write_bytes(b"no parquet")
    crawler.crawl()
    writes = crawler.writes()
    report = crawler.crawl()
    assert (crawler.writes() - writes, report.run) == (0, None)
    assert set(crawler.partitions("s.events")) == {"day=a", "day=b"}
