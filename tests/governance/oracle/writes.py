"""What one user writes in a world: each call is one decision. What was done is noted in the sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import metastore as ms
from metastore import Store
from tests.governance.oracle.call import Call
from tests.governance.oracle.rules import Rules, Thing, needs, placed
from tests.governance.oracle.world import OBJECTS, World

__all__ = ["WRITES"]

Run = Callable[[Any], object]


def _write(
    what: str,
    user: str,
    run: Run,
    named: Iterable[int | tuple[int, Any]],
    may: Callable[[Rules], bool],
    then: Callable[[], object] = lambda: None,
) -> Call:
    """Return a write of a user that names these, and must see them. A run that returns False has done nothing.

    What is named by a path comes with it: a change within the call may move it away.
    """
    names = [one if isinstance(one, tuple) else (one, None) for one in named]

    def wanted(rules: Rules) -> list[object]:
        if not all(rules.leads(target, one) and rules.sees(user, one) for one, target in names):
            return ["hidden"]
        return ["done" if may(rules) else "denied"]

    def done(store: Store) -> list[object]:
        return ["hidden" if run(store) is False else "done"]

    return Call(what, user, done, wanted, then=then)


def _alter(world: World, user: str) -> Call:
    thing = world.one(*OBJECTS, "table", "table", "table", "metalake", "user", "group", "role")
    kind, target, value = world.rules.things[thing].kind, world.target(thing), str(world.chance.random())
    return _write(
        f"alter {target}",
        user,
        lambda s: s.manager(kind).alter(target, ms.SetProperty("n", value)),
        [(thing, target)],
        lambda rules: rules.may_do(user, "alter", thing),
    )


def _rename(world: World, user: str) -> Call:
    thing = world.rules.things[world.one(*OBJECTS, "table", "table", "group", "role", "user")]
    new, target = world.name(thing.kind), world.target(thing.id)
    return _write(
        f"rename {target} to {new}",
        user,
        lambda s: s.manager(thing.kind).rename(target, new),
        [(thing.id, target)],
        lambda rules: rules.may_do(user, "rename", thing.id),
        lambda: setattr(thing, "name", new),
    )


def _move(world: World, user: str) -> Call:
    lake = world.any_lake()
    thing, to = world.rules.things[world.one("table", lake=lake)], world.one("schema", lake=lake)
    if thing.parent == to:
        raise IndexError
    target, path = world.target(thing.id), f"{world.rules.path(to)}.{thing.name}"
    return _write(
        f"move {target} to {path}",
        user,
        lambda s: s.tables.rename(target, path),
        [(thing.id, target), (to, world.rules.path(to))],
        lambda rules: rules.may_do(user, "move", thing.id) and _creates(rules, user, "table", to),
        lambda: setattr(thing, "parent", to),
    )


def _creates(rules: Rules, user: str, kind: str, parent: int) -> bool:
    return rules.may(user, needs(kind, "create"), parent, inside=True)


def _create(world: World, user: str) -> Call:
    kinds = {
        "metalake": ("tag", "role", "group", "user"),
        "catalog": ("schema",),
        "schema": ("table",) * 4 + ("topic",),
    }
    parent = world.one("metalake", "catalog", "schema", "schema", "schema", "schema")
    kind = world.chance.choice(kinds[world.rules.things[parent].kind])
    name, target, way = world.name(kind), world.target(parent), world.chance.choice(("create", "many", "return"))
    path = f"{world.rules.path(parent)}.{name}"
    made: list[Any] = []

    def run(store: Store) -> None:
        manager: Any = store.manager(kind)
        if way == "create":
            made.append(manager.create(path))
            return
        manager.create_many(target, [{"name": name}], if_exists="return" if way == "return" else "error")
        made.append(world.manager(kind).load(path))

    def then() -> None:
        world.held[made[0].id] = made[0]
        world.rules.things[made[0].id] = Thing(made[0].id, kind, name, parent)
        world.rules.owners[made[0].id] = world.rules.user(user, world.rules.way(parent)[0]) or 0

    named = [(parent, world.rules.path(parent) if way == "create" else target)]
    return _write(f"{way} {kind} {path}", user, run, named, lambda rules: _creates(rules, user, kind, parent), then)


def _create_taken(world: World, user: str) -> Call:
    """Create what is there already: who may not create there is told so first, whether it sees what is there or not."""
    thing = world.rules.things[world.one("table", "schema")]
    parent, path = thing.parent or 0, world.rules.path(thing.id)

    def run(store: Store) -> object:
        with suppress(ms.EntityAlreadyExists):
            world.manager(thing.kind).drop(store.manager(thing.kind).create(path))  # it was dropped within the call
        return None

    named = [(parent, world.rules.path(parent))]
    return _write(f"create taken {path}", user, run, named, lambda rules: _creates(rules, user, thing.kind, parent))


def _create_again(world: World, user: str) -> Call:
    """Run a create again: who owns what is there does not change."""
    thing = world.rules.things[world.one("table")]
    parent = thing.parent or 0
    target, path, name = world.target(parent), world.rules.path(thing.id), thing.name

    def run(store: Store) -> None:
        if store.tables.create_many(target, [{"name": name}], if_exists="return"):
            world.store.tables.drop(path)  # what was there was moved or dropped within the call

    return _write(
        f"create again {path}",
        user,
        run,
        [(parent, target)],
        lambda rules: _creates(rules, user, "table", parent),
    )


def _drop(world: World, user: str) -> Call:
    thing = world.rules.things[world.one("table", "table", "tag", "role", "group", "model")]
    target = world.target(thing.id)
    return _write(
        f"drop {target}",
        user,
        lambda s: s.manager(thing.kind).drop(target),
        [(thing.id, target)],
        lambda rules: rules.may_do(user, "drop", thing.id),
        lambda: setattr(thing, "live", False),
    )


def _restore(world: World, user: str) -> Call:
    thing = world.rules.things[world.one("table", "tag", "role", "group", "model", live=False)]
    path, parent = world.rules.path(thing.id), thing.parent or 0

    def wanted(rules: Rules) -> list[object]:
        gone = not rules.things[thing.id].live and rules.leads(path.rpartition(".")[0], parent)
        if not gone or not rules.sees(user, parent) or not rules.sees(user, thing.id):
            return ["hidden"]
        return ["done" if rules.may_do(user, "restore", thing.id) else "denied"]

    def run(store: Store) -> list[object]:
        store.manager(thing.kind).restore(path, id=thing.id)
        return ["done"]

    return Call(f"restore {path}", user, run, wanted, then=lambda: setattr(thing, "live", True))


def _disable(world: World, user: str) -> Call:
    thing = world.rules.things[world.one("user", "group")]
    held, to = world.held[thing.id], not thing.enabled
    return _write(
        f"{'enable' if to else 'disable'} {held.path}",
        user,
        lambda s: (s.manager(thing.kind).enable if to else s.manager(thing.kind).disable)(held),
        [thing.id],
        lambda rules: rules.may_do(user, "disable", thing.id),
        lambda: setattr(thing, "enabled", to),
    )


def _attach(world: World, user: str) -> Call:
    lake, kind = world.any_lake(), world.chance.choice(("tag", "policy"))
    tag, on = world.one(kind, lake=lake), world.one("table", "schema", "catalog", lake=lake)
    target, held, value = world.target(on), world.held, str(world.chance.random())
    of = world.rules.things[on].kind

    def run(store: Store) -> object:
        if kind == "policy":
            try:
                return store.policies.attach(target, held[tag], kind=of)
            except ms.EntityAlreadyExists:
                return store.policies.detach(target, held[tag], kind=of)
        return store.tags.attach(target, held[tag], value=value, kind=of)

    return _write(
        f"attach {world.rules.path(tag)} to {target}",
        user,
        run,
        [(on, target), tag],
        lambda rules: rules.may(user, (f"apply_{kind}",), tag),
    )


def _row(world: World, user: str) -> Call:
    table, name = world.one("table"), world.name("partition")
    target = world.target(table)
    ways: dict[str, Run] = {
        "partitions.create": lambda s: s.partitions.create(target, name, values={}),
        "statistics.set": lambda s: s.statistics.set(target, {f"custom-{name}": 1}),
        "statistics.put_many": lambda s: s.statistics.put_many(target, [s.statistics.row(name, {"n": 1})]),
        "partition statistics": lambda s: s.statistics.set(target, {f"custom-{name}": 1}, partition="day=1"),
        "partitions.put_many": lambda s: s.partitions.put_many(target, [s.partitions.row(name, {}, {})], []),
    }
    way = world.chance.choice([*ways] if table in world.with_rows else [*ways][:2])
    return _write(
        f"{way} {target}",
        user,
        ways[way],
        [(table, target)],
        lambda rules: rules.may(user, needs("table", "partition"), table),
    )


def _version(world: World, user: str) -> Call:
    model = world.one("model")
    target, words = world.target(model), needs("model", "model_version")
    return _write(
        f"add a version of {target}",
        user,
        lambda s: s.models.add_version(target, uris={"u": "s3://b/m"}),
        [(model, target)],
        lambda rules: rules.may(user, words, model),
    )


def _together(world: World, user: str) -> Call:
    """Change several things in one transaction: all of it or nothing."""
    ids = list(dict.fromkeys([world.one("table", "table", "topic", "tag", "schema") for _ in range(2)]))
    named, value = [(one, world.target(one)) for one in ids], str(world.chance.random())
    kinds = [world.rules.things[one].kind for one in ids]

    def wanted(rules: Rules) -> list[object]:
        for one, target in named:  # the first one that cannot be done ends it
            if not rules.leads(target, one) or not rules.sees(user, one):
                return ["hidden"]
            if not rules.may_do(user, "alter", one):
                return ["denied"]
        return ["done"]

    def run(store: Store) -> list[object]:
        with store.transaction() as tx:
            for kind, (_, target) in zip(kinds, named, strict=True):
                tx.manager(kind).alter(target, ms.SetProperty("n", value))
        return ["done"]

    return Call(f"transaction alters {[target for _, target in named]}", user, run, wanted, then=lambda: None)


def _restore_elsewhere(world: World, user: str) -> Call:
    lake = world.any_lake()
    thing, to = world.rules.things[world.one("table", lake=lake, live=False)], world.one("schema", lake=lake)
    if thing.parent == to:
        raise IndexError
    path, at = world.rules.path(thing.id), world.rules.path(to)
    parent = thing.parent or 0

    def wanted(rules: Rules) -> list[object]:
        gone = not rules.things[thing.id].live and rules.leads(path.rpartition(".")[0], parent)
        if not gone or not rules.leads(at, to) or not all(rules.sees(user, one) for one in (parent, thing.id, to)):
            return ["hidden"]
        may = rules.may_do(user, "move", thing.id) and _creates(rules, user, "table", to)
        return ["done" if may else "denied"]

    def run(store: Store) -> list[object]:
        store.tables.restore(path, id=thing.id, to=f"{at}.{thing.name}")
        return ["done"]

    def then() -> None:
        thing.live, thing.parent = True, to

    return Call(f"restore {path} in {at}", user, run, wanted, then=then)


def _own(world: World, user: str) -> Call:
    lake = world.any_lake()
    on, to = world.one(*OBJECTS, "role", lake=lake), world.one("user", "group", lake=lake)
    if world.rules.owners.get(on) == to:
        raise IndexError
    return _write(
        f"give {world.rules.path(on)} to {world.rules.path(to)}",
        user,
        lambda s: s.owners.set(world.held[on], world.held[to]),
        [on, to],
        lambda rules: rules.may(user, (), on),
        lambda: world.rules.owners.update({on: to}),
    )


def _grant(world: World, user: str) -> Call:
    word, lake = world.chance.choice(("use_schema", "select_table", "modify_table")), world.any_lake()
    role, on = world.one("role", lake=lake), world.one(*placed()[word], lake=lake)
    effect = world.chance.choice(("allow", "allow", "deny"))
    grant = (role, word, effect, on)
    if grant in world.rules.grants:
        raise IndexError
    return _write(
        f"{effect} {word} on {world.rules.path(on)}: {world.rules.path(role)}",
        user,
        lambda s: s.roles.grant(world.held[role], word, world.held[on], effect=effect),
        [role, on],
        lambda rules: rules.may(user, ("manage_grants",), on),
        lambda: world.rules.grants.add(grant),
    )


def _member(world: World, user: str) -> Call:
    """Put a user into a group, or give a role to somebody."""
    lake, rules = world.any_lake(), world.rules
    kind = world.chance.choice(("group", "role"))
    to = world.one(kind, lake=lake)
    member = world.one("user", "user", *(("group",) if kind == "role" else ()), lake=lake)
    pairs = rules.joined if kind == "group" else rules.has
    if (member, to) in pairs:
        raise IndexError
    word, at = ("manage_groups", to) if kind == "group" else ("manage_grants", lake)
    return _write(
        f"{kind} {rules.path(to)}: {rules.path(member)}",
        user,
        lambda s: (s.groups.add if kind == "group" else s.roles.assign)(world.held[to], world.held[member]),
        [to, member],
        lambda rules: rules.may(user, (word,), at),
        lambda: pairs.add((member, to)),
    )


WRITES: dict[Callable[[World, str], Call], int] = {
    _alter: 8,
    _rename: 2,
    _move: 3,
    _create: 5,
    _create_taken: 2,
    _create_again: 1,
    _drop: 2,
    _restore: 2,
    _disable: 1,
    _attach: 4,
    _row: 4,
    _version: 2,
    _together: 3,
    _restore_elsewhere: 2,
    _own: 2,
    _grant: 2,
    _member: 2,
}
