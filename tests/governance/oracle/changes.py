"""Changes of rights and of the tree, which the trusted store makes, by every door that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metastore as ms
from tests.governance.oracle.rules import Thing, placed
from tests.governance.oracle.world import OBJECTS, USERS, Act, World

__all__ = ["change"]

_WORDS = (
    *("use_catalog", "use_schema", "select_table", "modify_table", "create_table", "apply_tag", "use_secret"),
    *("use_catalog", "use_schema", "select_table", "manage_users", "manage_groups", "manage_grants", "use_model"),
)


def change(world: World) -> Act | None:
    """Return a change by chance; None: this one cannot be made now."""
    kind = world.chance.choices(list(_CHANGES), list(_CHANGES.values()))[0]
    try:
        return kind(world)
    except IndexError:  # there is nothing to do it to
        return None


def _pair(world: World, one: str, *others: str) -> tuple[int, int]:
    lake = world.any_lake()
    return world.one(one, lake=lake), world.one(*others, lake=lake)


def _grant(world: World) -> Act:
    chance, rules = world.chance, world.rules
    word = chance.choice(_WORDS if chance.random() < 0.7 else list(placed()))
    role, on = _pair(world, "role", *placed().get(word, OBJECTS))
    effect: Any = chance.choice(("allow",) * 4 + ("deny",))
    held = world.held

    def call() -> object:
        if chance.random() < 0.2:
            rows = [{"target": held[role], "value": f"{effect}:{word}"}]
            return world.store.relations("grant").attach_many(held[on], rows)
        return world.store.roles.grant(held[role], word, held[on], effect=effect)

    return Act(
        f"{effect} {word} on {rules.path(on)}: {rules.path(role)}",
        call,
        lambda: rules.grants.add((role, word, effect, on)),
    )


def _open(world: World) -> Act:
    """Allow all that is needed to reach some tables, so that not everything is hidden."""
    role, on = _pair(world, "role", "catalog", "schema")
    words = ["use_catalog", "use_schema", world.chance.choice(("select_table", "modify_table", "create_table"))]
    ids = [(word, on if word != "use_catalog" else world.rules.way(on)[1]) for word in words]

    def call() -> None:
        for word, at in ids:
            world.store.roles.grant(world.held[role], word, world.held[at])

    return Act(
        f"open {world.rules.path(on)}: {world.rules.path(role)}",
        call,
        lambda: world.rules.grants.update([(role, word, "allow", at) for word, at in ids]),
    )


def _revoke(world: World) -> Act:
    rules = world.rules
    role, word, _, on = world.chance.choice([one for one in sorted(rules.grants) if rules.live(one[0])])
    gone = {(role, word, effect, on) for effect in ("allow", "deny")}
    if not rules.live(on):
        raise IndexError
    return Act(
        f"revoke {word} on {rules.path(on)}: {rules.path(role)}",
        lambda: world.store.roles.revoke(world.held[role], word, world.held[on]),
        lambda: rules.grants.difference_update(gone),
    )


def _assign(world: World) -> Act:
    role, to = _pair(world, "role", "user", "user", "group")
    rules, held = world.rules, world.held

    def call() -> object:
        if world.chance.random() < 0.2:
            return world.store.relations("membership").attach_many(held[role], [{"target": held[to]}])
        return world.store.roles.assign(held[role], held[to])

    return Act(f"assign {rules.path(role)} to {rules.path(to)}", call, lambda: rules.has.add((to, role)))


def _unassign(world: World) -> Act:
    rules = world.rules
    there = [(to, role) for to, role in sorted(rules.has) if rules.live(to) and rules.live(role)]
    to, role = world.chance.choice(there)
    return Act(
        f"unassign {rules.path(role)} from {rules.path(to)}",
        lambda: world.store.roles.unassign(world.held[role], world.held[to]),
        lambda: rules.has.discard((to, role)),
    )


def _join(world: World) -> Act:
    user, group = _pair(world, "user", "group")
    rules, groups, held = world.rules, world.store.groups, world.held
    inside = (user, group) in rules.joined
    return Act(
        f"{'leave' if inside else 'join'} {rules.path(group)}: {rules.path(user)}",
        lambda: (groups.remove if inside else groups.add)(held[group], held[user]),
        lambda: rules.joined.symmetric_difference_update({(user, group)}),
    )


def _own(world: World) -> Act:
    to, on = _pair(world, "user", *OBJECTS, "role", "metalake")
    to = to if world.chance.random() < 0.7 else world.one("group", lake=world.rules.way(on)[0])
    rules = world.rules
    if rules.things[on].kind == "metalake" and world.chance.random() < 0.8:
        raise IndexError
    if rules.owners.get(on) == to and world.chance.random() < 0.5:
        return Act(
            f"disown {rules.path(on)}",
            lambda: world.store.owners.remove(world.held[on], world.held[to]),
            lambda: rules.owners.pop(on),
        )
    return Act(
        f"{rules.path(to)} owns {rules.path(on)}",
        lambda: world.store.owners.set(world.held[on], world.held[to]),
        lambda: rules.owners.update({on: to}),
    )


def _disown(world: World) -> Act:
    rules = world.rules
    on, to = world.chance.choice([(i, o) for i, o in sorted(rules.owners.items()) if rules.live(i) and rules.live(o)])
    return Act(
        f"disown {rules.path(on)}",
        lambda: world.store.owners.remove(world.held[on], world.held[to]),
        lambda: rules.owners.pop(on),
    )


def _enable(world: World) -> Act:
    who = world.rules.things[world.one("user", "group")]
    manager: Any = world.manager(who.kind)
    return Act(
        f"{'disable' if who.enabled else 'enable'} {world.rules.path(who.id)}",
        lambda: (manager.disable if who.enabled else manager.enable)(world.held[who.id]),
        lambda: setattr(who, "enabled", not who.enabled),
    )


def _drop(world: World) -> Act:
    thing = world.rules.things[world.one("role", "group", "table", "schema", "tag", "model")]
    manager: Any = world.manager(thing.kind)

    def call() -> object:
        options = {"cascade": True} if thing.kind == "schema" else {}
        return manager.drop(world.held[thing.id], **options)

    return Act(f"drop {world.rules.path(thing.id)}", call, lambda: setattr(thing, "live", False))


def _restore(world: World) -> Act:
    thing = world.rules.things[world.one("role", "group", "table", "schema", "tag", "model", live=False)]
    path = world.rules.path(thing.id)
    return Act(
        f"restore {path}",
        lambda: world.manager(thing.kind).restore(path, id=thing.id),
        lambda: setattr(thing, "live", True),
    )


def _change_mind(world: World) -> Act:
    """Announce a drop in steps, and roll it back."""
    thing = world.one("role", "group", "table")

    def call() -> None:
        world.manager(world.rules.things[thing].kind).begin_drop(world.held[thing]).roll_back()

    return Act(f"begin and roll back the drop of {world.rules.path(thing)}", call, lambda: None)


def _make_again(world: World) -> Act:
    """Drop a user, and make one of the same name: it has no right of the old one."""
    user = world.rules.things[world.one("user")]
    path, users = world.rules.path(user.id), world.store.users

    def call() -> None:
        users.drop(path)
        made.append(users.create(path))

    def then() -> None:
        user.live = False
        world.held[made[0].id] = made[0]
        world.rules.things[made[0].id] = Thing(made[0].id, "user", user.name, user.parent)

    made: list[Any] = []
    return Act(f"make {path} again", call, then)


def _rename(world: World) -> Act:
    """Rename something; a user only for a while, so that its name means nobody."""
    thing = world.rules.things[world.one(*OBJECTS, "role", "group", "user")]
    new = world.name(thing.kind)
    if thing.kind == "user" and thing.name not in USERS:
        new = next((n for n in USERS if world.rules.user(n, thing.parent or 0) is None), new)
    return Act(
        f"rename {world.rules.path(thing.id)} to {new}",
        lambda: world.manager(thing.kind).rename(world.held[thing.id], new),
        lambda: setattr(thing, "name", new),
    )


def _move(world: World) -> Act:
    lake = world.any_lake()
    thing = world.rules.things[world.one("table", "schema", "model", lake=lake)]
    to = world.one("schema", "schema", "catalog", lake=lake)
    if thing.id in world.rules.way(to) or to == thing.parent:
        raise IndexError
    if world.rules.things[to].kind == "catalog" and thing.kind != "schema":
        raise IndexError
    path = f"{world.rules.path(to)}.{thing.name}"
    return Act(
        f"move {world.rules.path(thing.id)} to {path}",
        lambda: world.manager(thing.kind).rename(world.held[thing.id], path),
        lambda: setattr(thing, "parent", to),
    )


def _touch(world: World) -> Act:
    """Change what no right rests on."""
    table = world.one("table", "schema", "tag")
    kind = world.rules.things[table].kind
    return Act(
        f"touch {world.rules.path(table)}",
        lambda: world.manager(kind).alter(world.held[table], ms.SetProperty("n", str(world.chance.random()))),
        lambda: None,
    )


_CHANGES: dict[Callable[[World], Act], int] = {
    _grant: 8,
    _open: 8,
    _revoke: 5,
    _assign: 8,
    _unassign: 3,
    _join: 3,
    _own: 3,
    _disown: 2,
    _enable: 2,
    _drop: 2,
    _restore: 3,
    _change_mind: 1,
    _make_again: 1,
    _rename: 1,
    _move: 2,
    _touch: 2,
}
