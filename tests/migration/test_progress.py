"""Revision 0002, intents and marks: a database of format 1 gets it with all that is in it, and goes back again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import text

import metastore as ms
from metastore import database, migrations
from metastore.port.commit import Committed
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.intents import Entry, Mark
from metastore.urls import parse_url
from tests.contract.ground import dump
from tests.migration.schema import catalog, connected, differences, run
from tests.migration.test_running import fill

pytestmark = pytest.mark.one_in(3)

OLD = "0001"
TABLES = ("guard", "entity", "owned", "operation", "info")
TOMBSTONE = "01890000-0000-7000-8000-000000000001"
NEW_COLUMNS = {
    "guard": {"mark", "marked_at", "marked_until", "quiet_until"},
    "operation": {"attempt", "deadline", "digest", "result", "format", "fences"},
    "info": {"forgotten"},
}
LATER = {
    "operation": {
        *("parent_id", "name", "fold", "state", "family", "key", "through", "other_id", "other_path"),
        *("generation", "writer"),
    },
    "info": {"past_from", "writer"},
}
"""Columns that a later revision adds, and fills."""
Rows = dict[str, list[dict[str, Any]]]


def rows_of(url: str) -> Rows:
    """Return all rows of all tables by column, but for what a migration changes in ``info``."""
    found: Rows = {}
    with connected(url) as connection:
        for table in TABLES:
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().all()
            found[table] = sorted((dict(row) for row in rows), key=repr)
    return found


def shared(rows: Rows) -> Rows:
    """Leave out what format 1 does not have."""
    less = {t: NEW_COLUMNS.get(t, set()) | LATER.get(t, set()) | {"format", "compatible_from"} for t in TABLES}
    return {t: sorted(({k: v for k, v in r.items() if k not in less[t]} for r in rows[t]), key=repr) for t in TABLES}


def plant(url: str, rows: Rows) -> None:
    """Put rows into a database that is empty but for its root, as a program of format 1 left them."""
    with connected(url) as connection:
        for table in TABLES:
            connection.exec_driver_sql(f"DELETE FROM {table}")
            for row in rows[table]:
                _insert(connection, table, {"format": 1, "compatible_from": 1, **row} if table == "info" else row)
        _insert(connection, "operation", {"operation_id": TOMBSTONE, "ordinal": 0, "action": "forbidden", "time": 7})
        if connection.dialect.name == "postgresql":
            for sequence, column, owner in (("entity_id_seq", "id", "entity"), ("change_seq", "seq", "operation")):
                connection.exec_driver_sql(f"SELECT setval('{sequence}', (SELECT max({column}) + 9 FROM {owner}))")


def _insert(connection: Any, table: str, row: Mapping[str, Any]) -> None:
    columns: Sequence[str] = list(row)
    values = ", ".join(f":{column}" for column in columns)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"), dict(row))


@pytest.fixture
def old_url(empty_url: str) -> str:
    """Give a database of format 1 with a little of everything in it, and a tombstone."""
    ms.migrate(empty_url)
    fill(empty_url)
    rows = shared(rows_of(empty_url))
    migrations.downgrade(parse_url(empty_url), "base")
    migrations.upgrade(parse_url(empty_url), OLD)
    plant(empty_url, rows)
    return empty_url


def test_a_database_of_format_1_with_data_is_upgraded(old_url: str, declared: str) -> None:
    before = shared(rows_of(old_url))
    ms.migrate(old_url)
    assert differences(old_url, declared) == []
    after = rows_of(old_url)
    assert shared(after) == before
    assert [(row["format"], row["compatible_from"], row["forgotten"]) for row in after["info"]] == [
        (SCHEMA_FORMAT, SCHEMA_FORMAT, 0)
    ]
    for table in ("guard", "operation"):
        assert {row[column] for row in after[table] for column in NEW_COLUMNS[table]} == {None}
    with ms.open(old_url, principal="new") as opened:
        assert opened.verify() == []
        assert opened.tables.load("m.c.one.wide").comment == "ünïcode \x00 too"
        assert len(list(opened.changes())) == len(before["operation"]) - 1
        assert opened.outcome(TOMBSTONE).state == "cancelled"


def test_what_was_upgraded_can_be_written(old_url: str) -> None:
    """Whatever format 2 adds works on rows that format 1 wrote."""
    ms.migrate(old_url)
    with ms.open(old_url, principal="new") as opened:
        for _ in range(2):  # a repeat of a tombstone's operation, by the id of the caller
            operation_id = ms.new_operation_id()
            assert opened._session.backend.forbid(operation_id) == 1
            opened.tables.alter("m.c.one.wide", ms.SetProperty("a", str(operation_id)), operation_id=operation_id)
        wide = opened.tables.load("m.c.one.wide")
        assert isinstance(opened._session.backend.write_down(intent(wide)), Committed)
        assert opened.tables.alter(wide, ms.SetComment("new")).properties["announced"] == "yes"
        with opened.schemas.exclusive("m.c.one") as tx:
            tx.tables.rename("m.c.one.wide", "wider")
        opened.schemas.drop("m.c.one", cascade=True)
        opened.schemas.restore("m.c.one")
        assert opened.verify() == []


def intent(table: ms.Table) -> Entry:
    changes = '[{"change": "SetProperty", "key": "announced", "value": "yes"}]'
    return Entry(ms.new_operation_id(), "pending", "ada", table.id, "table", table.path, changes, 1, 60.0)


def test_a_second_upgrade_of_it_changes_nothing(old_url: str) -> None:
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        before = dump(opened._session.backend)
        ms.migrate(old_url)
        assert dump(opened._session.backend) == before


def test_the_embedded_default_upgrades_itself(empty_sqlite_url: str, request: pytest.FixtureRequest) -> None:
    ms.migrate(empty_sqlite_url)
    fill(empty_sqlite_url)
    migrations.downgrade(parse_url(empty_sqlite_url), OLD)
    with ms.open(empty_sqlite_url) as opened:
        assert opened.tables.load("m.c.one.wide").version == 2
        assert opened.verify() == []
    assert rows_of(empty_sqlite_url)["info"][0]["format"] == SCHEMA_FORMAT


def test_a_program_of_format_1_is_kept_out(old_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would neither see intents nor marks."""
    ms.migrate(old_url)
    monkeypatch.setattr(database, "SCHEMA_FORMAT", 1)
    with pytest.raises(
        ms.MigrationNeeded, match=rf"older than format {SCHEMA_FORMAT} cannot use; this one has 1: upgrade it"
    ):
        ms.open(old_url)


def test_back_to_format_1_and_up_again(old_url: str, declared: str) -> None:
    """What format 1 knows stays, tombstones too; pending intents, kept results and marks are gone."""
    old_schema, before = catalog(old_url), shared(rows_of(old_url))
    ms.migrate(old_url)
    with ms.open(old_url, principal="new") as opened:
        backend = opened._session.backend
        wide, one = opened.tables.load("m.c.one.wide"), opened.schemas.load("m.c.one")
        assert isinstance(backend.write_down(intent(wide)), Committed)
        cancelled = intent(wide)
        assert isinstance(backend.write_down(cancelled), Committed)
        assert backend.cancel(cancelled.operation_id)
        with pytest.raises(ms.EntityNotFound):
            opened.tables.alter("m.c.one.none", ms.SetComment("x"), operation_id=ms.new_operation_id())
        assert isinstance(backend.mark(Mark(ms.new_operation_id(), one.id, 60.0)), Committed)
        assert {"pending", "cancelled", "failed"} <= {row["action"] for row in rows_of(old_url)["operation"]}
        assert opened.verify() == []
    migrations.downgrade(parse_url(old_url), OLD)
    assert catalog(old_url) == old_schema
    assert shared(rows_of(old_url)) == before
    with pytest.raises(Exception, match="without a new scope version"):
        run(old_url, "UPDATE guard SET name = 'silent' WHERE id = 0")
    ms.migrate(old_url)
    assert differences(old_url, declared) == []
    with ms.open(old_url) as opened:
        assert opened.verify() == []
        opened.schemas.rename("m.c.one", "uno")
        assert opened.verify() == []


def test_history_that_was_applied_by_helping_goes_back_as_history(old_url: str) -> None:
    ms.migrate(old_url)
    with ms.open(old_url, principal="new") as opened:
        wide = opened.tables.load("m.c.one.wide")
        assert isinstance(opened._session.backend.write_down(intent(wide)), Committed)
        opened.tables.alter(wide, ms.SetComment("helped"))
        changes = [(c.entity_id, c.version, c.principal) for c in opened.changes()]
        assert (wide.id, wide.version + 1, "ada") in changes
    migrations.downgrade(parse_url(old_url), OLD)
    assert {row["action"] for row in rows_of(old_url)["operation"] if row["seq"] is None} == {"forbidden"}
    ms.migrate(old_url)
    with ms.open(old_url) as opened:
        assert [(c.entity_id, c.version, c.principal) for c in opened.changes()] == changes
        assert opened.tables.load("m.c.one.wide").properties["announced"] == "yes"
        assert opened.verify() == []
