"""Every kind of mutation that can be made under a lease, on a catalog of its own making."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import metastore as ms
from metastore.port.leases import PUBLISHED
from metastore.transaction.transaction import Transaction
from tests.concurrency.raw import rows

__all__ = ["NOTHING_TO_WRITE", "WORK", "S", "furnish", "picture", "work_of"]

Work = Callable[[ms.Store, ms.Lease], object]
S = "lake.cat.s"


def furnish(store: ms.Store) -> None:
    """Make what the works need."""
    store.metalakes.create("lake")
    store.metalakes.create("pond")
    store.catalogs.create("lake.cat", type="relational")
    store.catalogs.create("lake.off", type="relational")
    store.catalogs.disable("lake.off")
    store.tables.create(f"{S}.t", parents=True, properties={"k": "v"})
    for name in ("other", "doomed", "purged", "gone"):
        store.tables.create(f"{S}.{name}")
    store.tables.drop(f"{S}.gone")
    store.tables.create("lake.cat.full.inside", parents=True)
    store.partitions.create(f"{S}.t", "old", values={"p": "0"})
    store.models.create(f"{S}.m")
    store.models.add_version(f"{S}.m", uris={"default": "s3://a"}, aliases=("live",))
    store.models.add_version(f"{S}.m", uris={"default": "s3://b"})


def _in_a_block(store: ms.Store, lease: ms.Lease) -> None:
    with store.transaction(lease=lease) as tx:
        tx.tables.alter(f"{S}.t", ms.SetComment("late"))
        tx.tables.create(f"{S}.late")
        tx.partitions.create(f"{S}.t", "late", values={"p": "1"})


def _run(store: ms.Store, lease: ms.Lease) -> None:
    def both(tx: Transaction) -> None:
        tx.tables.drop(f"{S}.doomed")
        tx.tables.rename(f"{S}.t", "late")

    store.run(both, lease=lease)


def _published(store: ms.Store, lease: ms.Lease) -> None:
    lease.stage(store.tables.load(f"{S}.t"), "metadata_location", "s3://late/v1.json")
    lease.publish(ms.SetComment("late"))


def _staged(store: ms.Store, lease: ms.Lease) -> None:
    lease.stage(store.tables.load(f"{S}.t"), "metadata_location", "s3://late/v1.json")


WORK: dict[str, Work] = {
    "create": lambda s, lease: s.tables.create(f"{S}.late", lease=lease),
    "create with parents": lambda s, lease: s.tables.create("lake.cat.new.late", parents=True, lease=lease),
    "replace": lambda s, lease: s.tables.create(f"{S}.t", if_exists="replace", comment="late", lease=lease),
    "create_many": lambda s, lease: s.tables.create_many(S, [{"name": "a"}, {"name": "b"}], lease=lease),
    "alter": lambda s, lease: s.tables.alter(f"{S}.t", ms.SetComment("late"), lease=lease),
    "alter in hand": lambda s, lease: s.tables.alter(s.tables.load(f"{S}.t"), ms.SetComment("late"), lease=lease),
    "alter at a version": lambda s, lease: s.tables.alter(
        f"{S}.t", ms.SetComment("late"), expected_version=1, lease=lease
    ),
    "alter with an id": lambda s, lease: s.tables.alter(
        f"{S}.t", ms.SetComment("late"), operation_id=ms.new_operation_id(), lease=lease
    ),
    "rename": lambda s, lease: s.tables.rename(f"{S}.t", "late", lease=lease),
    "move": lambda s, lease: s.tables.rename(f"{S}.t", "lake.cat.full.late", lease=lease),
    "drop": lambda s, lease: s.tables.drop(f"{S}.doomed", lease=lease),
    "drop cascade": lambda s, lease: s.schemas.drop("lake.cat.full", cascade=True, lease=lease),
    "drop an empty one": lambda s, lease: s.metalakes.drop("pond", lease=lease),
    "restore": lambda s, lease: s.tables.restore(f"{S}.gone", lease=lease),
    "purge": lambda s, lease: s.tables.purge(f"{S}.purged", lease=lease),
    "enable": lambda s, lease: s.catalogs.enable("lake.off", lease=lease),
    "disable": lambda s, lease: s.metalakes.disable("lake", lease=lease),
    "partition": lambda s, lease: s.partitions.create(f"{S}.t", "late", values={"p": "1"}, lease=lease),
    "drop a partition": lambda s, lease: s.partitions.drop(f"{S}.t", "old", lease=lease),
    "model version": lambda s, lease: s.models.add_version(f"{S}.m", uris={"default": "s3://late"}, lease=lease),
    "alias": lambda s, lease: s.models.set_alias(f"{S}.m", "live", 2, lease=lease),
    "drop a model version": lambda s, lease: s.models.drop_version(f"{S}.m", 2, lease=lease),
    "transaction": _in_a_block,
    "run": _run,
    "publish": _published,
}

NOTHING_TO_WRITE: dict[str, Work] = {
    "alter to what it is": lambda s, lease: s.tables.alter(f"{S}.t", ms.SetProperty("k", "v"), lease=lease),
    "create what is there": lambda s, lease: s.tables.create(f"{S}.t", if_exists="return", lease=lease),
    "drop what is not there": lambda s, lease: s.tables.drop(f"{S}.never", lease=lease),
    "an empty transaction": lambda s, lease: s.run(lambda tx: None, lease=lease),
}
"""They write nothing; a holder who is late is told all the same."""


def _do(what: str, store: ms.Store, lease: ms.Lease) -> object:
    return (WORK | NOTHING_TO_WRITE)[what](store, lease)


def work_of(what: str) -> Work:
    """Return a work that another process can be told to do."""
    return partial(_do, what)


def picture(url: str) -> dict[str, list[tuple[object, ...]]]:
    """What is in the database, but for the leases themselves and what is staged and not published."""
    return {
        "guards": rows(url, "SELECT * FROM guard ORDER BY id"),
        "entities": rows(url, "SELECT * FROM entity ORDER BY id"),
        "owned": rows(url, "SELECT * FROM owned ORDER BY id"),
        "published": rows(url, f"SELECT * FROM staged WHERE state = {PUBLISHED} ORDER BY id"),
        "operations": rows(url, "SELECT * FROM operation WHERE kind <> 'lease' ORDER BY seq, operation_id, ordinal"),
    }
