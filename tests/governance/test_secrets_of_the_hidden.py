"""A process without a key does not tell a user what a catalog that the user does not see declares secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import metastore as ms
from metastore import Store
from metastore.secrets.keyring import new_key

SECRET = {"a.token": "v"}
WRITES: dict[str, Callable[[Store, ms.Table], object]] = {
    "catalog": lambda user, _: user.catalogs.alter("lake.hr", ms.SetProperty("a.token", "v")),
    "table": lambda user, _: user.tables.alter("lake.hr.s.t", ms.SetProperty("a.token", "v")),
    "in hand": lambda user, table: user.tables.alter(table, ms.SetProperty("a.token", "v")),
    "create": lambda user, _: user.tables.create("lake.hr.s.new", properties=SECRET),
    "create_many": lambda user, _: user.tables.create_many("lake.hr.s", [{"name": "new", "properties": SECRET}]),
    "partition": lambda user, _: user.partitions.create("lake.hr.s.t", "p", values={}, properties=SECRET),
    "version": lambda user, _: user.models.add_version("lake.hr.s.m", uris={"u": "s3://b"}, properties=SECRET),
    "transaction": lambda user, _: user.run(lambda tx: tx.catalogs.alter("lake.hr", ms.SetProperty("a.token", "v"))),
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Give a catalog that declares a secret; nothing has been encrypted yet, and the key is away."""
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.hr", type="relational")
        store.tables.create("lake.hr.s.t", parents=True)
        store.models.create("lake.hr.s.m")
        store.users.create("lake.eve")
        store.catalogs.alter("lake.hr", ms.SetProperty("metastore.secret-properties", "*.token"))
        monkeypatch.delenv("METASTORE_SECRET_KEY")
        yield store


@pytest.mark.parametrize("write", WRITES)
def test_what_is_missing_is_told_only_to_who_sees_the_catalog(store: Store, write: str) -> None:
    table = store.tables.load("lake.hr.s.t")
    for _ in range(2):  # after the first time, the store remembers what the catalog declares
        with pytest.raises(ms.EntityNotFound):
            WRITES[write](store.as_user("eve"), table)
        with pytest.raises(ms.SecretKeyMissing):
            WRITES[write](store, table)
    store.owners.set("lake.hr", "lake.eve", kind="catalog")
    with pytest.raises(ms.SecretKeyMissing):
        WRITES[write](store.as_user("eve"), table)
