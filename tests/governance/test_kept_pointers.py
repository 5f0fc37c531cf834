"""A user keeps a table's metadata file, and sets none: not either while Iceberg's server commits another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import metastore as ms
from metastore import Store
from metastore.port.backend import Guards
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.intents import Entry
from metastore.port.records import Known
from metastore.port.writes import Update
from tests.contract.authorized import prepare

ANN = "ann@corp"
ORDERS, POINTER = "lake.sales.eu.orders", "metadata_location"


@pytest.fixture
def trusted(sqlite_url: str) -> Iterator[Store]:
    """Give a store in which ann may alter the table ``orders``, which has a metadata file."""
    with ms.open(sqlite_url) as store:
        lake = prepare(store)
        lake.role(
            "writer", *[(word, "catalog", "lake.sales") for word in ("use_catalog", "use_schema", "modify_table")]
        )
        store.tables.alter(ORDERS, ms.SetProperty(POINTER, "f0"))
        yield store


@pytest.fixture
def anns(sqlite_url: str) -> Iterator[Store]:
    """Give the store of another program, which works for ann."""
    with ms.open(sqlite_url) as store:
        yield store


def test_a_file_that_is_written_back_does_not_come_back_later(
    trusted: Store, anns: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alter that loses is announced, and others apply it: they would take back the commit that it lost to."""
    backend, count = anns._session.backend, 0
    commit, write_down = backend.commit, backend.write_down

    def beaten(wanted: Commit) -> CommitOutcome:
        nonlocal count
        if any(isinstance(write, Update) for write in wanted.writes):
            count += 1
            change = ms.SetProperty(POINTER, "f1") if count > 3 else ms.SetComment(f"{count} times")
            trusted.tables.alter(ORDERS, change)
        return commit(wanted)

    def late(entry: Entry) -> CommitOutcome:
        trusted.tables.alter(ORDERS, ms.SetProperty(POINTER, "f1"))
        return write_down(entry)

    monkeypatch.setattr(backend, "commit", beaten)
    monkeypatch.setattr(backend, "write_down", late)
    with pytest.raises(ms.PermissionDenied, match="may not set or remove"):
        anns.as_user(ANN).tables.alter(ORDERS, ms.SetProperty(POINTER, "f0"), ms.SetComment("ann's"))
    assert count > 1
    assert trusted.tables.load(ORDERS).properties[POINTER] == "f1"


def test_an_alter_beside_a_commit_is_not_refused(trusted: Store, anns: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table had another file by the time that its right was checked: then it is tried again."""
    swaps, backend = [2, 1], anns._session.backend
    by_id = backend.by_id_holding

    def late(ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        if swaps:
            trusted.tables.alter(ORDERS, ms.SetProperty(POINTER, f"f{swaps.pop()}"))
        return by_id(ids, guards)

    monkeypatch.setattr(backend, "by_id_holding", late)
    ann = anns.as_user(ANN)
    assert ann.tables.alter(ORDERS, ms.SetProperty("k", "v")).properties["k"] == "v"
    assert not swaps


def test_a_user_does_not_take_the_file_away(trusted: Store, anns: Store) -> None:
    """It could then set the location, which would be that of another table."""
    ann = anns.as_user(ANN)
    with pytest.raises(ms.PermissionDenied, match="may not set or remove"):
        ann.tables.alter(ORDERS, ms.RemoveProperty(POINTER))
    with pytest.raises(ms.PermissionDenied, match="may not set or remove"):
        ann.tables.alter(ORDERS, ms.RemoveProperty(POINTER), ms.SetProperty("k", "v"))
    with pytest.raises(ms.PermissionDenied):
        ann.tables.create(ORDERS, if_exists="replace", comment="mine")
    assert trusted.tables.load(ORDERS).properties[POINTER] == "f0"
    assert ann.tables.alter(ORDERS, ms.RemoveProperty("none"), ms.SetComment("ann's")).comment == "ann's"
    trusted.tables.alter(ORDERS, ms.RemoveProperty(POINTER))
    assert ann.tables.alter(ORDERS, ms.RemoveProperty(POINTER)).comment == "ann's"


def test_a_user_does_not_take_the_uuid_of_another_table(trusted: Store, anns: Store) -> None:
    """A purge of that table would leave its files, because this one seemed to have them too."""
    ann = anns.as_user(ANN)
    with pytest.raises(ms.PermissionDenied, match="table_uuid"):
        ann.tables.alter(ORDERS, ms.SetProperty("table_uuid", "another's"))
    trusted.tables.alter(ORDERS, ms.SetProperty("table_uuid", "its own"))
    for change in (ms.SetProperty("table_uuid", "another's"), ms.RemoveProperty("table_uuid")):
        with pytest.raises(ms.PermissionDenied, match="table_uuid"):
            ann.tables.alter(ORDERS, change)
    assert ann.tables.alter(ORDERS, ms.SetProperty("table_uuid", "its own"), ms.SetComment("ann's")).comment == "ann's"
