"""The world of a run: the possible names, and the entities that exist at the beginning.

There are few names for many calls, so two simultaneous calls often use the same name, before and after a swap.
"""

from __future__ import annotations

from random import Random
from typing import Final

import metastore as ms

__all__ = [
    "BULKY",
    "CATALOGS",
    "KINDS",
    "LAKE",
    "MADE",
    "NOWHERE",
    "SCHEMAS",
    "TABLES",
    "begin",
    "kind_of",
    "names_below",
    "schema_path",
]

LAKE: Final = "lake"
CATALOGS: Final = ("c", "d", "x")
"""Two of them are there, and swap their names by way of the third."""
SCHEMAS: Final = ("s", "n", "o")
"""Of each catalog: likewise."""
TABLES: Final = ("t0", "t1", "t2")
"""In each schema from the beginning."""
MADE: Final = ("u0", "u1", "u2")
"""Tables that clients make and drop."""
NOWHERE: Final = "nowhere"
"""A column that no table has."""
BULKY: Final = f"{LAKE}.b.s"
"""A schema that is for large changes alone."""
KINDS: Final = ("metalake", "catalog", "schema", "table")
"""By depth."""


def begin(url: str) -> None:
    """Make what a run begins with."""
    with ms.open(url, principal="world") as store:
        store.metalakes.create(LAKE)
        store.users.create((LAKE, "ann"))
        store.roles.create(f"{LAKE}.reader")
        store.roles.assign(f"{LAKE}.reader", (LAKE, "ann"))
        store.catalogs.create(f"{LAKE}.b", type="relational")
        store.schemas.create(BULKY)
        for catalog in CATALOGS[:2]:
            store.catalogs.create(f"{LAKE}.{catalog}", type="relational")
            store.roles.grant(f"{LAKE}.reader", "use_catalog", store.catalogs.load(f"{LAKE}.{catalog}"))
            for schema in SCHEMAS[:2]:
                path = f"{LAKE}.{catalog}.{schema}"
                store.schemas.create(path)
                for privilege in ("use_schema", "select_table", "modify_table"):
                    store.roles.grant(f"{LAKE}.reader", privilege, store.schemas.load(path))
                store.tables.create_many(path, [{"name": name, "properties": {"home": path}} for name in TABLES])


def kind_of(path: str) -> str:
    """Return the kind of what has a path: its depth says it."""
    return KINDS[path.count(".")]


def names_below(path: str) -> tuple[str, ...]:
    """Return every name that something below a path can have."""
    return {"lake": CATALOGS}.get(path, SCHEMAS if path.count(".") == 1 else (*TABLES, *MADE))


def schema_path(dice: Random) -> str:
    """Return a path at which a schema may stand, more often one where one does."""
    catalog = dice.choices(CATALOGS, (6, 4, 1))[0]
    return f"{LAKE}.{catalog}.{dice.choices(SCHEMAS, (6, 5, 2))[0]}"
