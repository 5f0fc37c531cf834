"""Each statement that writes on PostgreSQL is durable by itself, or is named here with why it need not be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from types import ModuleType

import pytest

from metastore.backends.postgres import batch_sql as postgres_sql
from metastore.backends.postgres import hot_sql as postgres_hot_sql
from metastore.backends.postgres import intents as postgres_intents
from metastore.backends.postgres import lease_sql as postgres_lease_sql

NEEDS_NOT = {
    ("postgres_sql", "CLAIMED"): "is sent in front of a statement that is durable, in its transaction",
    ("postgres_sql", "RELEASE"): "likewise, behind it",
    ("postgres_lease_sql", "ENTER"): "a waiter that was forgotten queues again",
    ("postgres_lease_sql", "LEAVE"): "a waiter that is there again is taken for dead",
    ("postgres_lease_sql", "FORGET_PUBLISHED"): "the next gc does it again",
    ("postgres_lease_sql", "FORGET_WAITERS"): "the next gc does it again",
}
_WRITES = re.compile(r"\b(INSERT INTO|UPDATE \w+ (\w+ )?SET|DELETE FROM)\b")
_PRIVATE = ("_WRITE_DOWN", "_MARK", "_FREEZE", "_HELP")


def _texts(module: ModuleType) -> Iterator[tuple[str, str]]:
    whole = {*module.__all__, *_PRIVATE}
    for name, value in vars(module).items():
        if name in whole and isinstance(value, str) and _WRITES.search(value):
            yield name, value


STATEMENTS = [
    pytest.param(text, id=f"{module.__name__.rpartition('.')[2]}.{name}")
    for module in (postgres_sql, postgres_hot_sql, postgres_intents, postgres_lease_sql)
    for name, text in _texts(module)
    if (module.__name__.rpartition(".")[2], name) not in NEEDS_NOT
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_that_writes_is_durable(text: str) -> None:
    assert postgres_sql.DURABLE in text


@pytest.mark.parametrize(("updates", "inserts", "owned"), [k for k in product((False, True), repeat=3) if any(k)])
def test_the_general_statement_is_durable(updates: bool, inserts: bool, owned: bool) -> None:
    text = postgres_sql.batch(
        updates,
        inserts,
        owned,
        skip_existing=inserts,
        claimed=True,
        must=False,
        overlook=False,
        fenced=True,
        noted=True,
        publishes=True,
    )
    assert postgres_sql.DURABLE in text


def test_all_of_them_are_found() -> None:
    names = {str(parameter.id) for parameter in STATEMENTS}
    assert {"postgres_intents.FORBID", "postgres_intents.CANCEL", "postgres_hot_sql.CREATE"} <= names
    assert {"postgres_intents._WRITE_DOWN", "postgres_lease_sql.RENEW", "postgres_lease_sql.RELEASE"} <= names
