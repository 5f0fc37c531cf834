"""Random users, groups, roles, grants, denials and owners: every call agrees with a model that is asked beside it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from zlib import crc32

import pytest

import metastore as ms
from metastore import Store
from metastore.governance.decision import Facts, Granted, Has, Level, Member
from metastore.governance.privileges import needs_of, privileges
from metastore.kinds.entity import Entity
from tests.governance.model import may, may_see

WORDS = ("use_catalog", "use_schema", "select_table", "modify_table", "create_table")
INSIDE = {"catalog": ("use_catalog",), "schema": ("use_schema",)}
"""The privileges that are used at a container itself; every other one is used inside of it, for which one enters it."""
FEW, MANY = 1_500, 5_000
"""How many cases one seed has at least: three seeds in the suite, four in the long test, for each variant."""


class World:
    """A lake whose rights are known twice: by the store, and as plain sets."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance, self.cases = store, chance, 0
        self.objects: dict[str, Entity] = {"m": store.metalakes.create("m")}
        for catalog in ("a", "b"):
            self._add(store.catalogs.create(f"m.{catalog}", type="relational"))
            for schema in ("s", "t", "t.n"):
                self._add(store.schemas.create(f"m.{catalog}.{schema}"))
                for table in ("x", "y"):
                    self._add(store.tables.create(f"m.{catalog}.{schema}.{table}"))
        self.user, self.groups = store.users.create("m.ann"), [store.groups.create(f"m.g{n}") for n in range(2)]
        self.roles = [store.roles.create(f"m.r{n}") for n in range(3)]
        self.member, self.has = set[int](), set[tuple[int, int]]()
        self.grants, self.owners = set[tuple[int, str, bool, int]](), dict[int, int]()
        self.off, self.dropped = set[int](), set[int]()

    def _add(self, entity: Entity) -> None:
        self.objects[entity.path] = entity

    # --- changes of rights

    def change(self) -> None:
        """Change a right, in the store and in the sets."""
        acts = [self._grant] * 6 + [self._revoke, self._assign, self._assign, self._unassign]
        acts += [self._join, self._own, self._enable, self._drop, self._make_again]
        self.chance.choice(acts)()

    def _there(self, entities: Sequence[Entity]) -> Entity | None:
        live = [one for one in entities if one.id not in self.dropped]
        return self.chance.choice(live) if live else None

    def _grant(self) -> None:
        role, word, on = self._granted()
        if role is None:
            return
        allow = self.chance.random() < 0.8
        self.store.roles.grant(role, word, on, effect="allow" if allow else "deny")
        self.grants.add((role.id, word, allow, on.id))

    def _revoke(self) -> None:
        role, word, on = self._granted()
        if role is not None:
            self.store.roles.revoke(role, word, on)
            self.grants -= {(role.id, word, effect, on.id) for effect in (True, False)}

    def _granted(self) -> tuple[Entity | None, str, Entity]:
        word = self.chance.choice(WORDS)
        on = self.chance.choice([one for one in self.objects.values() if one.kind in privileges()[word]])
        return self._there(self.roles), word, on

    def _assign(self) -> None:
        role, who = self._there(self.roles), self._there([self.user, *self.groups])
        if role is not None and who is not None:
            self.store.roles.assign(role, who)
            self.has.add((who.id, role.id))

    def _unassign(self) -> None:
        role, who = self._there(self.roles), self._there([self.user, *self.groups])
        if role is not None and who is not None:
            self.store.roles.unassign(role, who)
            self.has.discard((who.id, role.id))

    def _join(self) -> None:
        group = self._there(self.groups)
        if group is not None:
            (self.store.groups.remove if group.id in self.member else self.store.groups.add)(group, self.user)
            self.member ^= {group.id}

    def _own(self) -> None:
        who = self._there([self.user, *self.groups])
        if who is not None:
            on = self.chance.choice(list(self.objects.values()))
            self.store.owners.set(on, who)
            self.owners[on.id] = who.id

    def _enable(self) -> None:
        who = self._there([self.user, *self.groups])
        if who is not None:
            manager: Any = self.store.users if who is self.user else self.store.groups
            (manager.enable if who.id in self.off else manager.disable)(who)
            self.off ^= {who.id}

    def _drop(self) -> None:
        """Drop a role or a group, or restore it: its relations come back."""
        one = self.chance.choice([*self.roles, *self.groups])
        manager: Any = self.store.manager(one.kind)
        (manager.restore if one.id in self.dropped else manager.drop)(one.path)
        self.dropped ^= {one.id}

    def _make_again(self) -> None:
        """Drop the user, and make one of the same name: it has no right of the old one."""
        self.store.users.drop(self.user)
        self.user = self.store.users.create("m.ann")
        self.member = set()

    # --- the model

    def facts(self, path: str) -> Facts:
        """Return what the sets say of an object."""
        names = path.split(".")
        paths = [".".join(names[: n + 1]) for n in range(len(names))]
        chain = tuple(Level(self.objects[p].id, self.objects[p].kind, p) for p in paths)
        members = [self.user, *[one for one in self.groups if one.id in self.member - self.dropped]]
        return Facts(
            "ann",
            chain,
            tuple(Member(one.id, one.kind, one.name, one.id not in self.off) for one in members),
            tuple(Has(member, role, "") for member, role in sorted(self.has) if role not in self.dropped),
            self.owners,
            tuple(Granted(*grant) for grant in sorted(self.grants)),
        )

    # --- the cases

    def differences(self, ann: Store) -> Iterator[str]:
        """Yield where a call and the model disagree; count the cases."""
        for path, entity in self.objects.items():
            facts = self.facts(path)
            at = len(facts.chain) - 1
            seen = may_see(facts, at)
            yield from self._case(f"see {path}", ann.manager(entity.kind).exists(path), seen)
            for word in self.chance.sample(WORDS, 2):
                allowed = bool(self.store.allowed("ann", word, entity))
                inside = entity.kind in INSIDE and word not in INSIDE[entity.kind]
                yield from self._case(f"{word} on {path}", allowed, may(facts, (word,), at, inside=inside))
            if entity.kind == "schema" and seen:
                yield from self._listed(ann, path, at)
            yield from self._written(ann, path, facts)
        found = {one.path for one in ann.find("m", kind="table")} if may_see(self.facts("m"), 0) else set()
        for path, entity in self.objects.items():
            if entity.kind == "table":
                yield from self._case(f"find {path}", path in found, may_see(self.facts(path), path.count(".")))

    def _written(self, ann: Store, path: str, facts: Facts) -> Iterator[str]:
        """Try a change, a create or a drop now and then."""
        entity, at = self.objects[path], len(facts.chain) - 1
        manager: Any = ann.manager(entity.kind)
        if entity.kind != "metalake" and self.chance.random() < 0.3:
            done = _can(partial(manager.alter, path, ms.SetProperty("n", str(self.chance.random()))))
            yield from self._case(f"alter {path}", done, may(facts, needs_of(entity.kind).alter, at))
        if entity.kind == "schema" and self.chance.random() < 0.2:
            if self.chance.random() < 0.5:
                done = _can(partial(ann.tables.create, f"{path}.new"))
            else:
                done = _can(partial(ann.tables.create_many, entity, [{"name": "new"}]))
            allowed = may_see(facts, at) and may(facts, ("create_table",), at)
            yield from self._case(f"create in {path}", done, allowed)
            if done:
                self.store.tables.drop(f"{path}.new")
        if entity.kind == "table" and self.chance.random() < 0.1:
            done = _can(partial(manager.drop, entity))
            yield from self._case(f"drop {path}", done, may(facts, (), at))
            if done:
                self.store.tables.restore(path)

    def _listed(self, ann: Store, path: str, at: int) -> Iterator[str]:
        listed, names = {table.path for table in ann.tables.list(path)}, set(ann.tables.names(path))
        for name in ("x", "y"):
            there = may_see(self.facts(f"{path}.{name}"), at + 1)
            yield from self._case(f"list {path}.{name}", f"{path}.{name}" in listed, there)
            yield from self._case(f"name {path}.{name}", name in names, there)

    def _case(self, what: str, found: bool, wanted: bool) -> Iterator[str]:
        self.cases += 1
        if found != wanted:
            yield f"{what}: {found}, and the model says {wanted}"


def _can(call: Callable[[], object]) -> bool:
    """Whether a call does what the rules say. A drop of an unseen entity says that there is nothing."""
    try:
        return call() is not False
    except (ms.PermissionDenied, ms.EntityNotFound):
        return False


def _compare(store: Store, seed: int, cases: int) -> None:
    world = World(store, random.Random(seed))
    while world.cases < cases:
        for _ in range(4):
            world.change()
        assert list(world.differences(store.as_user("ann"))) == [], f"seed {seed}, after {world.cases} cases"
    assert store.verify() == []


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_calls_agree_with_the_model(store: Store, seed: int) -> None:
    _compare(store, seed, FEW)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 104))
def test_a_hundred_thousand_cases_agree_with_the_model(store: Store, seed: int, request: pytest.FixtureRequest) -> None:
    """Four times 5,000 cases for each variant; each variant has seeds of its own, because the rules are the same."""
    _compare(store, seed + crc32(request.node.name.encode()), MANY)
