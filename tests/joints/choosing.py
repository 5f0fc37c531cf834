"""The choice of a client's next call.

A client is a generator: it yields a request, and gets the answer (None: an error).

A *mixed* client makes calls of every kind, on few names. A *mover* swaps, moves, drops and restores the entities above
the tables, takes rights away and gives them back: the others' knowledge of paths is outdated all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import metastore as ms
from tests.joints.request import HELD, Request, Step
from tests.joints.world import BULKY, CATALOGS, LAKE, MADE, NOWHERE, SCHEMAS, TABLES, kind_of, schema_path

__all__ = ["ROLES", "Role", "Script", "Who", "scripts"]

Script = Generator[Request, Any, None]
_WORKS: Final = 0.15
"""How long an unhurried transaction works (seconds)."""
_WORKS_LONG: Final = 0.8
"""How long a slow one does: longer than a quarter of the least time for which its mark would bar others (seconds)."""
_WIDE: Final = 4000
_PAGE: Final = 300
"""How many changes a follower of the feed reads at once."""
_BULK: Final = 4000
_KEYS: Final = 6
"""How many properties a document gets: it must not grow with the number of clients."""


class Who:
    """The client that chooses: its dice, the principal of its next call, and the entities that it has in hand."""

    def __init__(self, name: str, dice: Random, weights: dict[str, int] | None = None) -> None:
        self.name, self.dice, self.weights = name, dice, weights or {}
        self.number = 0
        self.hand: list[ms.Entity] = []
        self.position: str | None = None
        """How far it has read the change feed."""

    @property
    def token(self) -> ms.SetProperty:
        """A change that no other call makes."""
        return ms.SetProperty(f"k{self.dice.randrange(_KEYS)}", f"{self.name}/{self.number + 1}")

    def keep(self, entity: Any) -> None:
        """Take an entity in hand; it may be outdated when it is used."""
        if isinstance(entity, ms.Entity):
            self.hand[:] = [*self.hand[-7:], entity]


Chances = Mapping[Callable[[Who], Script], int]


def _manager(store: Any, path: str) -> Any:
    return store.manager(kind_of(path))


def _table(dice: Random, names: tuple[str, ...] = TABLES) -> str:
    return f"{schema_path(dice)}.{dice.choice(names)}"


def load(who: Who) -> Script:
    path = _table(who.dice) if who.dice.random() < 0.9 else schema_path(who.dice)
    who.keep((yield Request("load", path, lambda s: _manager(s, path).load(path))))


def load_id(who: Who) -> Script:
    if not who.hand:
        return
    entity = who.dice.choice(who.hand)
    who.keep((yield Request("load", None, lambda s: s.manager(entity.kind).load(entity), entity_id=entity.id)))


def exists(who: Who) -> Script:
    path = _table(who.dice, (*TABLES, *MADE)) if who.dice.random() < 0.7 else schema_path(who.dice)
    yield Request("exists", path, lambda s: _manager(s, path).exists(path))


def load_many(who: Who) -> Script:
    paths = tuple(_table(who.dice, (*TABLES, *MADE)) for _ in range(4))
    yield Request("load_many", None, lambda s: s.tables.load_many(paths), paths=paths)


def page(who: Who) -> Script:
    parent = _parent(who.dice)
    below = kind_of(f"{parent}.x")
    yield Request("page", parent, lambda s: s.manager(below).page(parent, size=100))


def names_page(who: Who) -> Script:
    parent = _parent(who.dice)
    below = kind_of(f"{parent}.x")
    yield Request("names_page", parent, lambda s: s.manager(below).names_page(parent, size=100))


def _parent(dice: Random) -> str:
    return schema_path(dice) if dice.random() < 0.7 else f"{LAKE}.{dice.choice(CATALOGS)}"


def alter(who: Who) -> Script:
    path, token = (_table(who.dice) if who.dice.random() < 0.93 else schema_path(who.dice)), who.token
    who.keep((yield Request("alter", path, lambda s: _manager(s, path).alter(path, token))))


def alter_id(who: Who) -> Script:
    tables = [one for one in who.hand if one.kind == "table"]
    if tables:
        entity, token = who.dice.choice(tables), who.token
        who.keep((yield Request("alter", None, lambda s: s.tables.alter(entity, token), entity_id=entity.id)))


def expecting(who: Who) -> Script:
    """An alter that its caller bound to a version: it fails in the middle of a batch."""
    path, token, version = _table(who.dice), who.token, who.dice.randrange(1, 40)
    yield Request("alter", path, lambda s: s.tables.alter(path, token, expected_version=version))


def poisoned(who: Who) -> Script:
    """A change that does not fit: it is the caller's own error."""
    path = _table(who.dice)
    yield Request("poisoned", path, lambda s: s.tables.alter(path, ms.DropColumn(NOWHERE)))


def create(who: Who) -> Script:
    path = _table(who.dice, MADE)
    made = {"made": f"{who.name}/{who.number + 1}"}
    who.keep((yield Request("create", path, lambda s: s.tables.create(path, properties=made))))


def drop(who: Who) -> Script:
    path = _table(who.dice, MADE)
    yield Request("drop", path, lambda s: s.tables.drop(path))


def rename_table(who: Who) -> Script:
    path = _table(who.dice, MADE)
    name = who.dice.choice(MADE)
    to = f"{path.rpartition('.')[0]}.{name}"
    if to != path:
        who.keep((yield Request("rename", path, lambda s: s.tables.rename(path, name), to=to)))


def move_table(who: Who) -> Script:
    path, to = _table(who.dice, MADE), _table(who.dice, MADE)
    if to.rpartition(".")[0] != path.rpartition(".")[0]:
        yield Request("move", path, lambda s: s.tables.rename(path, to), to=to)


def restore(who: Who) -> Script:
    path = _table(who.dice, MADE)
    yield Request("restore", path, lambda s: s.tables.restore(path))


def transaction(who: Who) -> Script:
    """Read one table, write another; with a little work in between."""
    one, other = who.dice.sample(TABLES, 2)
    below, token = schema_path(who.dice), who.token
    above = schema_path(who.dice) if who.dice.random() < 0.3 else below
    steps = (_load(f"{above}.{one}"), _alter(f"{below}.{other}", token))
    yield Request("transaction", below, block="run", steps=steps, works=who.dice.choice((0.0, 0.0, 0.005)))


def freeze(who: Who) -> Script:
    path, token = schema_path(who.dice), who.token
    steps = (_alter(path, token),)
    yield Request("freeze", path, block="freeze", steps=steps, works=who.dice.choice((0.0, 0.02)))


def leased(who: Who) -> Script:
    path, token = _table(who.dice), who.token
    steps: tuple[Step, ...] = (("alter", path, lambda both: both[0].tables.alter(path, token, lease=both[1])),)
    yield Request("leased", path, block="lease", steps=steps)


def drop_in_steps(who: Who) -> Script:
    path = _table(who.dice, MADE)
    pending = yield Request("begin_drop", path, lambda s: s.tables.begin_drop(path, ttl=HELD))
    if pending is not None:
        end = who.dice.choice(("finish", "roll_back"))
        yield Request(end, path, lambda _: getattr(pending, end)(), entity_id=pending.entity_id)


def read_as_user(who: Who) -> Script:
    path = _table(who.dice)
    yield Request("load", path, lambda s: s.as_user("ann").tables.load(path), user="ann")


def alter_as_user(who: Who) -> Script:
    path, token, mine = _table(who.dice), who.token, ms.new_operation_id()

    def send(store: Any) -> Any:
        return store.as_user("ann").tables.alter(path, token, operation_id=mine)

    yield Request("alter", path, send, user="ann", operation_id=str(mine))


def follow(who: Who) -> Script:
    """Read on in the change feed, from where the client was."""
    after = who.position
    page = yield Request("changes", None, lambda s: s.changes_page(after=after, size=_PAGE), after=after)
    if page is not None and page.items:
        who.position = page.items[-1].position


def rights(who: Who) -> Script:
    """Take the user's right on a schema away, and give it back after a moment."""
    path = schema_path(who.dice)
    schema = yield Request("load", path, lambda s: s.schemas.load(path))
    if schema is None:
        return
    right = f"{LAKE}.reader", "use_schema", schema
    yield Request("revoke", None, lambda s: s.roles.revoke(*right), entity_id=schema.id)
    for _ in range(who.dice.randrange(4)):
        yield from load(who)
    yield Request("grant", None, lambda s: s.roles.grant(*right), entity_id=schema.id)


def swap_schemas(who: Who) -> Script:
    """Blue and green: the schema in use steps aside, the new one takes its name."""
    catalog = f"{LAKE}.{who.dice.choice(CATALOGS[:2])}"
    yield from _swap("schema", [f"{catalog}.{name}" for name in SCHEMAS])


def swap_catalogs(who: Who) -> Script:
    yield from _swap("catalog", [f"{LAKE}.{name}" for name in CATALOGS])


def _swap(kind: str, paths: list[str]) -> Script:
    a, b, aside = paths
    for path, to in ((a, aside), (b, a), (aside, b)):
        yield _rename(kind, path, to)


def _rename(kind: str, path: str, to: str) -> Request:
    name = to.rpartition(".")[2]
    return Request("rename", path, lambda s: s.manager(kind).rename(path, name), to=to)


def swap_at_once(who: Who) -> Script:
    """The same in one commit; the third rename follows alone."""
    catalog = f"{LAKE}.{who.dice.choice(CATALOGS[:2])}"
    a, b, aside = (f"{catalog}.{name}" for name in SCHEMAS)
    steps: tuple[Step, ...] = (
        ("rename", a, lambda tx: tx.schemas.rename(a, SCHEMAS[2])),
        ("rename", b, lambda tx: tx.schemas.rename(b, SCHEMAS[0])),
    )
    yield Request("transaction", catalog, block="run", steps=steps)
    yield _rename("schema", aside, b)


def move_schema(who: Who) -> Script:
    one, other = who.dice.sample(CATALOGS[:2], 2)
    path, to = f"{LAKE}.{one}.{who.dice.choice(SCHEMAS)}", f"{LAKE}.{other}.{who.dice.choice(SCHEMAS)}"
    yield Request("move", path, lambda s: s.schemas.rename(path, to), to=to)


def drop_schema(who: Who) -> Script:
    """A schema goes with all that is in it, and comes back: the same one, or one of that name."""
    path = schema_path(who.dice)
    dropped = yield Request("drop_cascade", path, lambda s: s.schemas.drop(path, cascade=True))
    if dropped and who.dice.random() < 0.7:
        yield Request("restore", path, lambda s: s.schemas.restore(path))
    else:
        yield Request("create", path, lambda s: s.schemas.create(path))
        for name in TABLES:
            yield from _made(f"{path}.{name}")


def _made(path: str) -> Script:
    yield Request("create", path, lambda s: s.tables.create(path))


def drop_empty(who: Who) -> Script:
    path = schema_path(who.dice)
    yield Request("drop", path, lambda s: s.schemas.drop(path))


def _load(path: str) -> Step:
    return "load", path, lambda tx: _manager(tx, path).load(path)


def _alter(path: str, token: ms.SetProperty) -> Step:
    return "alter", path, lambda tx: _manager(tx, path).alter(path, token)


def hot(who: Who) -> Script:
    path, token = f"{LAKE}.c.s.t0", who.token
    yield Request("alter", path, lambda s: s.tables.alter(path, token))


def wide(who: Who) -> Script:
    """A change of a document so large that a batch of them is sent in parts."""
    path, change = _table(who.dice), ms.SetProperty("wide", f"{who.name}/{who.number + 1}" + "x" * _WIDE)
    yield Request("alter", path, lambda s: s.tables.alter(path, change))


def create_wide(who: Who) -> Script:
    path, wide = _table(who.dice, MADE), {"wide": "x" * _WIDE}
    yield Request("create", path, lambda s: s.tables.create(path, properties=wide))


def slow(who: Who) -> Script:
    """A transaction whose function works for longer than others take for a commit."""
    path, token = f"{LAKE}.c.s.t0", who.token
    steps = (_load(f"{LAKE}.c.s"), _alter(path, token))
    yield Request("transaction", path, block="run", steps=steps, works=_WORKS_LONG)


def near(who: Who) -> Script:
    path = f"{LAKE}.c.s.{who.dice.choice(TABLES)}"
    yield Request("load", path, lambda s: s.tables.load(path))


def unhurried(who: Who) -> Script:
    """A change now and then: what a cache has missed is old for a while before it is evicted again."""
    path, token = f"{LAKE}.c.s.{who.dice.choice(TABLES)}", who.token
    yield Request("transaction", path, block="run", steps=(_alter(path, token),), works=_WORKS)


def bulk(who: Who) -> Script:
    """One commit of very many creates. Only for threads."""
    paths = [f"{BULKY}.b{who.name}_{who.number}_{n}" for n in range(_BULK)]
    steps: tuple[Step, ...] = (("bulk", BULKY, lambda tx: len([tx.tables.create(path) for path in paths])),)
    yield Request("bulk", BULKY, block="run", steps=steps)


_MIXED: Final[Chances] = {
    load: 26,
    load_id: 5,
    exists: 5,
    load_many: 5,
    page: 4,
    names_page: 3,
    alter: 24,
    alter_id: 5,
    expecting: 2,
    poisoned: 2,
    create: 8,
    drop: 6,
    rename_table: 4,
    move_table: 2,
    restore: 2,
    transaction: 5,
    freeze: 1,
    leased: 1,
    drop_in_steps: 1,
    follow: 2,
    read_as_user: 3,
    alter_as_user: 2,
}
_MOVER: Final[Chances] = {
    swap_schemas: 10,
    swap_catalogs: 3,
    swap_at_once: 2,
    move_schema: 2,
    drop_schema: 2,
    drop_empty: 1,
    rights: 2,
}
_LIGHT: Final[Chances] = {load: 3, alter: 1}
_READER: Final[Chances] = {load: 12, load_id: 2, exists: 3, load_many: 2, alter: 1}
_FAILING: Final[Chances] = {alter: 3, poisoned: 1, expecting: 1, create: 3, drop: 2, rename_table: 2}
_HOT: Final[Chances] = {hot: 1}
_WRITER: Final[Chances] = {alter: 6, hot: 1, leased: 1}
_WIDES: Final[Chances] = {wide: 3, create_wide: 4, drop: 2, rename_table: 2}
_SLOW: Final[Chances] = {slow: 1}
_BULKS: Final[Chances] = {bulk: 1}
_USUAL: Final = ((5.0, 17), (0.5, 2), (0.2, 1))


@dataclass(frozen=True)
class Role:
    """What a client does."""

    chances: Chances
    deadlines: tuple[tuple[float, int], ...] = _USUAL
    """Seconds, and how often."""


ROLES: Final = {
    "mixed": Role(_MIXED),
    "mover": Role(_MOVER),
    "reader": Role(_READER),
    "light": Role(_LIGHT, ((5.0, 1),)),
    "brief": Role(_LIGHT, ((0.2, 1),)),
    "failing": Role(_FAILING),
    "hot": Role(_HOT, ((5.0, 1),)),
    "wide": Role(_WIDES, ((5.0, 1),)),
    "notebook": Role({near: 1}, ((5.0, 1),)),
    "unhurried": Role({unhurried: 1}, ((12.0, 1),)),
    "slow": Role(_SLOW, ((12.0, 1),)),
    "writer": Role(_WRITER, ((5.0, 1),)),
    "bulk": Role(_BULKS, ((20.0, 1),)),
}


def scripts(who: Who, role: Role) -> Iterator[Script]:
    """Yield what a client does, one thing after another, for ever."""
    while True:
        yield who.dice.choices(list(role.chances), list(role.chances.values()))[0](who)
