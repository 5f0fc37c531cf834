"""A statement's row is read by name: the names are those of its columns, in their order. No comment is sent."""

from __future__ import annotations

import importlib
import logging
from dataclasses import fields, replace
from itertools import product
from uuid import UUID

import psycopg
import pytest

from metastore.backends.postgres import (
    alter,
    around_commit,
    by_name,
    checks,
    create,
    create_owned,
    exclusive,
    general_commit,
    general_commit_sql,
    intents,
    lease_sql,
    preludes,
)
from metastore.backends.postgres.fragments import ALL_FENCED
from metastore.backends.postgres.general_commit_sql import Shape
from metastore.backends.postgres.parameters import Statement
from metastore.backends.sql.comments import without_comments
from metastore.port.commit import Commit
from metastore.port.conditions import Guard, LeaseToken
from metastore.port.intents import Help, Mark, Resolution
from metastore.port.relations import NO_COLUMN, NO_VALUE, ONLY
from metastore.port.writes import Delete, Event, Insert, Named, Relate, Update, Write

EVENT = Event("table", "alter", "m.a", "m.a")
COMMIT = Commit(UUID(int=1), None, (Guard(7, 1),))
LEASED = replace(COMMIT, leases=(LeaseToken("work", 8, 1, "one"),))
INSERT = Insert(7, "table", "table", "a", "a", False, "{}", EVENT)
OWNER = Relate(9, "owner", ONLY, NO_COLUMN, NO_VALUE, 8, 0, "{}", EVENT)
ALTER = Update(9, 1, EVENT, doc="{}")
RENAME = Update(9, 1, EVENT, scope_version=1, in_use=True)
NAMED = Update(0, 0, EVENT, scope_version=0, state=1, named=Named(7, "table", "a"))
HELP = Help((Guard(7, 1),), 9, 1, "m.a", (Resolution(UUID(int=2), "failed", None),))

ONE_ROW: list[tuple[Statement, type]] = [
    (create.statement(LEASED, INSERT), create.Created),
    (create_owned.statement(replace(COMMIT, writes=(replace(INSERT, id=9), OWNER))), create_owned.CreatedOwned),
    (alter.statement(LEASED, ALTER), alter.Altered),
    (exclusive.statements(COMMIT, RENAME)[0], exclusive.Moved),
    (by_name.statements(COMMIT, NAMED)[0], by_name.MovedByName),
    (intents.help_statement(HELP), intents.Helped),
]
MARK = Mark(UUID(int=1), 9, 1.0)


def columns(url: str, statement: Statement) -> tuple[list[str], int]:
    """Return the names of a statement's columns, and how many rows it gave."""
    with psycopg.connect(url.replace("+psycopg", "", 1)) as connection:
        # what a commit says where there are no members of the cache: see announcing.py
        cursor = connection.execute(statement.text.encode(), {"generation": None, **statement.parameters})
        connection.rollback()
        assert cursor.description is not None
        return [column.name for column in cursor.description], cursor.rowcount


@pytest.mark.parametrize(("statement", "row"), ONE_ROW, ids=[row.__name__ for _, row in ONE_ROW])
def test_a_row_has_the_names_of_its_columns(postgres_url: str, statement: Statement, row: type) -> None:
    assert columns(postgres_url, statement) == (list(row._fields), 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("plain", "leased"), [(create.CREATE, create.CREATE_FENCED), (alter.ALTER, alter.ALTER_FENCED)]
)
def test_what_is_missing_without_leases_is_the_last_column(plain: str, leased: str) -> None:
    columns_of_leased = leased.rpartition("\nFROM (SELECT 1)")[0]
    assert columns_of_leased.endswith(", " + ALL_FENCED + " AS fenced")
    last = plain.rpartition("\nFROM (SELECT 1)")[0].rpartition(" AS ")[2]
    assert columns_of_leased.removesuffix(", " + ALL_FENCED + " AS fenced").endswith(f" AS {last}")


@pytest.mark.parametrize("mark", [MARK, replace(MARK, scope_version=1)], ids=["mark", "freeze"])
def test_a_mark_has_the_names_of_its_columns(postgres_url: str, mark: Mark) -> None:
    (statement,) = intents.mark_statements(mark)
    assert columns(postgres_url, statement)[0] == list(intents.MarkSet._fields)


WRITES: tuple[Write, ...] = (ALTER, INSERT, Delete(9, "partition", "p", 1, EVENT))
UNNAMED = {"marked": "?column?"}


def test_a_general_row_has_the_names_of_its_columns(postgres_url: str) -> None:
    (statement,) = general_commit.statements(replace(COMMIT, guards=(), writes=WRITES))
    assert columns(postgres_url, statement)[0] == [UNNAMED.get(name, name) for name in general_commit.Done._fields]


def test_what_only_checks_has_as_many_columns(postgres_url: str) -> None:
    (statement,) = general_commit.statements(replace(COMMIT, guards=()))
    assert len(columns(postgres_url, statement)[0]) == len(general_commit.Done._fields)


def test_no_comment_is_sent() -> None:
    modules = (
        alter,
        by_name,
        around_commit,
        general_commit_sql,
        checks,
        create,
        create_owned,
        exclusive,
        intents,
        lease_sql,
        preludes,
    )
    texts = [text for module in modules for text in vars(module).values() if isinstance(text, str)]
    shapes = product((False, True), repeat=len(fields(Shape)))
    texts += [general_commit_sql.statement_of(Shape(*values)) for values in shapes]
    assert len(texts) > 1024
    assert [text for text in texts if "--" in text] == []


def test_a_comment_goes_with_its_line() -> None:
    text = """
    -- why: 100 % of it, and a {brace}
    SELECT '--' AS kept
      -- and why this
    FROM guard"""
    assert without_comments(text) == "    SELECT '--' AS kept\n    FROM guard"


def test_what_psycopg_warns_of_is_not_printed_unasked() -> None:
    """Without a handler, logging prints warnings to the stderr of a program that configured nothing."""
    importlib.import_module("metastore.backends.postgres.connect")
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("psycopg").handlers)
