"""The warning of SQLite's WAL-reset bug: to those who write a file, and once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import metastore as ms
from metastore.backends.sqlite import connect as sqlite_connect


@pytest.fixture
def old_sqlite(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Take the SQLite of this machine for an old one; return what is logged."""
    monkeypatch.setattr(sqlite_connect, "_FIXED", (99, 0, 0))
    sqlite_connect._warn_once.cache_clear()
    caplog.set_level(logging.WARNING, "metastore")
    return caplog


def test_readers_are_not_warned_and_writers_once(old_sqlite: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with ms.open(url):
        pass  # it makes the tables
    old_sqlite.clear()
    sqlite_connect._warn_once.cache_clear()
    with ms.open(url) as store:
        assert list(store.metalakes.list()) == []
        assert store.verify() == []
        assert old_sqlite.records == []
        store.metalakes.create("m")
        store.metalakes.create("n")
    with ms.open(url) as store:
        store.metalakes.drop("n")
    assert ["can corrupt a WAL file" in record.getMessage() for record in old_sqlite.records] == [True]


def test_who_writes_in_memory_is_not_warned(old_sqlite: pytest.LogCaptureFixture) -> None:
    with ms.open("sqlite://") as store:
        store.metalakes.create("m")
    assert old_sqlite.records == []


def test_a_sqlite_with_the_mend_is_not_warned_of(
    old_sqlite: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sqlite_connect, "_FIXED", (3, 0, 0))
    with ms.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.metalakes.create("m")
    assert old_sqlite.records == []
