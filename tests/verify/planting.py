"""A database with a little of everything, and SQL that the store would never run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

import psycopg

import metastore as ms
from metastore import Violation

__all__ = ["A", "build", "damage", "filled", "verified", "without_constraints"]

A = "lake.c.s.a"
LOOSE = {
    "postgres": tuple(f"ALTER TABLE {table} DISABLE TRIGGER USER" for table in ("guard", "operation", "info")),
    "sqlite": tuple(
        f"DROP TRIGGER IF EXISTS {name}"
        for name in (
            *("guard_scope_bump", "operation_writer", "operation_writer_resolved"),
            *("info_writer", "info_writer_cleared"),
        )
    ),
}


def damage(url: str, *statements: str) -> None:
    """Run SQL that the store would never run."""
    if url.startswith("sqlite"):
        lite = sqlite3.connect(url.removeprefix("sqlite:///"))
        with lite:
            for statement in (*LOOSE["sqlite"], *statements):
                lite.execute(statement)
        lite.close()
        return
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql")) as pg:
        for statement in (*LOOSE["postgres"], *statements):
            pg.execute(statement.encode())


def without_constraints(table: str) -> tuple[str, ...]:
    """Return the statements that make a table again, without its constraints and indexes."""
    return (f"ALTER TABLE {table} RENAME TO old", f"CREATE TABLE {table} AS SELECT * FROM old", "DROP TABLE old")


def build(url: str) -> dict[str, int]:
    """Fill a database; return the ids of what is in it, by labels."""
    with ms.open(url, principal="tester") as store:
        made: dict[str, int] = {"lake": store.metalakes.create("lake").id}
        made["c"] = store.catalogs.create("lake.c", type="relational").id
        made["f"] = store.catalogs.create("lake.f", type="relational", fold_case=True).id
        for path in ("lake.c.s", "lake.c.s.n", "lake.f.S"):
            made[path] = store.schemas.create(path).id
        for name in "abd":
            made[name] = store.tables.create(f"lake.c.s.{name}", columns=[ms.Column("x", "int")]).id
        store.tables.alter("lake.c.s.a", ms.SetComment("one"))
        store.tables.alter("lake.c.s.a", ms.SetComment("two"))
        store.tables.rename("lake.c.s.b", "lake.c.s.n.b")
        made["p"] = store.partitions.create("lake.c.s.a", "x=1", values={"x": "1"}).id
        store.partitions.create("lake.c.s.a", "x=2", values={"x": "2"})
        store.partitions.drop("lake.c.s.a", "x=2")
        store.schemas.drop("lake.c.s.n", cascade=True)
        store.schemas.restore("lake.c.s.n", to="m")
        store.tables.drop("lake.c.s.d")
        made["d2"] = store.tables.create("lake.c.s.d").id
        made["Fold"] = store.tables.create("lake.f.S.Straße").id
        store.catalogs.disable("lake.f")
        store.tables.purge("lake.c.s.d")
        made["d3"] = store.tables.create("lake.c.s.d").id
        made["fs"] = store.filesets.create("lake.c.s.a", locations={"main": "file:/tmp"}).id
        made["mod"] = store.models.create("lake.c.s.mod").id
        for aliases in (["prod"], ["best"]):
            number = store.models.add_version("lake.c.s.mod", uris={"u": "s3://b"}, aliases=aliases)
            made[f"mv{number.number}"] = number.id
        assert store.verify() == []
    return made


def verified(url: str) -> list[Violation]:
    """Open a database and verify it."""
    with ms.open(url) as store:
        return store.verify()


def filled(ids: Mapping[str, int], statements: Iterable[str]) -> list[str]:
    """Put the ids where the statements have their labels in braces; double braces become single ones."""
    texts = list(statements)
    for label, row_id in ids.items():
        texts = [text.replace(f"{{{label}}}", str(row_id)) for text in texts]
    return [text.replace("{{", "{").replace("}}", "}") for text in texts]
