"""Sixteen writers of one table do different things at once: appends, new columns, properties, expiry of snapshots.

Each acknowledged append is there once, each column and each property too, and the pointer to the metadata file goes
from one commit to the next without a fork.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

import metastore as ms
from tests.iceberg.conftest import properties
from tests.iceberg.server import served

WRITERS = 16


def _append(table: Table, value: int) -> None:
    table.append(pa.table({"n": pa.array([value], pa.int64())}))


def _column(table: Table, value: int) -> None:
    with table.update_schema() as update:
        update.add_column(f"c{value}", IntegerType())


def _property(table: Table, value: int) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({f"p{value}": "set"})


def _expire(table: Table, _: int) -> None:
    main = table.metadata.current_snapshot_id
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != main]
    if old:
        table.maintenance.expire_snapshots().by_ids(old[:1]).commit()


WORK = (_append, _append, _append, _column, _property, _append, _append, _expire)


def _write(catalog: Catalog, number: int, turns: int) -> Counter[str]:
    """Do one writer's work; what is refused (a schema that changed, a snapshot that is gone) is done again."""
    done: Counter[str] = Counter()
    work = WORK[number % len(WORK)]
    for turn in range(turns):
        value = number * 100 + turn
        while True:
            try:
                work(catalog.load_table("a.t"), value)
            except (CommitFailedException, ValueError):  # PyIceberg checks some things itself: ValueError
                assert work is not _append, "an append never fails because of others"
                done["refused"] += 1
                continue
            break
        done[f"{work.__name__} {value}"] += 1
    return done


@pytest.mark.parametrize("turns", [2, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize("over_rest", [False, True], ids=["library", "rest"])
@pytest.mark.timeout(600)
def test_everything_acknowledged_is_there_once(postgres_url: str, tmp_path: Path, turns: int, over_rest: bool) -> None:
    warehouse = tmp_path / "warehouse"
    with served(postgres_url, warehouse) as address:
        catalog = (
            load_catalog("x", type="rest", uri=address, warehouse="lake.ice", **{"header.X-Metastore-Merge": "true"})
            if over_rest
            else load_catalog("x", **properties(postgres_url, warehouse))
        )
        catalog.create_namespace("a")
        none = {"commit.retry.num-retries": "0"}  # PyIceberg's own repeats must not be needed
        catalog.create_table("a.t", pa.schema([("n", pa.int64())]), properties=none)
        with ThreadPoolExecutor(WRITERS) as pool:
            all_done = list(pool.map(lambda number: _write(catalog, number, turns), range(WRITERS)))
        now = catalog.load_table("a.t")
        _check(now, sum(all_done, Counter[str]()))
        catalog.close()
    _check_pointers(postgres_url)


def _check(table: Table, done: Counter[str]) -> None:
    wanted: dict[str, set[int]] = {}
    for key in done:
        if key != "refused":
            name, value = key.split()
            wanted.setdefault(name, set()).add(int(value))
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == sorted(wanted["_append"])
    assert {field.name for field in table.schema().fields} == {"n"} | {f"c{n}" for n in wanted["_column"]}
    assert {f"p{n}" for n in wanted["_property"]} <= set(table.properties)


def _check_pointers(url: str) -> None:
    """Each version's file is the one that the next version has replaced; the feed shows the same swaps."""
    with ms.open(url) as store:
        history = list(store.tables.history("lake.ice.a.t"))
        entities = [version.entity for version in history]
        pointers = [entity.properties["metadata_location"] for entity in entities if entity is not None]
        before = [entity.properties.get("previous_metadata_location") for entity in entities if entity is not None]
        assert before[1:] == pointers[:-1]
        assert len(set(pointers)) == len(pointers) == len(history)
        assert [version.version for version in history] == list(range(1, len(history) + 1))
        swaps = [change.version for change in store.changes() if change.path_after == "lake.ice.a.t"]
        assert swaps == [version.version for version in history]
        assert store.verify() == []
