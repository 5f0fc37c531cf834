"""Random users, groups, roles, grants, denials and owners: every call agrees with a model that is asked beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import metastore as ms
from metastore import Store
from metastore.governance.decision import Facts, Granted, Has, Member, Place
from metastore.kinds.entity import Entity
from tests.governance.model import may, may_see

WORDS = ("use_catalog", "use_schema", "select_table", "modify_table", "create_table")
ON = {"use_catalog": 2, "use_schema": 3, "select_table": 4, "modify_table": 4, "create_table": 3}
"""How many names the path of an object has at most, on which the privilege is granted."""
ROUNDS, CHECKS = 25, 12


class World:
    """A lake whose rights are known twice: by the store, and as plain sets."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        self.objects: dict[str, Entity] = {"m": store.metalakes.create("m")}
        for catalog in ("a", "b"):
            self._add(store.catalogs.create(f"m.{catalog}", type="relational"))
            for schema in ("s", "t"):
                self._add(store.schemas.create(f"m.{catalog}.{schema}"))
                for table in ("x", "y"):
                    self._add(store.tables.create(f"m.{catalog}.{schema}.{table}"))
        self.user, self.group = store.users.create("m.ann"), store.groups.create("m.staff")
        self.roles = [store.roles.create(f"m.r{n}") for n in range(3)]
        self.member, self.has = False, set[tuple[int, int]]()
        self.grants, self.owners = set[tuple[int, str, bool, int]](), dict[int, int]()
        self.off = set[int]()

    def _add(self, entity: Entity) -> None:
        self.objects[entity.path] = entity

    def change(self) -> None:
        """Change a right, in the store and in the sets."""
        store, pick = self.store, self.chance.choice
        who, role = pick([self.user, self.group]), pick(self.roles)
        act = pick(["grant"] * 6 + ["revoke", "assign", "assign", "unassign", "group", "own", "enabled"])
        if act in ("grant", "revoke"):
            word = pick(WORDS)
            on = pick([one for path, one in self.objects.items() if path.count(".") < ON[word]])
            if act == "revoke":
                store.roles.revoke(role, word, on)
                self.grants -= {(role.id, word, effect, on.id) for effect in (True, False)}
            else:
                allow = self.chance.random() < 0.8
                store.roles.grant(role, word, on, effect="allow" if allow else "deny")
                self.grants.add((role.id, word, allow, on.id))
        elif act == "assign":
            store.roles.assign(role, who)
            self.has.add((who.id, role.id))
        elif act == "unassign":
            store.roles.unassign(role, who)
            self.has.discard((who.id, role.id))
        elif act == "group":
            (store.groups.remove if self.member else store.groups.add)(self.group, self.user)
            self.member = not self.member
        elif act == "own":
            on = pick(list(self.objects.values()))
            store.owners.set(on, who)
            self.owners[on.id] = who.id
        else:
            manager = store.users if who is self.user else store.groups
            (manager.enable if who.id in self.off else manager.disable)(who)
            self.off ^= {who.id}

    def facts(self, path: str) -> Facts:
        """Return what the sets say of an object."""
        names = path.split(".")
        paths = [".".join(names[: n + 1]) for n in range(len(names))]
        chain = tuple(Place(self.objects[p].id, self.objects[p].kind, p) for p in paths)
        members = [self.user, *([self.group] if self.member else [])]
        return Facts(
            "ann",
            chain,
            tuple(Member(one.id, one.kind, one.name, one.id not in self.off) for one in members),
            tuple(Has(member, role, "") for member, role in sorted(self.has)),
            self.owners,
            tuple(Granted(*grant) for grant in sorted(self.grants)),
        )

    def differences(self, ann: Store) -> Iterator[str]:
        """Yield where a call of ann and the model disagree."""
        for path in self.chance.sample(sorted(self.objects), CHECKS):
            facts, kind = self.facts(path), self.objects[path].kind
            at = len(facts.chain) - 1
            manager = ann.manager(kind)
            if manager.exists(path) != may_see(facts, at):
                yield f"see {path}"
            if kind == "table" and self._can(ann, path) != may(facts, ("modify_table",), at):
                yield f"alter {path}"
            if kind == "schema" and may_see(facts, at):
                seen = {f"{path}.{name}" for name in ("x", "y") if may_see(self.facts(f"{path}.{name}"), at + 1)}
                if {table.path for table in ann.tables.list(path)} != seen:
                    yield f"list {path}"
                if {f"{path}.{name}" for name in ann.tables.names(path)} != seen:
                    yield f"names of {path}"
            if bool(self.store.allowed("ann", "modify_table", self.objects[path])) != may(facts, ("modify_table",), at):
                yield f"allowed on {path}"

    def _can(self, ann: Store, path: str) -> bool:
        try:
            ann.tables.alter(path, ms.SetProperty("n", str(self.chance.random())))
        except (ms.PermissionDenied, ms.EntityNotFound):
            return False
        return True


@pytest.mark.parametrize("seed", range(3))
def test_calls_agree_with_the_model(store: Store, seed: int) -> None:
    world = World(store, random.Random(seed))
    ann = store.as_user("ann")
    for n in range(ROUNDS):
        for _ in range(4):
            world.change()
        assert list(world.differences(ann)) == [], f"after {n} rounds"
