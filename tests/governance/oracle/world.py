"""A database whose rights are known twice: by the store, and as the sets of the oracle. Its trusted store changes both.

The names of all entities differ, so that moves and restores meet no name. An :class:`Act` is one change: what to call,
and what it means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity
from tests.governance.oracle.rules import Rules, Thing

__all__ = ["OBJECTS", "USERS", "Act", "World"]

USERS = ("ann", "bob")
OBJECTS = ("catalog", "schema", "table", "view", "fileset", "topic", "model", "function", "tag", "policy")
_LEAVES: dict[str, dict[str, Any]] = {
    "view": {"representations": (ms.SQL("spark", "SELECT 1"),)},
    "fileset": {},
    "topic": {},
    "model": {},
    "function": {},
}


_NONE: Mapping[str, Mapping[str, Any]] = {}


@dataclass
class Act:
    """A change: what it is in words, the calls of the trusted store, and the same for the sets."""

    what: str
    call: Callable[[], object]
    then: Callable[[], object]

    def __call__(self) -> None:
        self.call()
        self.then()


class World:
    """Two metalakes with users, groups, roles and objects; users of one name in both."""

    def __init__(self, store: Store, chance: random.Random, fields: Mapping[str, Mapping[str, Any]] = _NONE) -> None:
        """``fields``: what all entities of a kind have besides."""
        self.store, self.chance, self.rules = store, chance, Rules()
        self._fields = fields
        self.held: dict[int, Entity] = {}
        """Each entity as it was made, or loaded, some time ago."""
        self.with_rows: list[int] = []
        """The tables that have a partition and a statistic."""
        self._named = 0
        for lake in ("m", "o"):
            top = self.make("metalake", None, lake)
            for _ in range(3 if lake == "m" else 1):
                catalog = self.make("catalog", top, type="relational")
                for _ in range(2):
                    schema = self.make("schema", catalog)
                    for parent in (schema, self.make("schema", schema) if lake == "m" else schema):
                        for _ in range(2):
                            self.table(parent)
                        kind = chance.choice(list(_LEAVES))
                        self.make(kind, parent, None, **_LEAVES[kind])
            for kind, count in (("tag", 2), ("policy", 1), ("group", 2), ("role", 3)):
                for _ in range(count):
                    self.make(kind, top)
            for name in USERS:
                self.make("user", top, name)

    # --- what there is

    def manager(self, kind: str) -> Any:
        """Return the trusted store's manager of a kind."""
        return self.store.manager(kind)

    def make(self, kind: str, parent: int | None, name: str | None = None, **fields: Any) -> int:
        """Create an entity, in the store and in the sets."""
        name = self.name(kind) if name is None else name
        path = name if parent is None else f"{self.rules.path(parent)}.{name}"
        given = {**fields, **self._fields.get(kind, {})}
        properties = {"p": ms.secret("env:PATH"), **given.pop("properties", {})}
        return self.add(self.manager(kind).create(path, properties=properties, **given), parent)

    def table(self, parent: int) -> int:
        """Create a table with a partition and a statistic."""
        table = self.make("table", parent)
        self.store.partitions.create(self.held[table], "day=1", values={})
        self.store.statistics.set(self.held[table], {"custom-n": 1})
        self.with_rows.append(table)
        return table

    def add(self, entity: Entity, parent: int | None) -> int:
        """Note an entity that was made."""
        self.held[entity.id] = entity
        self.rules.things[entity.id] = Thing(entity.id, entity.kind, entity.name, parent)
        return entity.id

    def name(self, kind: str) -> str:
        """Return a name that nothing has."""
        self._named += 1
        return f"{kind[0]}{self._named}"

    def there(self, *kinds: str, live: bool = True, lake: int | None = None) -> list[int]:
        """Return the entities of these kinds (none: of all) that are live; else those that were dropped by themselves.

        Those lie below something live, in the metalake ``lake`` or in any.
        """
        rules = self.rules
        return [
            one.id
            for one in rules.things.values()
            if (not kinds or one.kind in kinds)
            and one.live == live
            and (one.parent is None or rules.live(one.parent))
            and (lake is None or rules.way(one.id)[0] == lake)
        ]

    def one(self, *kinds: str, lake: int | None = None, live: bool = True) -> int:
        """Return one of these by chance. Raises IndexError where there is none."""
        return self.chance.choice(self.there(*kinds, lake=lake, live=live))

    def any_lake(self) -> int:
        """Return the first metalake more often."""
        return self.chance.choice(self.there("metalake")[:1] * 3 + self.there("metalake"))

    def target(self, thing: int) -> Any:
        """Return the path of an entity, or the entity as it was in hand some time ago."""
        if self.chance.random() < 0.5 and self.rules.things[thing].kind not in ("user", "group", "role"):
            return self.rules.path(thing)
        return self.held[thing]
