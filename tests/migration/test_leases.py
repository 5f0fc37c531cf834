"""Revision 0003, leases: a database of format 2 gets them with all that is in it, and goes back again."""

from __future__ import annotations

import pytest

import metastore as ms
from metastore import database, migrations
from metastore.port.format import SCHEMA_FORMAT
from metastore.urls import parse_url
from tests.contract.ground import dump
from tests.migration.schema import catalog, connected, differences
from tests.migration.test_running import fill

pytestmark = pytest.mark.one_in(3)

OLD = "0002"


@pytest.fixture
def old_url(empty_url: str) -> str:
    """Give a database of format 2 with a little of everything in it, and an intent in its operation table."""
    ms.migrate(empty_url)
    fill(empty_url)
    migrations.downgrade(parse_url(empty_url), OLD)
    return empty_url


def info(url: str) -> tuple[int, int]:
    with connected(url) as connection:
        found, compatible_from = connection.exec_driver_sql("SELECT format, compatible_from FROM info").one()
    return found, compatible_from


def test_a_database_of_format_2_is_upgraded(old_url: str, declared: str) -> None:
    assert info(old_url) == (2, 2)
    ms.migrate(old_url)
    assert info(old_url) == (SCHEMA_FORMAT, SCHEMA_FORMAT)
    assert differences(old_url, declared) == []
    with ms.open(old_url) as opened:
        before = len(list(opened.changes()))
        with opened.leases.acquire("x") as lease:
            opened.tables.alter("m.c.one.wide", ms.SetComment("fenced"), lease=lease)
        assert [c.action for c in opened.changes()][before:] == ["acquire", "alter", "release"]
        assert opened.verify() == []


def test_a_program_of_format_2_is_refused_since_revision_6(old_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps would not say where an entity stood, so that the past would be wrong."""
    ms.migrate(old_url)
    monkeypatch.setattr(database, "SCHEMA_FORMAT", 2)
    with pytest.raises(ms.MigrationNeeded):
        ms.open(old_url)


def test_back_to_format_2_and_up_again(old_url: str, declared: str) -> None:
    old_schema = catalog(old_url)
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        before = dump(opened._session.backend)
        lease = opened.leases.acquire("x")
        lease.stage(opened.tables.load("m.c.one.wide"), "metadata_location", "s3://b/v1")
    migrations.downgrade(parse_url(old_url), OLD)
    assert catalog(old_url) == old_schema
    assert info(old_url) == (2, 2)
    ms.migrate(old_url)
    assert differences(old_url, declared) == []
    with ms.open(old_url) as opened:
        assert dump(opened._session.backend) == before
        assert opened.leases.holder("x") is None
        with pytest.raises(ms.LeaseLost):
            opened.tables.alter("m.c.one.wide", ms.SetComment("late"), lease=lease)
        opened.leases.acquire("x")
        assert opened.verify() == []
