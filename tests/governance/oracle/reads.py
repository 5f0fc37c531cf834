"""What one user reads in a world. A reading call shows some of its *candidates*; each of them is a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import metastore as ms
from metastore import Store
from tests.governance.oracle.call import Call, Shown
from tests.governance.oracle.rules import Rules
from tests.governance.oracle.world import OBJECTS, World

__all__ = ["READS"]


There = Callable[[Rules, int], bool]
"""Whether one of the candidates is where the call looks for it. It may be changed within the call."""


def _seen(user: str, things: Iterable[int], there: There, first: int | None = None) -> Callable[[Rules], Shown]:
    """Return what says which of these are there and seen by the user; ``first``: that must be seen as well."""
    asked = list(things)

    def shown(rules: Rules) -> Shown:
        if first is not None and not rules.sees(user, first):
            return frozenset()
        return frozenset(one for one in asked if there(rules, one) and rules.sees(user, one))

    return shown


def _at(target: object) -> There:
    return lambda rules, one: rules.leads(target, one)


def _ids(found: Iterable[Any]) -> list[int]:
    return [one.id for one in found if one is not None]


def _load(world: World, user: str) -> Call:
    thing = world.one()
    kind, target = world.rules.things[thing].kind, world.target(thing)
    return Call(f"load {target}", user, lambda s: [s.manager(kind).load(target).id], _seen(user, [thing], _at(target)))


def _exists(world: World, user: str) -> Call:
    thing = world.one()
    kind, path = world.rules.things[thing].kind, world.rules.path(thing)
    there = _seen(user, [thing], _at(path))
    return Call(f"exists {path}", user, lambda s: [thing] if s.manager(kind).exists(path) else [], there)


def _load_many(world: World, user: str) -> Call:
    kind = world.chance.choice(("table", "table", "table", "schema", "catalog", "tag", "role", "user"))
    there = world.there(kind)
    ids = world.chance.sample(there, min(len(there), world.chance.randint(2, 6)))
    paths = {one: world.rules.path(one) for one in ids}
    return Call(
        f"load_many {[*paths.values()]}",
        user,
        lambda s: _ids(s.manager(kind).load_many([*paths.values()])),
        _seen(user, ids, lambda rules, one: rules.leads(paths[one], one)),
        len(ids),
    )


def _children(world: World, user: str) -> tuple[str, int, list[int]]:
    parent = world.one("metalake", "catalog", "schema", "schema", "schema")
    kinds = {
        "metalake": ("catalog", "tag", "policy", "user", "group", "role"),
        "catalog": ("schema",),
        "schema": ("table", "table", "table", "schema", "view", "model"),
    }
    kind = world.chance.choice(kinds[world.rules.things[parent].kind])
    ids = [one for one in world.there(kind) if world.rules.things[one].parent == parent]
    if not ids:
        raise IndexError
    return kind, parent, ids


def _list(world: World, user: str) -> Call:
    kind, parent, ids = _children(world, user)
    target, every = world.target(parent), [one.id for one in world.rules.things.values() if one.kind == kind]
    names = {world.rules.things[one].name: one for one in ids}

    def named(name: str) -> int:
        return names[name] if name in names else next(one for one in every if world.rules.things[one].name == name)

    def there(rules: Rules, one: int) -> bool:
        return rules.leads(target, parent) and rules.live(one) and rules.things[one].parent == parent

    ways: dict[str, Callable[[Any], Iterable[object]]] = {
        "list": lambda m: _ids(m.list(target)),
        "names": lambda m: [named(name) for name in m.names(target)],
        "page": lambda m: _ids(m.page(target).items),
        "small pages": lambda m: _ids(m.list(target, page_size=1)),
        "names_page": lambda m: [named(name) for name in m.names_page(target).items],
    }
    way = world.chance.choice(list(ways))
    return Call(
        f"{way} {kind} in {target}",
        user,
        lambda s: ways[way](s.manager(kind)),
        _seen(user, every, there, parent),
        len(ids),
    )


def _find(world: World, user: str) -> Call:
    under = world.chance.choice([None, world.one("metalake"), world.one("catalog"), world.one("schema")])
    kind = world.chance.choice(("table", "table", "schema", "tag", "role", None))
    every = [one.id for one in world.rules.things.values() if kind in (None, one.kind)]
    target = None if under is None else world.target(under)

    def there(rules: Rules, one: int) -> bool:
        return (under is None or rules.leads(target, under)) and rules.live(one) and rules.is_below(one, under)

    return Call(
        f"find {kind} in {target}",
        user,
        lambda s: _ids(s.find(target, kind=kind)),
        _seen(user, every, there, under),
        sum(kind in (None, one.kind) for one in world.rules.below(under)),
    )


def _changes(world: World, user: str) -> Call:
    """Read the feed from somewhere on: what is seen of a change is decided by where its ends stand now."""
    store = world.store
    last = store._session.backend.feed_start()[0]
    newest = store._session.backend.watermark().position
    seq = max(0, newest - world.chance.randint(1, 60))
    steps = [
        step
        for step in store._session.backend.feed(seq, 25).rows
        if {step.owner_id or step.entity_id, step.other_id} - {None} <= world.rules.things.keys()
    ]
    ends = {
        step.seq: [one for one in (step.owner_id or step.entity_id, step.other_id) if one is not None]
        for step in steps
        if step.seq is not None
    }
    if not ends:
        raise IndexError
    after, top = f"{last}-{seq:016x}", max(ends)

    def shown(store: Store) -> Iterable[object]:
        found = [int(c.position.rpartition("-")[2][:16], 16) for c in store.changes(after=after)]
        return [one for one in found if one in ends and one <= top]

    return Call(
        f"changes after {seq}",
        user,
        shown,
        lambda rules: [seq for seq, ids in ends.items() if ids and all(rules.sees(user, one) for one in ids)],
        len(ends),
    )


def _history(world: World, user: str) -> Call:
    thing = world.one(*OBJECTS)
    kind, held = world.rules.things[thing].kind, world.held[thing]
    return Call(
        f"history {held.path}",
        user,
        lambda s: [thing] if list(s.manager(kind).history(held)) else [],
        _seen(user, [thing], lambda _, __: True),
    )


def _dropped(world: World, user: str) -> Call:
    thing = world.rules.things[world.one("table", "schema", "tag", "model", live=False)]
    parent = thing.parent or 0
    target = world.rules.path(parent)
    return Call(
        f"dropped {thing.kind} in {target}",
        user,
        lambda s: [one.id for one in s.manager(thing.kind).dropped(target) if one.id == thing.id],
        _seen(user, [thing.id], lambda rules, one: rules.leads(target, parent) and not rules.things[one].live, parent),
    )


def _rows(world: World, user: str) -> Call:
    table = world.chance.choice([one for one in world.with_rows if world.rules.live(one)])
    target, held, path = world.target(table), world.held[table], world.rules.path(table)
    ways: dict[str, Callable[[Any], object]] = {
        "partitions.load": lambda s: s.partitions.load(target, "day=1"),
        "partitions.exists": lambda s: s.partitions.exists(target, "day=1"),
        "partitions.list": lambda s: list(s.partitions.list(target)),
        "partitions.names": lambda s: list(s.partitions.names(target)),
        "partitions.page": lambda s: s.partitions.page(target).items,
        "statistics.of": lambda s: s.statistics.of(target),
        "statistics.list": lambda s: list(s.statistics.list(target)),
        "sources.tables": lambda s: s.sources.tables([held.id])[0],
        "sources.figures": lambda s: s.sources.figures([held.id], "custom-n")[0],
    }
    way = world.chance.choice(list(ways))
    there = _at(target if way.startswith(("partitions", "statistics")) else held)
    return Call(f"{way} {path}", user, lambda s: [table] if ways[way](s) else [], _seen(user, [table], there))


def _related(world: World, user: str) -> Call:
    """Read who owns, what a role grants, who has it, the groups of a user."""
    rules, held = world.rules, world.held
    way = world.chance.choice(("owner", "owned", "grants", "members", "roles", "groups"))
    if way == "owner":
        one, other = world.chance.choice(sorted(rules.owners.items()))
        is_so: Callable[[Rules], bool] = lambda now: now.owners.get(one) == other  # noqa: E731
        run: Callable[[Any], Iterable[object]] = lambda s: _ids([s.owners.of(held[one])])  # noqa: E731
    elif way == "owned":
        other, one = world.chance.choice(sorted(rules.owners.items()))
        is_so = lambda now: now.owners.get(other) == one  # noqa: E731
        run = lambda s: [thing.id for thing in s.owners.owned_by(held[one]) if thing.id == other]  # noqa: E731
    elif way == "grants":
        one, _, _, other = world.chance.choice(sorted(rules.grants))
        path = rules.path(other)
        is_so = lambda now: any((grant[0], grant[3]) == (one, other) for grant in now.grants)  # noqa: E731
        run = lambda s: [other for g in s.roles.grants(held[one]) if g.path in (path, world.rules.path(other))]  # noqa: E731
    elif way == "members":
        other, one = world.chance.choice(sorted(rules.has))
        is_so = lambda now: (other, one) in now.has  # noqa: E731
        run = lambda s: [thing.id for thing in s.roles.members(held[one]) if thing.id == other]  # noqa: E731
    elif way == "roles":
        one, other = world.chance.choice(sorted(rules.has))
        is_so = lambda now: (one, other) in now.has  # noqa: E731
        run = lambda s: [thing.id for thing in s.roles.of(held[one]) if thing.id == other]  # noqa: E731
    else:
        one, other = world.chance.choice(sorted(rules.joined))
        is_so = lambda now: (one, other) in now.joined  # noqa: E731
        run = lambda s: [thing.id for thing in s.users.groups(held[one]) if thing.id == other]  # noqa: E731
    if not rules.live(one) or not rules.live(other):
        raise IndexError

    def there(now: Rules, _: int) -> bool:
        return now.live(one) and now.live(other) and is_so(now)

    return Call(f"{way} of {rules.path(one)}", user, run, _seen(user, [other], there, one))


def _reveal(world: World, user: str) -> Call:
    thing = world.one(*OBJECTS)
    kind, path = world.rules.things[thing].kind, world.rules.path(thing)

    def wanted(rules: Rules) -> Iterable[object]:
        if not rules.leads(path, thing) or not rules.sees(user, thing):
            return ["hidden"]
        return ["done"] if rules.may(user, ("use_secret",), thing) else ["denied"]

    def run(store: Store) -> Iterable[object]:
        try:
            store.reveal(path, "p", kind=kind)
        except ms.EntityNotFound as error:
            if "has no property" not in str(error):  # what users have made has none
                raise
        return ["done"]

    return Call(f"reveal {path}", user, run, wanted, then=lambda: None)


def _allowed(world: World, user: str) -> Call:
    thing = world.one(*OBJECTS, "metalake", "role", "user")
    word = world.chance.choice(_ASKED)
    held, asks = world.held[thing], world.chance.random() < 0.5
    if asks:  # the user itself asks
        return Call(
            f"allowed({word}, {held.path})",
            user,
            lambda s: [s.allowed(user, word, held).allowed],
            lambda rules: [rules.allowed(user, word, thing)] if rules.live(thing) and rules.sees(user, thing) else [],
        )
    return Call(
        f"store.allowed({word}, {held.path})",
        user,
        lambda _: [world.store.allowed(user, word, held).allowed],
        lambda rules: [rules.allowed(user, word, thing)] if rules.live(thing) else [],
    )


_ASKED = (
    *("use_catalog", "use_schema", "select_table", "modify_table", "create_table", "create_schema", "use_secret"),
    *("create_catalog", "apply_tag", "manage_users", "manage_groups", "manage_grants", "use_model", "register_model"),
)


def _together(world: World, user: str) -> Call:
    """Read several things in one transaction, which the commit validates."""
    ids = [world.one("table", "schema", "tag") for _ in range(world.chance.randint(2, 4))]
    targets = [(world.rules.things[one].kind, world.target(one), one) for one in dict.fromkeys(ids)]

    def run(store: Store) -> Iterable[object]:
        found = []
        with store.transaction() as tx:
            for kind, target, one in targets:
                with suppress(ms.EntityNotFound):
                    found += [one] if tx.manager(kind).load(target) else []
        return found

    named = {one: target for _, target, one in targets}
    there = _seen(user, ids, lambda rules, one: rules.leads(named[one], one))
    return Call(f"transaction {[t for _, t, _ in targets]}", user, run, there, len(targets))


READS: dict[Callable[[World, str], Call], int] = {
    _load: 6,
    _exists: 2,
    _load_many: 5,
    _list: 5,
    _find: 2,
    _changes: 3,
    _history: 2,
    _dropped: 1,
    _rows: 4,
    _related: 4,
    _reveal: 2,
    _allowed: 6,
    _together: 2,
}
