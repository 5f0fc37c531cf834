"""Every mutation that takes an operation id, on the small tree: those that succeed, and those that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metastore as ms
from tests.contract.ground import Ground

T = "m.c.one.t"
Call = Callable[[Ground, Any], Any]
COMMENT = ms.SetComment("new")

CALLS: dict[str, Call] = {
    "create": lambda g, op: g.store.tables.create(
        "m.c.two.x", columns=[ms.Column("id", "int")], comment="c", operation_id=op
    ),
    "create, parent": lambda g, op: g.store.tables.create("x", parent=g.two, operation_id=op),
    "create, return new": lambda g, op: g.store.schemas.create("m.c.x", if_exists="return", operation_id=op),
    "create, return": lambda g, op: g.store.tables.create(T, if_exists="return", operation_id=op),
    "create, replace": lambda g, op: g.store.tables.create(T, comment="r", if_exists="replace", operation_id=op),
    "create, replace equal": lambda g, op: g.store.tables.create(T, if_exists="replace", operation_id=op),
    "create, parents": lambda g, op: g.store.filesets.create("m.c.a.b.f", parents=True, operation_id=op),
    "create a metalake": lambda g, op: g.store.metalakes.create("m2", operation_id=op),
    "create a catalog": lambda g, op: g.store.catalogs.create("m.c2", type="model", fold_case=True, operation_id=op),
    "alter": lambda g, op: g.store.tables.alter(T, COMMENT, ms.AddColumn("c", "int"), operation_id=op),
    "alter in hand": lambda g, op: g.store.schemas.alter(g.one, COMMENT, operation_id=op),
    "alter pinned": lambda g, op: g.store.tables.alter(T, COMMENT, expected_version=1, operation_id=op),
    "alter nothing": lambda g, op: g.store.tables.alter(T, ms.RemoveProperty("k"), operation_id=op),
    "alter a metalake": lambda g, op: g.store.metalakes.alter("m", COMMENT, operation_id=op),
    "rename": lambda g, op: g.store.tables.rename(T, "u", operation_id=op),
    "rename in hand": lambda g, op: g.store.schemas.rename(g.one, "uno", operation_id=op),
    "rename to itself": lambda g, op: g.store.tables.rename(T, "t", operation_id=op),
    "move": lambda g, op: g.store.tables.rename(T, "m.c.two.u", operation_id=op),
    "drop": lambda g, op: g.store.tables.drop(T, operation_id=op),
    "drop, cascade": lambda g, op: g.store.schemas.drop("m.c.one", cascade=True, operation_id=op),
    "drop nothing": lambda g, op: g.store.tables.drop("m.c.one.none", operation_id=op),
    "restore": lambda g, op: g.store.schemas.restore("m.c.old", operation_id=op),
    "restore elsewhere": lambda g, op: g.store.schemas.restore("m.c.old", id=g.old.id, to="m.c.two.o", operation_id=op),
    "purge": lambda g, op: g.store.schemas.purge("m.c.two", operation_id=op),
    "purge what was dropped": lambda g, op: g.store.schemas.purge(g.old, operation_id=op),
    "purge nothing": lambda g, op: g.store.tables.purge("m.c.two.none", operation_id=op),
    "disable": lambda g, op: g.store.catalogs.disable("m.c", operation_id=op),
    "enable": lambda g, op: g.store.metalakes.enable("m", operation_id=op),
    "partition": lambda g, op: g.store.partitions.create(T, "q", values={"k": "v"}, operation_id=op),
    "drop a partition": lambda g, op: g.store.partitions.drop(T, "p", operation_id=op),
    "drop no partition": lambda g, op: g.store.partitions.drop(g.table, "none", operation_id=op),
}
FAILING: dict[str, Call] = {
    "exists": lambda g, op: g.store.schemas.create("m.c.one", operation_id=op),
    "another kind": lambda g, op: g.store.schemas.rename("m.c.one", "two", operation_id=op),
    "no parent": lambda g, op: g.store.tables.create("m.c.none.t", operation_id=op),
    "no parents": lambda g, op: g.store.tables.create("m.none.a.t", parents=True, operation_id=op),
    "not found": lambda g, op: g.store.tables.alter("m.c.one.none", COMMENT, operation_id=op),
    "no column": lambda g, op: g.store.tables.alter(T, ms.DropColumn("none"), operation_id=op),
    "invalid": lambda g, op: g.store.tables.alter(T, ms.AddColumn("c", "no type"), operation_id=op),
    "expectation": lambda g, op: g.store.tables.alter(T, ms.SetProperty("k", "v", expected="x"), operation_id=op),
    "version": lambda g, op: g.store.tables.rename(T, "u", expected_version=9, operation_id=op),
    "rename of nothing": lambda g, op: g.store.tables.rename("m.c.one.none", "u", operation_id=op),
    "move below itself": lambda g, op: g.store.schemas.rename("m.c.one", "m.c.one.x", operation_id=op),
    "not empty": lambda g, op: g.store.schemas.drop("m.c.one", operation_id=op),
    "purge not empty": lambda g, op: g.store.schemas.purge(g.one, operation_id=op),
    "nothing to restore": lambda g, op: g.store.tables.restore(T, id=10**6, operation_id=op),
    "restore taken": lambda g, op: g.store.schemas.restore("m.c.old", to="m.c.one", operation_id=op),
    "disable nothing": lambda g, op: g.store.catalogs.disable("m.none", operation_id=op),
    "partition exists": lambda g, op: g.store.partitions.create(T, "p", values={}, operation_id=op),
    "partition of nothing": lambda g, op: g.store.partitions.create("m.c.one.none", "p", values={}, operation_id=op),
}
