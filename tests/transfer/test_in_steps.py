"""Imports over what is being dropped in steps."""

from __future__ import annotations

import io

import pytest

import metastore as ms
from metastore.store import Store
from tests.transfer.test_into import exported

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


def test_a_replacement_leaves_what_is_being_dropped_in_steps(store: Store) -> None:
    """A column whose data is half destroyed is not seen again, also if it had another name in the file."""
    table = partitioned(store)
    before, _ = exported(store, "lake.c.s.t")
    store.tables.alter(table, ms.RenameColumn("b", "renamed"))
    column = store.tables.begin_drop(table, column="renamed")
    now, _ = exported(store, "lake.c.s.t")
    assert store.import_from(now, if_exists="error").written == 0
    with pytest.raises(ms.DropPending, match=r"dropping lake.c.s.t.renamed"):
        store.import_from(before, if_exists="replace")
    column.roll_back()
    store.import_from(rewound(before), if_exists="replace")
    assert [(c.name, c.id) for c in store.tables.load(table).columns] == [("a", 1), ("b", 2)]
    partition = store.partitions.begin_drop(table, "a=1")
    store.tables.alter(table, ms.SetComment("left"))
    with pytest.raises(ms.DropPending, match=r"dropping lake.c.s.t.a=1"):
        store.import_from(rewound(before), if_exists="replace")
    assert store.tables.load(table).comment == "left"
    partition.roll_back()
    assert store.verify() == []


def partitioned(store: Store) -> ms.Table:
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    columns = [ms.Column("a", "long"), ms.Column("b", "long")]
    table = store.tables.create("lake.c.s.t", parents=True, columns=columns, partitioning=["a"])
    store.partitions.create(table, "a=1", values={"a": "1"}, properties={"k": "v"})
    return table


def rewound(stream: io.BytesIO) -> io.BytesIO:
    stream.seek(0)
    return stream
