"""Revision 0004, the index of names: made on a database that is in use, which older programs go on to use."""

from __future__ import annotations

import threading

import pytest

import metastore as ms
from metastore import database, migrations
from metastore.urls import parse_url
from tests.contract.ground import dump
from tests.migration.schema import catalog, connected, differences
from tests.migration.test_running import fill

OLD = "0003"


@pytest.fixture
def old_url(empty_url: str) -> str:
    """Give a database of format 3 with a little of everything in it."""
    ms.migrate(empty_url)
    fill(empty_url)
    migrations.downgrade(parse_url(empty_url), OLD)
    return empty_url


def test_it_is_made_while_an_older_program_writes(old_url: str, declared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older program is opened before, and goes on during and after it; a second one is opened after."""
    done = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(database, "FORMAT", 3)
        old = ms.open(old_url)
    written = 0

    def write() -> None:
        nonlocal written
        while not done.is_set() or written < 5:
            old.schemas.create(f"m.c.made{written}")
            written += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        ms.migrate(old_url)
    finally:
        done.set()
        thread.join()
    old.schemas.create("m.c.after")
    assert differences(old_url, declared) == []
    with ms.open(old_url) as new:
        assert len(list(new.find("m.c", name="made*", kind="schema"))) == written
        assert new.verify() == []
    with monkeypatch.context() as patch:
        patch.setattr(database, "FORMAT", 3)
        with ms.open(old_url) as again:
            again.schemas.create("m.c.again")
    old.close()


def test_there_and_back(old_url: str, declared: str) -> None:
    before = catalog(old_url)
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        rows = dump(opened._session.backend)
    migrations.downgrade(parse_url(old_url), OLD)
    assert catalog(old_url) == before
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        assert dump(opened._session.backend) == rows
    assert differences(old_url, declared) == []
    with connected(old_url) as connection:
        assert connection.exec_driver_sql("SELECT format, compatible_from FROM info").one() == (4, 2)
