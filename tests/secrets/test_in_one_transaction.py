"""A transaction changes what a catalog declares: its next calls go by that, calls after its refusal do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import metastore as ms
from metastore.secrets.keyring import VARIABLE, new_key
from metastore.store import Store
from metastore.transaction.transaction import Transaction

PATTERNS = "metastore.secret-properties"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, new_key())


def _prepare(store: Store, declared: str) -> None:
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational", properties={PATTERNS: declared} if declared else {})
    store.schemas.create("lake.c.s")


def by_alter(tx: Transaction) -> None:
    tx.catalogs.alter("lake.c", ms.SetProperty(PATTERNS, "password"))


def by_replacing(tx: Transaction) -> None:
    tx.catalogs.create("lake.c", type="relational", properties={PATTERNS: "password"}, if_exists="replace")


@pytest.mark.parametrize("declare", [by_alter, by_replacing])
def test_a_value_after_the_declaration_is_encrypted(declare: Callable[[Transaction], None]) -> None:
    with ms.open("memory://") as store:
        _prepare(store, "")
        store.schemas.alter("lake.c.s", ms.SetProperty("team", "shop"))  # the store remembers the settings
        with store.transaction() as tx:
            tx.schemas.alter("lake.c.s", ms.SetComment("read before"))
            declare(tx)
            tx.tables.create("lake.c.s.t", properties={"password": "hunter2"})
        assert isinstance(store.tables.load("lake.c.s.t").properties["password"], ms.Secret)
        assert store.reveal("lake.c.s.t", "password") == "hunter2"
        assert list(store.verify()) == []


def _undeclare_and_fail(tx: Transaction) -> None:
    tx.catalogs.create("lake.c", type="relational", if_exists="replace")
    tx.tables.create("lake.c.s.t", properties={"password": "open"})
    raise KeyError


def test_a_refused_transaction_leaves_no_settings_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with ms.open(url) as store:
        _prepare(store, "password")
    with ms.open(url) as store:
        with pytest.raises(KeyError):
            store.run(_undeclare_and_fail)
        store.tables.create("lake.c.s.t", properties={"password": "hunter2"})
        assert store.reveal("lake.c.s.t", "password") == "hunter2"
        assert list(store.verify()) == []
