"""Each way in which a user loses a right, by each door of the library, and each kind of write that rests on rights."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity
from tests.contract.authorized import Lake, prepare

__all__ = ["ANN", "LOSSES", "UNTRIED", "WRITES", "Held", "Loss", "fits", "held", "pairs"]

ANN, BOB = ("lake", "ann@corp"), ("lake", "bob@corp")
_WORDS = ("use_catalog", "use_schema", "select_table", "modify_table", "create_table", "create_schema", "use_model")


@dataclass
class Held:
    """What ann may write: by a role of the group ``writers``, which also owns the schema ``sales.eu``."""

    lake: Lake
    orders: Entity
    refunds: Entity
    model: Entity
    tag: Entity
    policy: Entity
    other: Entity
    """A role that ann does not have."""
    late: Entity
    """A table of the schema that was dropped."""

    @property
    def store(self) -> Store:
        """The trusted store."""
        return self.lake.store


def held(store: Store) -> Held:
    """Make the lake, and what is written there."""
    lake = prepare(store)
    eu = "lake.sales.eu"
    model, late = store.models.create(f"{eu}.model"), store.tables.create(f"{eu}.late")
    store.models.add_version(model, uris={"u": "s3://b/there"}, aliases=["there"])
    store.tables.drop(late)
    store.schemas.create("lake.sales.us")
    store.partitions.create(lake.orders, "p=1", values={})
    role, group = store.roles.create("lake.writer"), store.groups.create("lake.writers")
    lake.grant(role, *[(word, "catalog", "lake.sales") for word in _WORDS])
    words = ("apply_tag", "apply_policy", "manage_grants", "manage_groups", "manage_users")
    lake.grant(role, *[(word, "metalake", "lake") for word in words])
    store.groups.add(group, store.users.load(ANN))
    store.roles.assign(role, group)
    for schema in (eu, "lake.sales.us"):
        store.owners.set(schema, group, kind="schema")
    deny = store.roles.create("lake.deny")
    lake.grant(deny, *[("use_catalog", "catalog", "lake.sales")], deny=True)
    refunds = store.tables.load(f"{eu}.refunds")
    tag, policy, other = (
        store.tags.create("lake.tag"),
        store.policies.create("lake.rule"),
        store.roles.create("lake.other"),
    )
    store.tags.attach(refunds, tag, value="there")
    store.statistics.set(refunds, {"custom-there": 1})
    store.owners.set(refunds, BOB)
    store.roles.grant(other, "select_table", refunds)
    _hold_in_the_lake(store, group, [lake.hr, policy])
    return Held(lake, lake.orders, refunds, model, tag, policy, other, late)


def _hold_in_the_lake(store: Store, group: Entity, owned: list[Entity]) -> None:
    """Let the group own some things outside of sales, and make another group, of which it may manage the members."""
    store.roles.assign("lake.other", store.groups.create("lake.team"))
    store.groups.add("lake.team", BOB)
    off = store.catalogs.create("lake.off", type="relational"), store.policies.create("lake.off")
    store.catalogs.disable(off[0])
    store.policies.disable(off[1])
    job = store.jobs.create("lake.job", template="x", type="shell", command={"executable": "true"})
    for one in (*owned, *off, job):
        store.owners.set(one, group)


Act = Callable[[Store], Any]


@dataclass(frozen=True)
class Loss:
    """How ann loses what she needs to reach the catalog ``sales``."""

    take: Act
    before: Act = lambda _: None
    raises: bool = True
    """The write of the loss raises a scope version by what it takes, not by its own exclusive operation."""
    everything: bool = False
    """Ann has nothing left, in the whole lake."""


def _group(store: Store) -> Any:
    return store.groups.load("lake.writers")


def _deny(store: Store) -> Any:
    return store.roles.grant("lake.writer", "use_catalog", "lake.sales", effect="deny", kind="catalog")


def _undeny(store: Store) -> Any:
    store.roles.revoke("lake.writer", "use_catalog", "lake.sales", kind="catalog")
    return store.roles.grant("lake.writer", "use_catalog", "lake.sales", kind="catalog")


class _Import:
    """An export that was made after a change, and is read after the change was taken back."""

    def __init__(self, made: Act, undone: Act) -> None:
        self._made, self._undone = made, undone
        self._file = io.BytesIO()

    def before(self, store: Store) -> None:
        self._file = io.BytesIO()
        self._made(store)
        store.export_to(self._file, "lake")
        self._undone(store)

    def take(self, store: Store) -> None:
        self._file.seek(0)
        store.import_from(self._file, if_exists="replace")

    def loss(self) -> Loss:
        return Loss(self.take, self.before)


def _owned(store: Store) -> Any:
    """Let ann reach the catalog only because her group owns it."""
    store.owners.set("lake.sales", _group(store), kind="catalog")
    return store.roles.revoke("lake.writer", "use_catalog", "lake.sales", kind="catalog")


def _given_away(store: Store) -> Any:
    return store.owners.set("lake.sales", store.users.load(BOB), kind="catalog")


def _deny_in_a_transaction(store: Store) -> None:
    with store.transaction() as tx:
        tx.roles.grant("lake.writer", "use_catalog", "lake.sales", effect="deny", kind="catalog")
        tx.tags.create("lake.beside")


def _roll_back(drop: Callable[[Store], Any]) -> Loss:
    """A drop in steps of something that denies, which is rolled back."""
    pending: list[Any] = []

    def before(store: Store) -> None:
        pending.clear()
        pending.append(drop(store))

    return Loss(lambda _: pending[0].roll_back(), before)


def _denying_group(store: Store) -> Any:
    group = store.groups.create("lake.deniers", if_exists="return")
    store.groups.add(group, store.users.load(ANN))
    store.roles.assign("lake.deny", group)
    return group


def _drop_role(store: Store) -> Any:
    store.roles.assign("lake.deny", store.users.load(ANN))
    return store.roles.drop("lake.deny")


def _deny_from_an_executor(store: Store) -> None:
    """Deny as a task of ``spark.attach_many``, without the cluster."""
    from metastore.spark.bulk import attach_rows
    from metastore.spark.once import new_write

    row = {"target": "lake.writer", "kind": "role", "column": None, "value": "deny:use_catalog"}
    assert attach_rows(store, new_write(), iter([row]), "lake.sales", "grant") == 1


LOSSES: dict[str, Loss] = {
    "revoke": Loss(lambda s: s.roles.revoke("lake.writer", "use_catalog", "lake.sales", kind="catalog")),
    "detach the grant": Loss(
        lambda s: s.relations("grant").detach("lake.writer", s.catalogs.load("lake.sales"), value="allow:use_catalog")
    ),
    "unassign": Loss(lambda s: s.roles.unassign("lake.writer", _group(s))),
    "remove from the group": Loss(lambda s: s.groups.remove("lake.writers", ANN), everything=True),
    "disable the group": Loss(lambda s: s.groups.disable("lake.writers"), raises=False, everything=True),
    "drop the group": Loss(lambda s: s.groups.drop("lake.writers"), raises=False, everything=True),
    "purge the group": Loss(lambda s: s.groups.purge("lake.writers"), raises=False, everything=True),
    "drop the role": Loss(lambda s: s.roles.drop("lake.writer"), raises=False),
    "drop the role in steps": Loss(lambda s: s.roles.begin_drop("lake.writer"), raises=False),
    "disable the user": Loss(lambda s: s.users.disable(ANN), raises=False, everything=True),
    "drop the user": Loss(lambda s: s.users.drop(ANN), raises=False, everything=True),
    "rename the user": Loss(lambda s: s.users.rename(ANN, "somebody"), raises=False, everything=True),
    "make the user again": Loss(lambda s: [s.users.drop(ANN), s.users.create(ANN)], raises=False, everything=True),
    "assign a role that denies": Loss(lambda s: s.roles.assign("lake.deny", s.users.load(ANN))),
    "assign it by attach_many": Loss(
        lambda s: s.relations("membership").attach_many(
            s.roles.load("lake.deny"), [{"target": s.users.load(one)} for one in (BOB, ANN)]
        )
    ),
    "join a group that is denied": Loss(
        lambda s: s.groups.add("lake.deniers", ANN),
        lambda s: [_denying_group(s), s.groups.remove("lake.deniers", ANN)],
    ),
    "enable a group that is denied": Loss(
        lambda s: s.groups.enable("lake.deniers"),
        lambda s: [_denying_group(s), s.groups.disable("lake.deniers")],
        raises=False,
    ),
    "restore a role that denies": Loss(lambda s: s.roles.restore("lake.deny"), _drop_role),
    "restore a group that is denied": Loss(
        lambda s: s.groups.restore("lake.deniers"), lambda s: s.groups.drop(_denying_group(s))
    ),
    "roll back the drop of a role": _roll_back(
        lambda s: [s.roles.assign("lake.deny", s.users.load(ANN)), s.roles.begin_drop("lake.deny")][1]
    ),
    "roll back the drop of a group": _roll_back(lambda s: s.groups.begin_drop(_denying_group(s))),
    "deny": Loss(_deny),
    "deny by attach_many": Loss(
        lambda s: s.relations("grant").attach_many(
            s.catalogs.load("lake.sales"), [{"target": "lake.writer", "value": "deny:use_catalog"}]
        )
    ),
    "deny from Spark": Loss(_deny_from_an_executor),
    "deny in a transaction": Loss(_deny_in_a_transaction),
    "import a denial": _Import(_deny, _undeny).loss(),
    "import a membership": _Import(
        lambda s: s.roles.assign("lake.deny", s.users.load(ANN)),
        lambda s: s.roles.unassign("lake.deny", s.users.load(ANN)),
    ).loss(),
    "import another owner": _Import(
        lambda s: [_owned(s), _given_away(s)], lambda s: s.owners.set("lake.sales", _group(s), kind="catalog")
    ).loss(),
    "change the owner": Loss(_given_away, _owned),
    "remove the owner": Loss(lambda s: s.owners.remove("lake.sales", _group(s), kind="catalog"), _owned),
}


def _in_a_transaction(ann: Store, at: Held) -> None:
    with ann.transaction() as tx:
        tx.tables.alter(at.refunds, ms.SetComment("late"))
        tx.tables.create("lake.sales.eu.later")


def _read_and_write(ann: Store, at: Held) -> None:
    """Write what needs no right in the catalog, by what was read there."""
    with ann.transaction() as tx:
        seen = tx.tables.load(at.orders)
        tx.tags.attach(at.refunds, at.tag, value=str(seen.version))


Write = Callable[[Store, Held], Any]
_OF_THE_LAKE: dict[str, Write] = {
    "add to a group": lambda ann, _: ann.groups.add("lake.team", ANN),
    "remove from a group": lambda ann, _: ann.groups.remove("lake.team", BOB),
    "assign a role": lambda ann, at: ann.roles.assign(at.other, BOB),
    "unassign a role": lambda ann, at: ann.roles.unassign(at.other, "lake.team"),
    "disable a catalog": lambda ann, _: ann.catalogs.disable("lake.hr"),
    "enable a catalog": lambda ann, _: ann.catalogs.enable("lake.off"),
    "disable a policy": lambda ann, at: ann.policies.disable(at.policy),
    "enable a policy": lambda ann, _: ann.policies.enable("lake.off"),
    "cancel a job": lambda ann, _: ann.jobs.cancel("lake.job"),
}
"""What needs no right in the catalog ``sales``."""
WRITES: dict[str, Write] = {
    "alter": lambda ann, at: ann.tables.alter(at.orders, ms.SetComment("late")),
    "alter by path": lambda ann, _: ann.tables.alter("lake.sales.eu.orders", ms.SetComment("late")),
    "create": lambda ann, _: ann.tables.create("lake.sales.eu.later"),
    "create a schema": lambda ann, _: ann.schemas.create("lake.sales.later"),
    "create_many": lambda ann, at: ann.tables.create_many(at.lake.schema, [{"name": "later"}]),
    "create_many replace": lambda ann, at: ann.tables.create_many(
        at.lake.schema, [{"name": "orders", "comment": "late"}], if_exists="replace"
    ),
    "create_many return": lambda ann, at: ann.tables.create_many(
        at.lake.schema, [{"name": "orders"}, {"name": "later"}], if_exists="return"
    ),
    "rename": lambda ann, at: ann.tables.rename(at.orders, "later"),
    "rename by path": lambda ann, _: ann.tables.rename("lake.sales.eu.orders", "later"),
    "move": lambda ann, at: ann.tables.rename(at.orders, "lake.sales.us.orders"),
    "drop": lambda ann, at: ann.tables.drop(at.orders),
    "drop by path": lambda ann, _: ann.tables.drop("lake.sales.eu.orders"),
    "begin_drop": lambda ann, at: ann.tables.begin_drop(at.orders),
    "purge": lambda ann, at: ann.tables.purge(at.orders),
    "restore": lambda ann, at: ann.tables.restore("lake.sales.eu.late", id=at.late.id),
    "attach a tag": lambda ann, at: ann.tags.attach(at.orders, at.tag, value="late"),
    "attach many": lambda ann, at: ann.tags.attach_many(at.tag, [{"target": at.orders, "value": "late"}]),
    "detach a tag": lambda ann, at: ann.tags.detach(at.refunds, at.tag),
    "attach a policy": lambda ann, at: ann.policies.attach(at.orders, at.policy),
    "set an owner": lambda ann, at: ann.owners.set(at.orders, ANN),
    "grant": lambda ann, at: ann.roles.grant(at.other, "select_table", at.orders),
    "a partition": lambda ann, at: ann.partitions.create(at.orders, "p=2", values={}),
    "drop a partition": lambda ann, at: ann.partitions.drop(at.orders, "p=1"),
    "partitions": lambda ann, at: ann.partitions.put_many(at.orders, [ann.partitions.row("p=3", {}, {})], []),
    "a statistic": lambda ann, at: ann.statistics.set(at.orders, {"custom-late": 1}),
    "begin to drop a partition": lambda ann, at: ann.partitions.begin_drop(at.orders, "p=1"),
    "remove a statistic": lambda ann, at: ann.statistics.remove(at.refunds, ["custom-there"]) > 0,
    "remove an owner": lambda ann, at: ann.owners.remove(at.refunds, BOB),
    "revoke": lambda ann, at: ann.roles.revoke(at.other, "select_table", at.refunds),
    "alter a version": lambda ann, at: ann.models.alter_version(at.model, 1, ms.SetComment("late")),
    "drop a version": lambda ann, at: ann.models.drop_version(at.model, 1),
    "set an alias": lambda ann, at: ann.models.set_alias(at.model, "late", 1),
    "drop an alias": lambda ann, at: ann.models.drop_alias(at.model, "there"),
    "run": lambda ann, at: ann.run(lambda tx: tx.tables.alter(at.orders, ms.SetComment("late"))),
    "a version": lambda ann, at: ann.models.add_version(at.model, uris={"u": "s3://b/late"}),
    "a transaction": _in_a_transaction,
    "a transaction that read": _read_and_write,
    **_OF_THE_LAKE,
}
UNTRIED: dict[str, str] = {
    "Sources.register": "it writes what create and put_many write; only who owns the catalog may",
    "Drops.resume": "it finishes drops of others: tests/contract/test_drops_contract.py",
    "FreezableSchemas.exclusive": "its block is a transaction, and its end takes a mark away also without the right",
    "Store.import_from": "a user is refused",
    "Timeline.revert": "a user is refused",
    "Store.gc": "a user is refused",
}
"""The methods that write and have no line above, and why."""


def fits(write: str, loss: str) -> bool:
    """Whether ann loses what she needs for a write."""
    return write not in _OF_THE_LAKE or LOSSES[loss].everything


def pairs() -> list[tuple[str, str]]:
    """Return the pairs for the short suite: each loss with some writes, each write with some losses."""
    losses, writes = list(LOSSES), list(WRITES)
    few = [(writes[(3 * n + k) % len(writes)], loss) for n, loss in enumerate(losses) for k in range(3)]
    all_of_it = [loss for loss in losses if LOSSES[loss].everything]
    of_the_lake = [(write, all_of_it[n % len(all_of_it)]) for n, write in enumerate(_OF_THE_LAKE)]
    each = [*few, *of_the_lake, *[(write, "deny by attach_many") for write in writes]]
    return [pair for pair in dict.fromkeys(each) if fits(*pair)]
