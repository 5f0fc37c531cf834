"""A property that is a secret: every reader is shown a reference; only ``reveal`` reads the secret itself."""

from __future__ import annotations

import json
import logging
from io import BytesIO
from pathlib import Path

import pytest

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity
from tests.contract.ground import Ground, dump

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

SECRET = "hunter2-and-more"
REFERENCE = "env:METASTORE_TEST_PASSWORD"


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_TEST_PASSWORD", SECRET)


@pytest.fixture
def catalog(store: Store) -> Entity:
    """Give a catalog whose password is a secret."""
    store.metalakes.create("m")
    return store.catalogs.create("m.c", type="relational", properties={"user": "ada", "password": ms.secret(REFERENCE)})


def test_load_gives_the_reference_and_reveal_the_secret(store: Store, catalog: Entity) -> None:
    for entity in (catalog, store.catalogs.load("m.c"), *store.catalogs.list("m"), *store.find("m")):
        assert entity.properties == {"user": "ada", "password": REFERENCE}
        assert isinstance(entity.properties["password"], ms.Secret)
        assert not isinstance(entity.properties["user"], ms.Secret)
    assert store.reveal("m.c", "password") == SECRET
    assert store.reveal(catalog, "password") == SECRET
    assert store.reveal("m.c", "password", kind="catalog") == SECRET


def test_a_file_is_read_without_the_line_feed_at_its_end(store: Store, catalog: Entity, tmp_path: Path) -> None:
    place = tmp_path / "password"
    place.write_text(SECRET + "\n")
    store.catalogs.alter("m.c", ms.SetProperty("password", ms.secret(f"file:{place}")))
    assert store.catalogs.load("m.c").properties["password"] == f"file:{place}"
    assert store.reveal("m.c", "password") == SECRET


def test_the_secret_is_nowhere(store: Store, catalog: Entity, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    other = ms.SetProperty("token", ms.secret(REFERENCE), expected=None)
    altered = store.catalogs.alter(catalog, other)
    store.catalogs.rename(altered, "d")
    assert store.reveal("m.d", "token") == SECRET
    file = BytesIO()
    store.export_to(file)
    shown = [
        json.dumps(store.catalogs.load("m.d").to_dict()),
        *[json.dumps(change.to_dict()) for change in store.changes()],
        *[json.dumps(version.to_dict()) + repr(version) for version in store.catalogs.history("m.d")],
        file.getvalue().decode(),
        repr(altered) + repr(altered.properties) + repr(other),
        repr(dump(store._session.backend)),
        caplog.text,
    ]
    for text in shown:
        assert SECRET not in text
    assert "METASTORE_TEST_PASSWORD" in shown[0]


def test_errors_do_not_show_the_secret(store: Store, catalog: Entity, tmp_path: Path) -> None:
    with pytest.raises(ms.InvalidArgument, match="env:NAME or file:/path") as refused:
        ms.secret(SECRET)
    assert SECRET not in str(refused.value)
    with pytest.raises(ms.VersionConflict) as conflict:
        store.catalogs.alter("m.c", ms.SetProperty("password", "new", expected="other"))
    assert SECRET not in json.dumps(conflict.value.to_dict())
    (tmp_path / "binary").write_bytes(SECRET.encode() + b"\xff")
    store.catalogs.alter("m.c", ms.SetProperty("password", ms.secret(f"file:{tmp_path / 'binary'}")))
    with pytest.raises(ms.InvalidArgument, match="UTF-8") as unreadable:
        store.reveal("m.c", "password")
    assert SECRET not in str(unreadable.value)
    assert unreadable.value.__cause__ is None


def test_reveal_says_what_is_missing(store: Store, catalog: Entity, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ms.InvalidArgument, match="not a secret"):
        store.reveal("m.c", "user")
    with pytest.raises(ms.EntityNotFound, match="no property"):
        store.reveal("m.c", "nothing")
    with pytest.raises(ms.EntityNotFound):
        store.reveal("m.x", "password")
    with pytest.raises(ms.InvalidArgument, match="no kind"):
        store.reveal("m.c", "password", kind="horse")
    monkeypatch.delenv("METASTORE_TEST_PASSWORD")
    with pytest.raises(ms.InvalidArgument, match="METASTORE_TEST_PASSWORD"):
        store.reveal("m.c", "password")
    store.catalogs.alter("m.c", ms.SetProperty("password", ms.secret("file:/nowhere/at/all")))
    with pytest.raises(ms.InvalidArgument, match="/nowhere/at/all"):
        store.reveal("m.c", "password")


def test_expected_compares_references(store: Store, catalog: Entity) -> None:
    new = ms.secret("env:OTHER")
    store.catalogs.alter("m.c", ms.SetProperty("password", new, expected=ms.secret(REFERENCE)))
    assert store.catalogs.load("m.c").properties["password"] == "env:OTHER"
    with pytest.raises(ms.VersionConflict):
        store.catalogs.alter("m.c", ms.SetProperty("password", new, expected=REFERENCE))


def test_clients_write_a_reference_as_text(store: Store, catalog: Entity) -> None:
    given = store.catalogs.load("m.c").to_dict()["properties"]
    assert given == {"user": "ada", "password": f"secret:{REFERENCE}"}
    copy = store.catalogs.create("m.copy", type="relational", properties=given)
    assert copy.properties == catalog.properties
    assert store.reveal(copy, "password") == SECRET
    change = ms.change_from_dict(ms.SetProperty("password", ms.secret(REFERENCE)).to_dict())
    assert change == ms.SetProperty("password", ms.secret(REFERENCE))
    text = store.catalogs.alter("m.c", ms.SetProperty("password", "secret:of the trade"))
    assert not isinstance(text.properties["password"], ms.Secret)


def test_a_property_is_revealed_as_what_is_committed(ground: Ground) -> None:
    store = ground.store
    table = store.tables.create("m.c.two.t", properties={"token": ms.secret(REFERENCE)})
    assert store.reveal("m.c.two.t", "token") == SECRET
    store.tables.drop(table)
    with pytest.raises(ms.EntityNotFound):
        store.reveal(table, "token")


def test_rows_made_in_bulk_refer_to_secrets_too(ground: Ground) -> None:
    rows = [{"name": f"t{n}", "properties": {"token": ms.secret(REFERENCE)}} for n in range(3)]
    assert ground.store.tables.create_many(ground.two, rows) == 3
    assert ground.store.reveal("m.c.two.t2", "token", kind="table") == SECRET
