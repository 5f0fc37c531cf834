"""The migrated schema is the declared one, and the comparison that says so sees what it should."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

import metastore as ms
from tests.migration.schema import differences, run

pytestmark = pytest.mark.one_in(3)

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
FORBIDDEN = "metastore.backends.sql.tables"

ANYWHERE = {
    "an index is missing": ["DROP INDEX guard_gone"],
    "a column more": ["ALTER TABLE entity ADD COLUMN surplus text"],
    "a table more": ["CREATE TABLE surplus (id integer PRIMARY KEY)"],
    "a table is missing": ["DROP TABLE owned"],
    "another predicate": [
        "DROP INDEX guard_gone",
        "CREATE INDEX guard_gone ON guard (parent_id, family, key) WHERE state = 1",
    ],
    "no predicate": ["DROP INDEX guard_gone", "CREATE INDEX guard_gone ON guard (parent_id, family, key)"],
}
ON_POSTGRES = {
    "another type": ["ALTER TABLE entity ALTER COLUMN doc TYPE varchar(100)"],
    "another collation": ['ALTER TABLE owned ALTER COLUMN name TYPE text COLLATE "default"'],
    "a column may be null": ["ALTER TABLE entity ALTER COLUMN version DROP NOT NULL"],
    "a default": ["ALTER TABLE entity ALTER COLUMN version SET DEFAULT 1"],
    "a unique constraint is missing": ["ALTER TABLE guard DROP CONSTRAINT guard_scope"],
    "a sequence with a cache": ["ALTER SEQUENCE change_seq CACHE 20"],
    "no trigger": ["DROP TRIGGER guard_scope_bump ON guard"],
    "the trigger is off": ["ALTER TABLE guard DISABLE TRIGGER guard_scope_bump"],
    "a trigger that refuses nothing": [
        """CREATE OR REPLACE FUNCTION metastore_refuse_silent_move() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN RETURN NEW; END'"""
    ],
}
ON_SQLITE = {
    "another collation": [
        "DROP INDEX guard_gone",
        "CREATE INDEX guard_gone ON guard (parent_id, family, key COLLATE NOCASE) WHERE state <> 0",
    ],
    "no trigger": ["DROP TRIGGER guard_scope_bump"],
    "a trigger that refuses nothing": [
        "DROP TRIGGER guard_scope_bump",
        "CREATE TRIGGER guard_scope_bump BEFORE UPDATE ON guard BEGIN SELECT 1; END",
    ],
}


def test_the_migrated_schema_is_the_declared_one(empty_url: str, declared: str) -> None:
    ms.migrate(empty_url)
    assert differences(empty_url, declared) == []


def seen(url: str, declared: str, damage: list[str]) -> bool:
    """Tell whether the comparison reports what ``damage`` does to a good schema."""
    ms.migrate(url)
    run(url, *damage)
    return bool(differences(url, declared))


@pytest.mark.one_in(3, on="postgres")
@pytest.mark.parametrize("damage", ANYWHERE.values(), ids=ANYWHERE)
def test_a_difference_is_seen(empty_url: str, declared: str, damage: list[str]) -> None:
    """Negative control: a schema that differs is reported."""
    assert seen(empty_url, declared, damage)


@pytest.mark.parametrize("damage", ON_POSTGRES.values(), ids=ON_POSTGRES)
def test_a_difference_is_seen_on_postgres(
    empty_postgres_url: str, declared_postgres_url: str, damage: list[str]
) -> None:
    """Negative control, for what only PostgreSQL has."""
    assert seen(empty_postgres_url, declared_postgres_url, damage)


@pytest.mark.parametrize("damage", ON_SQLITE.values(), ids=ON_SQLITE)
def test_a_difference_is_seen_on_sqlite(empty_sqlite_url: str, declared_sqlite_url: str, damage: list[str]) -> None:
    """Negative control, for what SQLite writes in another way."""
    assert seen(empty_sqlite_url, declared_sqlite_url, damage)


SILENT = {
    "parent_id": "7",
    "kind": "'table'",
    "family": "'table'",
    "name": "'other'",
    "key": "'other'",
    "fold": "true",
    "state": "1",
    "in_use": "false",
}


@pytest.mark.one_in(3, on="postgres")
@pytest.mark.parametrize("column", SILENT)
def test_the_trigger_refuses_a_silent_change(empty_url: str, column: str) -> None:
    """Design 3: where an entity stands, is named, lives or is in use never changes without a new scope version."""
    ms.migrate(empty_url)
    change = f"UPDATE guard SET {column} = {SILENT[column]}"
    for statement in (change, f"{change}, scope_version = scope_version - 1"):
        with pytest.raises(DBAPIError, match="without a new scope version"):
            run(empty_url, statement)
    run(empty_url, f"{change}, scope_version = scope_version + 1")


def test_the_trigger_lets_the_rest_pass(empty_url: str) -> None:
    ms.migrate(empty_url)
    run(
        empty_url,
        "UPDATE guard SET scope_version = 5",
        "UPDATE guard SET dropped_at = 1",
        "UPDATE guard SET name = name",
    )


def imports(source: str) -> set[str]:
    """Return every module that ``source`` imports, also inside functions."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_no_migration_imports_the_declared_tables() -> None:
    files = [*MIGRATIONS.rglob("*.py"), *MIGRATIONS.rglob("*.mako")]
    assert len(files) >= 5
    assert [f for f in files if FORBIDDEN in f.read_text()] == []
    assert [f for f in files if f.suffix == ".py" and FORBIDDEN in imports(f.read_text())] == []


def test_revisions_import_nothing_of_ours() -> None:
    """A revision is frozen: what it does must not change when the program does."""
    names = ("placements", "repairs", "writers")
    frozen = tuple(f"metastore.migrations.{name}" for name in names)
    for file in [*(MIGRATIONS / "versions").glob("v*.py"), *[MIGRATIONS / f"{name}.py" for name in names]]:
        ours = {m for m in imports(file.read_text()) if m.startswith("metastore")}
        assert not {m for m in ours if not m.startswith(frozen)}, file


def test_an_import_is_seen() -> None:
    """Negative control."""
    assert FORBIDDEN in imports("def f():\n    from metastore.backends.sql import tables")
    assert FORBIDDEN in imports("from metastore.backends.sql.tables import guard")
