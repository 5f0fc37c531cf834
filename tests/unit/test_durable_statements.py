"""Each statement that writes on PostgreSQL is durable by itself, or is named here with why it need not be."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import product
from types import ModuleType

import pytest

from metastore.backends.postgres import (
    alter,
    around_commit,
    by_name,
    create,
    create_owned,
    exclusive,
    general_commit_sql,
    intents,
    lease_sql,
    preludes,
    secret_keys,
)
from metastore.backends.postgres.fragments import DURABLE
from metastore.backends.postgres.general_commit_sql import Shape
from metastore.backends.postgres.together import alter as alter_many
from metastore.backends.postgres.together import create as create_many
from metastore.backends.postgres.together import exclusive as exclusive_many

NEEDS_NOT = {
    ("preludes", "CLAIMED"): "is sent in front of a statement that is durable, in its transaction",
    ("around_commit", "RELEASE"): "likewise, behind it",
    ("relations", "DELETE_MISSING"): "the next gc does it again",
    ("relations", "DELETE_COLUMNS"): "the next gc does it again",
    ("lease_sql", "ENTER"): "a waiter that was forgotten queues again",
    ("lease_sql", "LEAVE"): "a waiter that is there again is taken for dead",
    ("lease_sql", "FORGET_PUBLISHED"): "the next gc does it again",
    ("lease_sql", "FORGET_WAITERS"): "the next gc does it again",
}
_WRITES = re.compile(r"\b(INSERT INTO|UPDATE \w+ (\w+ )?SET|DELETE FROM|pg_logical_emit_message)\b")
_PRIVATE = ("_WRITE_DOWN", "_MARK", "_FREEZE", "_HELP")


def _texts(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield each public text that writes and that the module itself assigns, and the private ones named above."""
    assigned = [one for one in ast.parse(inspect.getsource(module)).body if isinstance(one, ast.Assign | ast.AnnAssign)]
    targets = [target for one in assigned for target in (one.targets if isinstance(one, ast.Assign) else [one.target])]
    for name in [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]:
        value = vars(module)[name]
        if isinstance(value, str) and _WRITES.search(value) and (name[0] != "_" or name in _PRIVATE):
            yield name, value


STATEMENTS = [
    pytest.param(text, id=f"{module.__name__.rpartition('.')[2]}.{name}")
    for module in (
        preludes,
        create,
        create_owned,
        alter,
        by_name,
        exclusive,
        around_commit,
        intents,
        lease_sql,
        secret_keys,
        alter_many,
        create_many,
        exclusive_many,
    )
    for name, text in _texts(module)
    if (module.__name__.rpartition(".")[2], name) not in NEEDS_NOT
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_that_writes_is_durable(text: str) -> None:
    assert DURABLE in text


@pytest.mark.parametrize(
    ("updates", "inserts", "owned", "related"), [k for k in product((False, True), repeat=4) if any(k)]
)
def test_the_general_statement_is_durable(updates: bool, inserts: bool, owned: bool, related: bool) -> None:
    shape = Shape(
        updates=updates,
        inserts=inserts,
        owned=owned,
        relations=related,
        skip_existing=inserts,
        claimed=True,
        fenced=True,
        noted=True,
        publishes=True,
    )
    text = general_commit_sql.statement_of(shape)
    assert DURABLE in text


def test_all_of_them_are_found() -> None:
    names = {str(parameter.id) for parameter in STATEMENTS}
    assert {"intents.FORBID", "intents.CANCEL", "create.CREATE", "alter.ALTER_TOGETHER"} <= names
    assert {"intents._WRITE_DOWN", "lease_sql.RENEW", "lease_sql.RELEASE"} <= names
