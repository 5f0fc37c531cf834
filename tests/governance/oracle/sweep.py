"""Ask for everything at once: after some changes, each user for each thing that there is, in few calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import metastore as ms
from metastore import Store
from tests.governance.oracle.changes import change
from tests.governance.oracle.compare import Difference
from tests.governance.oracle.rules import Thing, placed
from tests.governance.oracle.world import USERS, World

__all__ = ["Asking", "answer", "some", "sweep"]

Asking = Callable[[World, str], Iterator[tuple[str, object, object]]]
"""Ask as a user; yield each decision: what it is, what was found, and what the rules say."""

_OUTSIDE = 0.3
"""How often a user begins without any right in a metalake."""
_FIRST = 24
"""How many changes are made before the first questions."""
_CHANGES = 4
"""How many changes are made between two rounds of questions."""
_WORDS = 8
"""For how many privileges each round asks."""
_WRITES = 10
"""How many things each user changes in each round."""


def sweep(
    stores: list[Store],
    seed: int,
    decisions: int,
    asking: Iterable[Asking] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Difference | int]:
    """Yield each difference, and how many decisions each round was, until there were ``decisions``.

    ``stores``: the trusted one, and those that serve the users. ``asking``: other ways to ask, such as a server.
    ``fields``: what all entities of a kind have besides.
    """
    chance = random.Random(seed)
    world = World(stores[0], chance, fields or {})
    views = [{name: store.as_user(name) for name in USERS} for store in stores]
    made, last = 0, list[str]()
    for user in USERS:
        _let_in(world, user)
    for _ in range(_FIRST):
        _changed(world, last)
    while made < decisions:
        for _ in range(_CHANGES):
            _changed(world, last)
        before = made
        for user in USERS:
            store = chance.choice(views)[user]
            ways = [_allowed(world, user), _seen(world, user, store), _altered(world, user, store)]
            for way in (*ways, *[ask(world, user) for ask in asking]):
                for what, found, wanted in way:
                    made += 1
                    if found != wanted:
                        told = f"{what} as {user}: {found}, and the rules say {wanted}"
                        yield Difference(seed, made, f"{told}; changes before: {'; '.join(last[-12:])}")
                        return
        yield made - before


def _let_in(world: World, user: str) -> None:
    """Give a user some rights at the top, so that not everything is hidden; the changes take some of them away."""
    rules, chance = world.rules, world.chance
    for lake in world.there("metalake"):
        role, member = world.one("role", lake=lake), rules.user(user, lake)
        if chance.random() < _OUTSIDE or member is None:
            continue
        at_the_top = [word for word, kinds in sorted(placed().items()) if "metalake" in kinds]
        words = {"use_catalog", "use_schema", "select_table", *chance.sample(at_the_top, 6)}
        for word in sorted(words):
            world.store.roles.grant(world.held[role], word, world.held[lake])
            rules.grants.add((role, word, "allow", lake))
        world.store.roles.assign(world.held[role], world.held[member])
        rules.has.add((member, role))


def _changed(world: World, last: list[str]) -> None:
    act = change(world)
    if act is not None:
        act()
        last.append(act.what)


def _allowed(world: World, user: str) -> Iterator[tuple[str, object, object]]:
    """Ask for some privileges on everything."""
    words = world.chance.sample(sorted(placed()), _WORDS)
    for one in world.rules.below(None):
        on: Any = world.held[one.id]
        for word in words:
            found = world.store.allowed(user, word, on).allowed
            yield f"allowed({word}, {world.rules.path(one.id)})", found, world.rules.allowed(user, word, one.id)


def _seen(world: World, user: str, store: Store) -> Iterator[tuple[str, object, object]]:
    """Search for everything, and load everything of each kind, by paths."""
    rules = world.rules
    live = rules.below(None)
    sees = {one.id: rules.sees(user, one.id) for one in live}
    found = {one.id for one in store.find()}
    yield "find, of what is gone", found - {*sees}, set()
    for one in live:
        yield f"find {rules.path(one.id)}", one.id in found, sees[one.id]
    for kind in {one.kind for one in live}:
        ids = [one.id for one in live if one.kind == kind]
        loaded = store.manager(kind).load_many([rules.path(one) for one in ids])
        for one_id, entity in zip(ids, loaded, strict=True):
            yield f"load_many, of {rules.path(one_id)}", entity is not None, sees[one_id]


def _altered(world: World, user: str, store: Store) -> Iterator[tuple[str, object, object]]:
    """Change some things, in a property on which no right rests."""
    rules = world.rules
    for one in some(world, user, rules.below(None), _WRITES):
        try:
            store.manager(one.kind).alter(rules.path(one.id), ms.SetProperty("n", str(world.chance.random())))
            found = "done"
        except ms.PermissionDenied:
            found = "denied"
        except ms.EntityNotFound:
            found = "hidden"
        yield f"alter {rules.path(one.id)}", found, answer(world, user, "alter", one.id)


def some(world: World, user: str, things: Iterable[Thing], count: int) -> list[Thing]:
    """Return some of the things by chance: half of them are seen by the user, as far as there are so many."""
    there = list(things)
    seen = [one for one in there if world.rules.sees(user, one.id)]
    chosen = world.chance.sample(seen, min(len(seen), count // 2))
    rest = [one for one in there if one not in chosen]
    return chosen + world.chance.sample(rest, min(len(rest), count - len(chosen)))


def answer(world: World, user: str, operation: str, thing: int) -> str:
    """Return what the rules say of a user's write: done, denied, or hidden."""
    if not world.rules.sees(user, thing):
        return "hidden"
    return "done" if world.rules.may_do(user, operation, thing) else "denied"
