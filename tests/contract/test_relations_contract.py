"""Relations: written once, live while both ends are, listed in both directions, on each backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.ground import interrupted

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

TABLE = "lake.c.s.t"
ANN, BOB = ("lake", "ann@corp.com"), ("lake", "bob@corp.com")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Give a store with a table, two tags, two users, a group and a role; at the end nothing is wrong with it."""
    with ms.open(url, principal="root") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.s")
        store.tables.create(TABLE, columns=[ms.Column("a", "int"), ms.Column("b", "struct<x: int>")])
        store.tags.create("lake.pii", allowed_values=("email", "phone"))
        store.tags.create("lake.hot")
        for path in (ANN, BOB):
            store.users.create(path)
        store.groups.create("lake.analysts")
        store.roles.create("lake.reader")
        yield store
        assert store.verify() == []


def seen(found: list[ms.Attached]) -> list[tuple[str, str | None, str | None]]:
    """Return name, value and origin of what is attached."""
    return [(one.name, one.value, one.inherited_from) for one in found]


def where(store: Store, tag: Any, **options: Any) -> list[tuple[str, str, str | None, str | None]]:
    """Return where a tag stands."""
    return [(t.target_kind, t.target_path, t.column, t.value) for t in store.tags.targets(tag, **options)]


class TestTags:
    def test_what_all_columns_have(self, store: Store) -> None:
        store.tags.attach("lake.c", "lake.hot")
        store.tags.attach(TABLE, "lake.hot", kind="table")
        assert store.tags.on_columns(TABLE) == []
        for column, value in (("b.x", "phone"), ("a", "email"), ("a", "phone")):
            store.tags.attach(TABLE, "lake.pii", value=value, column=column, kind="table")
        renamed = store.tables.alter(TABLE, ms.RenameColumn("a", "c"))
        found = [("b.x", "phone"), ("c", "email"), ("c", "phone")]
        assert [(one.column, one.value) for one in store.tags.on_columns(renamed)] == found
        store.tables.alter(TABLE, ms.DropColumn("c"))
        assert [one.column for one in store.tags.on_columns(TABLE, kind="table")] == ["b.x"]
        assert store.policies.on_columns(TABLE) == []
        with pytest.raises(ms.EntityNotFound):
            store.tags.on_columns("lake.c.s.none")

    def test_nearest_first_and_the_nearest_wins(self, store: Store) -> None:
        store.tags.attach("lake", "lake.pii", value="email")
        store.tags.attach("lake.c", "lake.hot", value="far")
        store.tags.attach(TABLE, "lake.pii", value="phone")
        assert seen(store.tags.on(TABLE)) == [("pii", "phone", None), ("hot", "far", "lake.c")]
        assert seen(store.tags.on(TABLE, inherited=False)) == [("pii", "phone", None)]
        assert seen(store.tags.on("lake.c.s", kind="schema")) == [("hot", "far", "lake.c"), ("pii", "email", "lake")]

    def test_a_second_allowed_value_stands_beside_the_first(self, store: Store) -> None:
        """Field case 29: no other value, and the same again changes nothing."""
        first = store.tags.attach(TABLE, "lake.pii", value="email")
        store.tags.attach(TABLE, "lake.pii", value="phone")
        before = list(store.changes())
        assert store.tags.attach(TABLE, "lake.pii", value="email").id == first.id  # the same again
        with pytest.raises(ms.InvalidArgument, match="allows the values email, phone, not 'name'"):
            store.tags.attach(TABLE, "lake.pii", value="name")
        assert list(store.changes()) == before
        assert seen(store.tags.on(TABLE)) == [("pii", "email", None), ("pii", "phone", None)]

    def test_a_value_and_none_stand_together_where_any_value_is_allowed(self, store: Store) -> None:
        """Field case 29: a second one without a value exists already."""
        store.tags.attach(TABLE, "lake.hot", value="x")
        store.tags.attach(TABLE, "lake.hot")
        with pytest.raises(ms.EntityAlreadyExists, match=r"lake\.c\.s\.t has the tag lake\.hot already"):
            store.tags.attach(TABLE, "lake.hot")
        assert seen(store.tags.on(TABLE)) == [("hot", None, None), ("hot", "x", None)]

    def test_a_tag_with_allowed_values_refuses_none(self, store: Store) -> None:
        for attach in (
            lambda: store.tags.attach(TABLE, "lake.pii"),
            lambda: store.tags.attach(store.tables.load(TABLE), store.tags.load("lake.pii")),
            lambda: store.tags.attach(TABLE, "lake.pii", column="a"),
            lambda: store.tags.attach_many("lake.pii", [{"target": TABLE}]),
        ):
            with pytest.raises(
                ms.InvalidArgument, match="allows the values email, phone, not none; give one as value="
            ):
                attach()
        assert store.tags.on(TABLE) == []

    def test_what_a_tag_or_a_policy_allows_is_judged_by_what_is_there_now(self, store: Store) -> None:
        """An entity in hand that is old says nothing about it."""
        table, tag = store.tables.load(TABLE), store.tags.load("lake.hot")
        policy = store.policies.create("lake.keep")
        store.tags.alter("lake.hot", ms.SetAllowedValues(("x",)))
        store.policies.alter("lake.keep", ms.SetSupports(("schema",)))
        with pytest.raises(ms.InvalidArgument, match="allows the values x, not none"):
            store.tags.attach(table, tag)
        with pytest.raises(ms.InvalidArgument, match="is on a schema, not on a table"):
            store.policies.attach(table, policy)
        store.tags.alter("lake.hot", ms.SetAllowedValues(()))
        assert store.tags.attach(table, tag).value is None

    def test_neither_end_gets_a_version(self, store: Store) -> None:
        table, tag = store.tables.load(TABLE), store.tags.load("lake.hot")
        attached = store.tags.attach(table, tag)
        assert (store.tables.load(TABLE).version, store.tags.load(tag).version) == (1, 1)
        assert (attached.target_id, attached.kind, attached.path, attached.created_by) == (
            table.id,
            "tag",
            "lake.hot",
            "root",
        )

    def test_detach(self, store: Store) -> None:
        for value in ("email", "phone", None):
            store.tags.attach(TABLE, "lake.hot", value=value)
        assert store.tags.detach(TABLE, "lake.hot", value=None)
        assert not store.tags.detach(TABLE, "lake.hot", value=None)
        assert store.tags.detach(TABLE, "lake.hot", value="email")
        assert seen(store.tags.on(TABLE)) == [("hot", "phone", None)]
        store.tags.attach(TABLE, "lake.hot")
        assert store.tags.detach(TABLE, "lake.hot")  # all values
        assert store.tags.on(TABLE) == []
        assert not store.tags.detach(TABLE, "lake.nope")
        assert not store.tags.detach("lake.c.s.nope", "lake.pii")

    def test_a_column_keeps_its_tag_through_renames_and_loses_it_when_dropped(self, store: Store) -> None:
        """Field case 18."""
        store.tags.attach(TABLE, "lake.hot", column="b.x")
        store.tags.attach(TABLE, "lake.pii", value="email")
        assert seen(store.tags.on(TABLE, column="b.x")) == [("hot", None, None), ("pii", "email", TABLE)]
        assert seen(store.tags.on(TABLE)) == [("pii", "email", None)]  # the table's own, not its columns'
        store.tables.alter(TABLE, ms.RenameColumn("b", "c"), ms.RenameColumn("c.x", "y"))
        assert where(store, "lake.hot") == [("table", TABLE, "c.y", None)]
        assert seen(store.tags.on(TABLE, column="c.y", inherited=False)) == [("hot", None, None)]
        store.tables.alter(TABLE, ms.DropColumn("c.y"))
        store.tables.alter(TABLE, ms.AddColumn("c.y", "int"))
        assert where(store, "lake.hot") == []
        assert seen(store.tags.on(TABLE, column="c.y")) == [("pii", "email", TABLE)]

    def test_what_does_not_fit_is_refused(self, store: Store) -> None:
        store.metalakes.create("other")
        elsewhere = store.catalogs.create("other.c", type="relational")
        calls: list[tuple[type[Exception], Callable[[], object]]] = [
            (ms.EntityNotFound, lambda: store.tags.attach("lake.c.s.nope", "lake.hot")),
            (ms.EntityNotFound, lambda: store.tags.attach(TABLE, "lake.nope")),
            (ms.EntityNotFound, lambda: store.tags.attach(TABLE, "lake.hot", column="z")),
            (ms.EntityNotFound, lambda: store.tags.on("lake.c.s.nope")),
            (ms.EntityNotFound, lambda: list(store.tags.targets("lake.nope"))),
            (ms.InvalidArgument, lambda: store.tags.attach("lake.c", "lake.hot", column="a")),
            (ms.InvalidArgument, lambda: store.tags.attach(elsewhere, "lake.hot")),
            (ms.InvalidArgument, lambda: store.tags.attach(TABLE, "lake.hot", value="")),
            (ms.InvalidArgument, lambda: store.tags.attach(TABLE, "lake.hot", value="é" * 513)),
            (ms.InvalidArgument, lambda: store.tags.attach(TABLE, "lake.hot", kind="nope")),
            (ms.InvalidArgument, lambda: store.tags.attach(TABLE, store.users.load(ANN))),
            (ms.InvalidArgument, lambda: store.tags.attach_many("lake.hot", [{"name": TABLE}])),
        ]
        for error, call in calls:
            with pytest.raises(error):
                call()
        store.catalogs.disable("lake.c")
        with pytest.raises(ms.NotInUse):
            store.tags.attach(TABLE, "lake.hot")
        assert where(store, "lake.hot") == []

    def test_a_name_of_two_kinds(self, store: Store) -> None:
        store.filesets.create(TABLE)
        with pytest.raises(ms.InvalidArgument, match="say which with kind="):
            store.tags.attach(TABLE, "lake.hot")
        store.tags.attach(TABLE, "lake.hot", kind="fileset")
        assert where(store, "lake.hot") == [("fileset", TABLE, None, None)]
        assert store.tags.on(TABLE, kind="table") == []

    def test_many_at_once_and_once_more(self, store: Store) -> None:
        store.tables.create_many("lake.c.s", [{"name": f"n{i}", "columns": [ms.Column("a", "int")]} for i in range(5)])
        rows = [{"target": f"lake.c.s.n{i}", "kind": "table"} for i in range(5)]
        assert store.tags.attach_many("lake.hot", [*rows, rows[0], {**rows[0], "column": "a", "value": "v"}]) == 6
        assert store.tags.attach_many("lake.hot", rows) == 0
        assert len(where(store, "lake.hot")) == 6
        assert where(store, "lake.hot", value="v") == [("table", "lake.c.s.n0", "a", "v")]
        assert [t[1] for t in where(store, "lake.hot", value=None)] == [f"lake.c.s.n{i}" for i in range(5)]
        with pytest.raises(ms.EntityNotFound):
            store.tags.attach_many("lake.hot", [{"target": "lake.c.s.nope"}])


class TestBothEnds:
    @pytest.mark.parametrize("end", ["tag", "table", "schema", "catalog"])
    def test_dropping_either_end_ends_it_and_restoring_brings_it_back(self, store: Store, end: str) -> None:
        store.tags.attach(TABLE, "lake.hot")
        path = {"tag": "lake.hot", "table": TABLE, "schema": "lake.c.s", "catalog": "lake.c"}[end]
        manager = store.manager(end)
        before = len(list(store.changes()))
        assert manager.drop(path, cascade=True)
        assert len(list(store.changes())) == before + 1  # one row, however many objects have the tag
        if end == "tag":
            assert store.tags.on(TABLE) == []
        else:
            assert where(store, "lake.hot") == []
        assert manager.restore(path).path == path
        assert seen(store.tags.on(TABLE)) == [("hot", None, None)]
        assert where(store, "lake.hot") == [("table", TABLE, None, None)]

    @pytest.mark.parametrize("above", ["schema", "catalog"])
    def test_a_cascade_hides_all_that_stands_below_and_a_restore_brings_it_back(self, store: Store, above: str) -> None:
        """Field case 24."""
        store.policies.create("lake.keep")
        store.tags.attach(TABLE, "lake.hot", column="a")
        store.policies.attach(TABLE, "lake.keep")
        store.owners.set(TABLE, ANN)
        store.roles.grant("lake.reader", "select_table", TABLE)
        store.statistics.set(TABLE, {"custom-rows": 1})

        def listed() -> list[list[str]]:
            return [
                [one.target_path for one in store.tags.targets("lake.hot")],
                [one.target_path for one in store.policies.targets("lake.keep")],
                [one.path for one in store.owners.owned_by(ANN)],
                [one.path for one in store.roles.grants("lake.reader")],
            ]

        assert listed() == [[TABLE]] * 4
        path = {"schema": "lake.c.s", "catalog": "lake.c"}[above]
        assert store.manager(above).drop(path, cascade=True)
        assert listed() == [[]] * 4
        with pytest.raises(ms.EntityNotFound):
            store.statistics.of(TABLE)
        store.manager(above).restore(path)
        assert listed() == [[TABLE]] * 4
        assert store.statistics.of(TABLE) == {"custom-rows": 1}

    def test_a_recreated_end_has_nothing(self, store: Store) -> None:
        store.tags.attach(TABLE, "lake.hot")
        store.tags.drop("lake.hot")
        store.tags.create("lake.hot")
        assert store.tags.on(TABLE) == []
        assert where(store, "lake.hot") == []

    def test_renames_and_moves_keep_it(self, store: Store) -> None:
        store.tags.attach(TABLE, "lake.hot")
        store.schemas.create("lake.c.z")
        store.tables.rename(TABLE, "lake.c.z.u")
        store.tags.rename("lake.hot", "warm")
        store.schemas.rename("lake.c.z", "y")
        assert where(store, "lake.warm") == [("table", "lake.c.y.u", None, None)]
        assert seen(store.tags.on("lake.c.y.u")) == [("warm", None, None)]

    def test_a_catalog_in_another_metalake_has_no_relations(self, store: Store) -> None:
        store.tags.attach(TABLE, "lake.hot")
        store.owners.set(TABLE, ANN)
        store.metalakes.create("other")
        store.catalogs.rename("lake.c", "other.c")
        assert where(store, "lake.hot") == []
        assert store.tags.on("other.c.s.t") == []
        assert store.owners.of("other.c.s.t") is None
        store.catalogs.rename("other.c", "lake.c")
        assert where(store, "lake.hot") == [("table", TABLE, None, None)]

    @pytest.mark.parametrize("end", ["lake.hot", TABLE, "lake.c.s"])
    def test_gc_removes_it_with_either_end(self, store: Store, end: str) -> None:
        store.tags.attach(TABLE, "lake.hot")
        store.tags.attach("lake.c", "lake.hot")
        kind = {"lake.hot": "tag", TABLE: "table", "lake.c.s": "schema"}[end]
        store.manager(kind).drop(end, cascade=True)
        store.gc(retention=timedelta(0))
        left = store._session.backend.sweep_relations(0, 100)
        assert (left.last is None, left.deleted) == (end == "lake.hot", 0)

    def test_an_end_that_is_dropped_at_that_moment_is_never_attached(self, store: Store) -> None:
        table, tag = store.tables.load(TABLE), store.tags.load("lake.hot")
        with interrupted(store, lambda: store.tags.drop(tag)), pytest.raises(ms.EntityNotFound):
            store.tags.attach(table, tag)
        tag = store.tags.create("lake.hot")
        with interrupted(store, lambda: store.schemas.drop("lake.c.s", cascade=True)), pytest.raises(ms.EntityNotFound):
            store.tags.attach(table, tag)
        assert where(store, tag) == []

    def test_a_rename_at_that_moment_is_followed_by_an_entity_and_not_by_a_path(self, store: Store) -> None:
        table, tag = store.tables.load(TABLE), store.tags.load("lake.hot")
        with interrupted(store, lambda: store.tables.rename(table, "u")):
            assert store.tags.attach(table, tag).target_path == "lake.c.s.u"
        with interrupted(store, lambda: store.tables.rename(table, "t")), pytest.raises(ms.EntityNotFound):
            store.tags.attach("lake.c.s.u", tag, value="x")

    def test_the_same_at_that_moment(self, store: Store) -> None:
        with interrupted(store, lambda: store.tags.attach(TABLE, "lake.hot")), pytest.raises(ms.EntityAlreadyExists):
            store.tags.attach(TABLE, "lake.hot")
        with interrupted(store, lambda: store.tags.attach(TABLE, "lake.hot", value="v")):
            assert store.tags.attach(TABLE, "lake.hot", value="v").value == "v"
        with interrupted(store, lambda: store.tags.detach(TABLE, "lake.hot", value="v")):
            assert not store.tags.detach(TABLE, "lake.hot", value="v")


class TestOwners:
    def test_there_is_one(self, store: Store) -> None:
        table = store.tables.load(TABLE)
        assert store.owners.of(TABLE) is None
        store.owners.set(TABLE, ANN)
        store.owners.set(table, "lake.analysts")
        owner = store.owners.of(TABLE)
        assert owner is not None
        assert (owner.kind, owner.path) == ("group", "lake.analysts")
        assert [e.path for e in store.owners.owned_by("lake.analysts")] == [TABLE]
        assert list(store.owners.owned_by(ANN)) == []
        events = [c for c in store.changes() if c.kind == "owner"]
        assert [(c.action, c.version, c.path_after, c.other_path) for c in events] == [
            ("create", 1, TABLE, store.users.load(ANN).path),
            ("alter", 2, TABLE, "lake.analysts"),
        ]
        assert len({c.entity_id for c in events}) == 1
        with store.transaction() as tx:
            tx.tables.alter(TABLE, ms.SetComment("theirs"))
            tx.owners.set(TABLE, ANN)
        now = store.tables.load(TABLE)
        assert store.tables.load(now, version=now.version).scope_version == now.scope_version == table.scope_version + 3

    def test_a_dropped_owner_is_none_and_its_restore_does_not_displace_a_new_one(self, store: Store) -> None:
        store.owners.set(TABLE, ANN)
        store.users.drop(ANN)
        assert store.owners.of(TABLE) is None
        store.owners.set(TABLE, BOB)
        store.users.restore(ANN)
        owner = store.owners.of(TABLE)
        assert owner is not None
        assert owner.names == BOB
        assert list(store.owners.owned_by(ANN)) == []

    def test_gc_of_a_dropped_owner_leaves_the_new_one(self, store: Store) -> None:
        store.owners.set(TABLE, ANN)
        store.users.drop(ANN)
        store.owners.set(TABLE, BOB)
        store.gc(retention=timedelta(0))
        owner = store.owners.of(TABLE)
        assert owner is not None
        assert owner.names == BOB

    def test_two_at_once(self, store: Store) -> None:
        """Field case 8: the last one stays, and a user that is dropped at that moment is never set."""
        with interrupted(store, lambda: store.owners.set(TABLE, ANN)):
            store.owners.set(TABLE, BOB)
        assert [e.path for e in store.owners.owned_by(BOB)] == [TABLE]
        assert list(store.owners.owned_by(ANN)) == []
        bob = store.users.load(BOB)
        with interrupted(store, lambda: store.users.drop(bob)), pytest.raises(ms.EntityNotFound):
            store.owners.set("lake.c.s", bob, kind="schema")
        assert store.owners.of("lake.c.s", kind="schema") is None

    def test_the_owner_of_what_is_above_is_not_its_owner(self, store: Store) -> None:
        store.owners.set("lake.c", ANN)
        assert store.owners.of(TABLE) is None
        assert store.owners.remove("lake.c", ANN)
        assert store.owners.of("lake.c") is None


class TestRolesAndGroups:
    def test_groups(self, store: Store) -> None:
        store.groups.add("lake.analysts", ANN)
        store.groups.add("lake.analysts", ANN)
        store.groups.add("lake.analysts", store.users.load(BOB))
        assert {user.names for user in store.groups.members("lake.analysts")} == {ANN, BOB}
        assert [group.path for group in store.users.groups(ANN)] == ["lake.analysts"]
        assert store.groups.remove("lake.analysts", ANN)
        assert not store.groups.remove("lake.analysts", ANN)
        assert store.users.groups(ANN) == []

    def test_roles(self, store: Store) -> None:
        store.roles.assign("lake.reader", ANN)
        store.roles.assign("lake.reader", "lake.analysts")
        store.groups.add("lake.analysts", BOB)
        assert [r.path for r in store.roles.of(ANN)] == ["lake.reader"]
        assert [r.path for r in store.roles.of("lake.analysts")] == ["lake.reader"]
        assert store.roles.of(BOB) == []  # what the user itself has
        assert {m.kind for m in store.roles.members("lake.reader")} == {"user", "group"}
        assert store.roles.unassign("lake.reader", ANN)
        assert not store.roles.unassign("lake.reader", ANN)
        store.roles.drop("lake.reader")
        assert store.roles.of("lake.analysts") == []
        store.roles.restore("lake.reader")
        assert [m.path for m in store.roles.members("lake.reader")] == ["lake.analysts"]

    def test_a_dropped_role_is_taken_from_users_and_groups(self, store: Store) -> None:
        """Field case 30: its name has no members either when it is made again."""
        holders = (ANN, "lake.analysts")
        for holder in holders:
            store.roles.assign("lake.reader", holder)
        assert [[r.path for r in store.roles.of(holder)] for holder in holders] == [["lake.reader"]] * 2
        assert store.roles.drop("lake.reader")
        assert [store.roles.of(holder) for holder in holders] == [[], []]
        store.roles.create("lake.reader")
        assert list(store.roles.members("lake.reader")) == []
        assert [store.roles.of(holder) for holder in holders] == [[], []]

    def test_grants(self, store: Store) -> None:
        grant = store.roles.grant("lake.reader", "select_table", "lake.c.s", kind="schema")
        assert (grant.privilege, grant.effect, grant.kind, grant.path) == (
            "select_table",
            "allow",
            "schema",
            "lake.c.s",
        )
        store.roles.grant("lake.reader", "select_table", store.tables.load(TABLE), effect="deny")
        store.roles.grant("lake.reader", "select_table", TABLE, effect="allow")
        store.roles.grant("lake.reader", "select_table", TABLE)
        found = [(g.path, g.effect, g.privilege) for g in store.roles.grants("lake.reader")]
        assert found == [
            ("lake.c.s", "allow", "select_table"),
            (TABLE, "allow", "select_table"),
            (TABLE, "deny", "select_table"),
        ]
        event = [c for c in store.changes() if c.kind == "grant"][-1]
        assert (event.path_after, event.other_path) == (TABLE, "lake.reader")
        assert store.roles.revoke("lake.reader", "select_table", TABLE)  # both effects
        assert not store.roles.revoke("lake.reader", "select_table", TABLE)
        assert [g.path for g in store.roles.grants("lake.reader")] == ["lake.c.s"]
        store.schemas.drop("lake.c.s", cascade=True)
        assert list(store.roles.grants("lake.reader")) == []
        with pytest.raises(ms.InvalidArgument):
            store.roles.grant("lake.reader", "Select Table", "lake.c")
        with pytest.raises(ms.InvalidArgument):
            store.roles.grant("lake.reader", "use_catalog", "lake.c", effect="maybe")  # type: ignore[arg-type]


class TestPoliciesAndDeclaredRelations:
    def test_a_policy_stands_on_what_it_supports(self, store: Store) -> None:
        store.policies.create("lake.keep", supports=("schema", "column"))
        store.policies.attach("lake.c.s", "lake.keep", kind="schema")
        store.policies.attach(TABLE, "lake.keep", column="a")
        with pytest.raises(ms.InvalidArgument, match="is on a schema or a column"):
            store.policies.attach(TABLE, "lake.keep")
        with pytest.raises(ms.EntityAlreadyExists):
            store.policies.attach("lake.c.s", "lake.keep", kind="schema")
        assert seen(store.policies.on(TABLE)) == [("keep", None, "lake.c.s")]
        assert [t.column for t in store.policies.targets("lake.keep")] == [None, "a"]
        assert store.policies.detach("lake.c.s", "lake.keep", kind="schema")

    def test_a_declared_relation(self, store: Store) -> None:
        ms.Relation("reviewed_by", from_kinds=("table",), to_kinds=("user",))
        ms.Relation("reviewed_by", from_kinds=("table",), to_kinds=("user",))  # the same once more
        reviews = store.relations("reviewed_by")
        reviews.attach(TABLE, ANN)
        reviews.attach(TABLE, BOB)
        assert [r.path for r in reviews.on(TABLE)] == [store.users.load(p).path for p in (ANN, BOB)]
        assert [r.target_path for r in reviews.targets(ANN)] == [TABLE]
        assert reviews.detach(TABLE, ANN)
        with pytest.raises(ms.InvalidArgument):
            reviews.attach(store.schemas.load("lake.c.s"), ANN)
        for wrong in ("reviewed_by", "table", "partition", "No"):
            with pytest.raises(ms.InvalidArgument):
                ms.Relation(wrong, from_kinds=("view",))
        with pytest.raises(ms.InvalidArgument, match="there is no relation"):
            store.relations("nope")

    def test_an_exclusive_one(self, store: Store) -> None:
        ms.Relation("steward", to_kinds=("user",), exclusive=True)
        store.relations("steward").attach(TABLE, ANN)
        store.relations("steward").attach(TABLE, BOB)
        assert [r.name for r in store.relations("steward").on(TABLE)] == [BOB[-1]]


class TestEvents:
    def test_the_feed_says_what_was_attached(self, store: Store) -> None:
        after = list(store.changes())[-1].position
        store.tags.attach(TABLE, "lake.pii", value="email")
        store.tags.detach(TABLE, "lake.pii")
        first, second = store.changes(after=after)
        assert (first.kind, first.action, first.path_before, first.path_after, first.other_path, first.version) == (
            *("tag_on", "create", None, TABLE, "lake.pii", 1),
        )
        assert (second.action, second.path_before, second.path_after, second.version) == ("drop", TABLE, None, 2)
        assert first.entity_id == second.entity_id
        assert isinstance(first.entity, ms.Relationship)
        assert (first.entity.value, first.entity.other_id) == ("email", store.tags.load("lake.pii").id)
        assert first.to_dict()["other_path"] == "lake.pii"
        assert [c.position for c in store.changes_page(after=after, kinds=["tag_on"], under="lake.c").items] == [
            first.position,
            second.position,
        ]

    def test_under_an_operation_id_it_is_done_once(self, store: Store) -> None:
        operation = ms.new_operation_id()
        first = store.tags.attach(TABLE, "lake.hot", operation_id=operation)
        again = store.tags.attach(TABLE, "lake.hot", operation_id=operation)
        assert (again.id, again.name, again.target_path) == (first.id, "hot", TABLE)
        assert store.outcome(operation).state == "committed"
        with pytest.raises(ms.OperationIdReused):
            store.tags.attach(TABLE, "lake.pii", operation_id=operation)
        operation = ms.new_operation_id()
        assert store.tags.detach(TABLE, "lake.hot", operation_id=operation)
        assert store.tags.detach(TABLE, "lake.hot", operation_id=operation)


class TestTransactions:
    def test_a_transaction_sees_its_own_and_commits_all(self, store: Store) -> None:
        store.tags.attach(TABLE, "lake.hot")
        with store.transaction() as tx:
            made = tx.tables.create("lake.c.s.n", columns=[ms.Column("a", "int")])
            tx.tags.attach(made, "lake.hot", column="a")
            tx.tags.attach("lake.c.s.n", "lake.pii", value="email")
            assert tx.tags.detach(TABLE, "lake.hot")
            tx.owners.set(made, ANN)
            tx.owners.set(made, BOB)
            owner = tx.owners.of(made)
            assert owner is not None
            assert owner.names == BOB
            assert seen(tx.tags.on(made)) == [("pii", "email", None)]
            assert [t.target_path for t in tx.tags.targets("lake.hot")] == ["lake.c.s.n"]
            with pytest.raises(ms.EntityAlreadyExists):
                tx.tags.attach(made, "lake.hot", column="a")
        assert where(store, "lake.hot") == [("table", "lake.c.s.n", "a", None)]
        assert [e.path for e in store.owners.owned_by(BOB)] == ["lake.c.s.n"]

    @pytest.mark.parametrize(
        ("read", "change"),
        [
            (lambda tx: tx.tags.on(TABLE), lambda s: s.tags.attach(TABLE, "lake.hot")),
            (lambda tx: tx.tags.on(TABLE), lambda s: s.tags.attach("lake.c", "lake.hot")),
            (lambda tx: list(tx.tags.targets("lake.hot")), lambda s: s.tags.attach(TABLE, "lake.hot")),
            (lambda tx: tx.owners.of(TABLE), lambda s: s.owners.set(TABLE, ANN)),
            (lambda tx: tx.tags.detach(TABLE, "lake.hot"), lambda s: s.tags.attach(TABLE, "lake.hot")),
            (lambda tx: tx.tags.on(TABLE), lambda s: s.tags.detach(TABLE, "lake.pii")),
            (lambda tx: tx.tags.on(TABLE), lambda s: s.tags.drop("lake.pii")),
        ],
    )
    def test_what_it_read_is_validated(
        self, store: Store, read: Callable[[Any], object], change: Callable[[Store], object]
    ) -> None:
        store.tags.attach(TABLE, "lake.pii", value="email")
        with pytest.raises(ms.VersionConflict), store.transaction() as tx:  # noqa: PT012
            read(tx)
            tx.tables.create("lake.c.s.n")
            change(store)
        with store.transaction() as tx:
            read(tx)
            tx.tables.create("lake.c.s.n")
        assert store.tables.exists("lake.c.s.n")

    def test_a_refused_one_writes_nothing(self, store: Store) -> None:
        with pytest.raises(ms.VersionConflict), store.transaction() as tx:  # noqa: PT012
            tx.tags.attach(TABLE, "lake.hot")
            store.tags.drop("lake.hot")
        store.tags.restore("lake.hot")
        assert where(store, "lake.hot") == []
