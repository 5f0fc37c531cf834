"""What a scrub or a rotation took away is in none of the bytes of SQLite's files."""

from __future__ import annotations

from pathlib import Path

import pytest

import metastore as ms
from metastore.backends.sqlite.connect import DRIVER
from metastore.secrets.keyring import VARIABLE, new_key

PLAIN = "plain-secret-of-the-past"
PATTERNS = "metastore.secret-properties"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a database whose history has a plain value, of which pages are free already."""
    monkeypatch.setenv(VARIABLE, new_key())
    path = tmp_path / "m.db"
    with ms.open(f"sqlite:///{path}") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        for n in range(20):
            table = store.tables.create(f"m.c.s.t{n}", parents=True, properties={"password": f"{PLAIN} {n}" * 50})
            store.tables.alter(table, ms.SetProperty("password", PLAIN))
        store.tables.purge("m.c.s.t0")
        store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password"))
    return path


def found_in(path: Path, text: str) -> list[str]:
    """Return the database's files that have a text in their bytes."""
    return [one.name for one in sorted(path.parent.glob("m.db*")) if text.encode() in one.read_bytes()]


def test_a_scrub_leaves_no_bytes(file: Path) -> None:
    assert found_in(file, PLAIN)
    with ms.open(f"sqlite:///{file}") as store:
        assert store.secrets.scrub().erased
        assert found_in(file, PLAIN) == []  # while the log is open too
        assert store.reveal("m.c.s.t1", "password") == PLAIN
        assert store.verify() == []
    assert found_in(file, PLAIN) == []


def test_a_reader_of_an_earlier_instant_keeps_bytes_and_the_scrub_says_so(file: Path) -> None:
    """Also the negative control: the redaction alone leaves bytes."""
    reader = DRIVER.connect(file, isolation_level=None)
    with ms.open(f"sqlite:///{file}", deadline=2.0) as store:
        store.schemas.create("m.c.other")  # something is in the log
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM operation").fetchall()
        assert not store.secrets.scrub().erased
        assert found_in(file, PLAIN)
        reader.close()
        assert store.secrets.scrub().erased
        assert found_in(file, PLAIN) == []


def test_a_destroyed_key_leaves_no_bytes(file: Path) -> None:
    with ms.open(f"sqlite:///{file}") as store:
        store.secrets.scrub()
        (row,) = store._session.backend.secret_keys.rows()
        assert row.wrapped is not None
        assert found_in(file, row.wrapped)
        done = store.secrets.rotate(reencrypt=True)
        assert done.destroyed == (1,)
        assert done.erased
        assert found_in(file, row.wrapped) == []
