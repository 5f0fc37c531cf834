"""What a user writes is moved out of its sight between two statements of the call: the error tells no new name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.governance.test_read_after_revoked import Between

MARK = "classified"
SCHEMA = "lake.sales.eu"
Write = Callable[[Store, Any, Any], object]
WRITES: dict[str, Write] = {
    "alter": lambda ann, table, _: ann.tables.alter(table, ms.SetComment("mine")),
    "rename": lambda ann, table, _: ann.tables.rename(table, "new"),
    "drop": lambda ann, table, _: ann.tables.drop(table),
    "create": lambda ann, _, schema: ann.tables.create_many(schema, [{"name": "new"}]),
    "partition": lambda ann, table, _: ann.partitions.create(table, "p", values={}),
    "tag": lambda ann, table, _: ann.tags.attach(table, "lake.tag", value="x"),
    "tags": lambda ann, table, _: ann.tags.attach_many("lake.tag", [{"target": table, "value": "x"}]),
    "owner": lambda ann, table, _: ann.owners.set(table, ("lake", "ann@corp")),
    "grant": lambda ann, table, _: ann.roles.grant("lake.writer", "modify_table", table),
    "transaction": lambda ann, table, _: ann.run(lambda tx: tx.tables.alter(table, ms.SetComment("mine"))),
}


def _to_another_schema(store: Store) -> None:
    with suppress(ms.EntityNotFound):  # the call may have done what it does, and asks for more
        store.tables.rename(f"{SCHEMA}.orders", f"lake.sales.{MARK}.{MARK}")


def _to_another_catalog(store: Store) -> None:
    store.schemas.rename(SCHEMA, f"lake.{MARK}.{MARK}")


def _prepare(store: Store) -> None:
    """Make a lake in which ann owns the table of one schema, and sees nothing else."""
    store.metalakes.create("lake")
    store.catalogs.create("lake.sales", type="relational")
    store.catalogs.create(f"lake.{MARK}", type="relational")
    store.schemas.create(f"lake.sales.{MARK}")
    table = store.tables.create(f"{SCHEMA}.orders", parents=True)
    store.tags.create("lake.tag")
    ann, role = store.users.create(("lake", "ann@corp")), store.roles.create("lake.writer")
    store.roles.assign(role, ann)
    store.roles.grant(role, "use_catalog", "lake.sales", kind="catalog")
    for word in ("use_schema", "create_table"):
        store.roles.grant(role, word, SCHEMA, kind="schema")
    store.roles.grant(role, "apply_tag", "lake.tag", kind="tag")
    store.owners.set(table, ann)
    store.owners.set(role, ann)


@pytest.mark.parametrize("hide", [_to_another_schema, _to_another_catalog])
@pytest.mark.parametrize("write", WRITES)
def test_the_error_of_a_write_does_not_say_where_its_object_is_now(write: str, hide: Callable[[Store], None]) -> None:
    for at in range(40):
        with ms.open("memory://", deadline=5.0) as store:
            _prepare(store)
            between = store._session.backend = Between(store._session.backend)
            ann = store.as_user("ann@corp")
            table, schema = next(iter(ann.tables.list(SCHEMA))), ann.schemas.load(SCHEMA)
            between.let_go_first(at, lambda now=store: hide(now))  # type: ignore[misc]
            try:
                told = repr(WRITES[write](ann, table, schema))
            except ms.MetastoreError as error:
                told = f"{error} {error.to_dict()}"
            assert MARK not in told, at
            if between.action is not None:  # the call asks no further question
                break
    assert at > 1
