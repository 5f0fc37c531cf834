"""The store that is measured: nearly everything in one schema, one user with most roles, one that owns much, one
object with most tags."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import metastore as ms
from tests.bad_input import surface
from tests.grow.door import Door

__all__ = ["Skew", "fill"]

TABLE: Final = "m.c.s.hub"
"""The table with the tags, the versions and the partitions."""
_MODEL: Final = '{{"comment":null,"properties":{{}},"latest_version":{},"aliases":{{}}}}'
_VERSION: Final = '{"comment":null,"properties":{},"uris":{"u":"x"},"aliases":[]}'


@dataclass(frozen=True)
class Skew:
    """How much of everything there is, for a number of entities."""

    entities: int

    @property
    def tables(self) -> int:
        """In one schema."""
        return self.entities * 7 // 10

    @property
    def roles(self) -> int:
        """Of one user, each with two grants."""
        return self.entities // 60

    @property
    def owned(self) -> int:
        """Tables that one user owns, all in the large schema."""
        return self.entities // 3

    @property
    def tags(self) -> int:
        """On one table."""
        return self.entities // 15

    @property
    def tagged(self) -> int:
        """Tables that have one tag."""
        return self.entities // 5

    @property
    def versions(self) -> int:
        """Of one table, and of one model."""
        return self.entities // 15

    @property
    def partitions(self) -> int:
        """Of one table."""
        return self.entities // 6

    @property
    def schemas(self) -> int:
        """Beside the large one, each with 100 tables."""
        return self.entities // 1000

    depth: int = 60
    """How deep the schemas are nested."""

    @property
    def rows(self) -> int:
        """An upper bound for ids and positions."""
        return 4 * self.entities + 10_000


def fill(url: str, skew: Skew) -> None:
    """Fill an empty database. What the calls name is made by the calls' own door afterwards."""
    docs = _documents()
    with ms.open(url, principal="grow") as store:
        with Door(store, skew.rows) as door:
            _fill(door, docs, skew)
        surface.grow(store)
        for user in ("olga", "nina"):
            store.users.create(("m", user), if_exists="return")
        store.owners.set("m", "m.olga", kind="metalake")
        store.roles.create("m.narrow", if_exists="return")
        for word, on, kind in (("use_catalog", "m.c", "catalog"), ("use_schema", "m.c.s", "schema")):
            store.roles.grant("m.narrow", word, on, kind=kind)
        store.roles.grant("m.narrow", "select_table", surface.TABLE, kind="table")
        store.roles.create("m.small", if_exists="return")
        store.roles.grant("m.small", "use_schema", "m.c.small", kind="schema")
        for role, user in (("narrow", "nina"), ("narrow", "otto"), ("small", "otto")):
            store.roles.assign(f"m.{role}", f"m.{user}")


def _fill(door: Door, docs: dict[str, str], skew: Skew) -> None:
    lake = door.entity(0, "metalake", "m", docs["metalake"])
    catalog = door.entity(lake, "catalog", "c", docs["catalog"])
    large = door.entity(catalog, "schema", "s", docs["schema"])
    small = door.entity(catalog, "schema", "small", docs["schema"])
    tables = [door.entity(large, "table", f"t{n:08}", docs["table"], 1 + (n % 3 == 0)) for n in range(skew.tables)]
    for n in range(51):
        door.entity(small, "table", f"t{n:02}", docs["table"])
    for n in range(skew.schemas):
        other = door.entity(catalog, "schema", f"s{n:06}", docs["schema"])
        for at in range(100):
            door.entity(other, "table", f"x{at:02}", docs["table"])
    below = catalog
    for n in range(skew.depth):
        below = door.entity(below, "schema", f"deep{n:02}", docs["schema"])
    hub = door.entity(large, "table", "hub", docs["partitioned"], max(1, skew.versions))
    model = door.entity(large, "model", "hubmodel", _MODEL.format(skew.versions))
    for n in range(1, skew.versions + 1):
        door.owned(model, "m.c.s.hubmodel", "model_version", str(n), _VERSION)
    for n in range(skew.partitions):
        value = json.dumps({"comment": None, "properties": {}, "values": {"name": f"{n:08}"}}, separators=(",", ":"))
        door.owned(hub, TABLE, "partition", f"p={n:08}", value)
    _relate(door, docs, skew, lake, (hub, TABLE), tables)


def _relate(door: Door, docs: dict[str, str], skew: Skew, lake: int, hub: tuple[int, str], tables: list[int]) -> None:
    for n in range(skew.tags):
        tag = door.entity(lake, "tag", f"tag{n:08}", docs["tag"])
        door.relation("tag_on", hub, (tag, f"m.tag{n:08}"))
    common = (door.entity(lake, "tag", "common", docs["tag"]), "m.common")
    for n in range(min(skew.tagged, len(tables))):
        door.relation("tag_on", (tables[n], f"m.c.s.t{n:08}"), common)
    rita = (door.entity(lake, "user", "rita", docs["user"]), "m.rita")
    for n in range(skew.roles):
        role = (door.entity(lake, "role", f"r{n:08}", docs["role"]), f"m.r{n:08}")
        door.relation("membership", rita, role)
        door.relation("grant", role, (tables[n], f"m.c.s.t{n:08}"), "allow:select_table")
        door.relation("grant", role, (lake, "m"), "allow:use_schema")
        door.relation("grant", role, (lake, "m"), "allow:use_catalog")
    otto = (door.entity(lake, "user", "otto", docs["user"]), "m.otto")
    for n in range(min(skew.owned, len(tables))):
        door.relation("owner", (tables[n], f"m.c.s.t{n:08}"), otto)


def _documents() -> dict[str, str]:
    """Return a document of each kind, as the library writes it."""
    with ms.open("memory://") as store:
        surface.grow(store)
        made: dict[str, Any] = {
            kind: store.manager(kind).load(surface.WHERE[kind])
            for kind in ("metalake", "catalog", "schema", "table", "tag", "user", "role")
        }
        made["partitioned"] = store.tables.create("m.c.s.partitioned", columns=[ms.Column("name", "string")])
        return {kind: entity.record.doc for kind, entity in made.items()}
