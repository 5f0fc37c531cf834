"""The operations: every kind of call, on containers, leaves and owned rows, by path and with a loaded entity.

The tree that each program starts from::

    lake
      cat                 with an empty schema `r`, and the schema `s`:
        s                 tables t (partitions p0) and u, a dropped table `gone`
        r                 nothing; the target of moves
        full              a schema in which there is the table `one`
      old               a dropped schema, in which a table is
      shut                a disabled catalog

and what :mod:`~tests.statements.governed` adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import metastore as ms
from metastore.errors import LeaseLost, MetastoreError
from metastore.kinds.entity import Owned
from metastore.port.conditions import LeaseToken
from metastore.store import Store
from tests.interleaving.process import Hand, Outcome, operation_id
from tests.statements.governed import govern, governed

__all__ = ["CALLERS", "GONE", "OPERATIONS", "Operation", "T", "named", "outcome_of", "prepare"]

CAT, S, R, OLD = "lake.cat", "lake.cat.s", "lake.cat.r", "lake.cat.old"
T, U, NEW, OTHER, GONE = f"{S}.t", f"{S}.u", f"{S}.new", f"{S}.other", f"{S}.gone"
FULL = f"{CAT}.full"
ONE = f"{FULL}.one"
LEASE = "job"


@dataclass(frozen=True)
class Operation:
    """One call, or one transaction."""

    name: str
    group: str
    """Its row and column in the conflict matrix."""
    run: Callable[[Hand], object]
    may_conflict: bool = False
    """A VersionConflict says only that something else was written meanwhile, and nothing was applied."""
    with_next: bool = False
    """It waits together with the process's next one: the two travel in one batch, on PostgreSQL."""


class Held:
    """A lease as its holder knows it: nobody renews it."""

    def __init__(self, token: LeaseToken) -> None:
        self._token = token

    def tokens(self) -> tuple[LeaseToken, ...]:
        return (self._token,)

    def refused(self) -> MetastoreError:
        return LeaseLost(self._token.name, self._token.token)


def prepare(store: Store) -> Mapping[str, Any]:
    """Make the tree; return the entities that are in hand."""
    store.metalakes.create("lake")
    given: dict[str, Any] = {"cat": store.catalogs.create(CAT, type="relational")}
    given["s"] = store.schemas.create(S)
    given["t"] = store.tables.create(T, properties={"x": "0"})
    given["u"] = store.tables.create(U, properties={"x": "0"})
    store.partitions.create(T, "p0", values={"day": "0"})
    store.tables.create(GONE)
    store.tables.drop(GONE)
    given["r"] = store.schemas.create(R)
    store.tables.create(f"{OLD}.t", parents=True)
    store.schemas.drop(OLD, cascade=True)
    store.tables.create(ONE, parents=True)
    store.catalogs.create("lake.shut", type="relational")
    store.catalogs.disable("lake.shut")
    govern(store, S)
    lease = store.leases.acquire(LEASE, ttl=3600.0, owner="holder")
    given["lease"] = Held(lease.tokens()[0])
    return given


def outcome_of(run: Callable[[], object]) -> Outcome:
    """Return what ``run`` returns or raises, as a value."""
    try:
        return Outcome(shown(run()))
    except MetastoreError as error:
        return Outcome(None, type(error).__name__)


def shown(value: object) -> object:
    """Return something comparable, without ids and times."""
    if isinstance(value, ms.Entity):
        return value.path, value.version, value.comment, tuple(sorted(value.properties.items()))
    if isinstance(value, Owned):
        return value.name, value.version
    if isinstance(value, ms.Version):
        return value.version, value.action, value.path_before, value.path_after
    if isinstance(value, list | tuple):
        return tuple([shown(v) for v in value])
    return value


def _put(target: Any, key: str, value: str = "1", **options: Any) -> Callable[[Hand], object]:
    """Set a property of the table at a path, or of the one that is in hand under a name."""
    change = ms.SetProperty(key, value)
    return lambda h: h.store.tables.alter(h.given.get(target, target), change, **options)


def _swap(value: str) -> Callable[[Hand], object]:
    return lambda h: h.store.tables.alter(T, ms.SetProperty("x", value, expected="0"))


def _hot(hand: Hand) -> object:
    table = hand.given["t"]
    hand.store._session.hot.note(table.id, ("table", table.names))
    return hand.store.tables.alter(T, ms.SetProperty("hot", "1"))


def _copy(source: str, target: str) -> Callable[[Hand], object]:
    """Read one table and write what was read into the other."""

    def transaction(tx: Any) -> object:
        read = tx.tables.load(source)
        return tx.tables.alter(target, ms.SetProperty("copy", f"{read.version} {read.properties.get('x')}"))

    return lambda h: h.store.run(transaction)


def _listed(hand: Hand) -> object:
    """Create a table that says which ones there were."""

    def transaction(tx: Any) -> object:
        there = ",".join(tx.tables.names(S))
        return tx.tables.create(f"{S}.index", comment=there)

    return hand.store.run(transaction)


def _if_absent(hand: Hand) -> object:
    """Write down that a table is not there."""

    def transaction(tx: Any) -> object:
        return tx.tables.alter(T, ms.SetProperty("new", str(tx.tables.exists(NEW))))

    return hand.store.run(transaction)


def _once(hand: Hand) -> object:
    """A transaction that does not try again."""
    with hand.store.transaction() as tx:
        return tx.tables.alter(U, ms.SetProperty("seen", str(tx.tables.load(T).version)))


def _swapped(hand: Hand) -> object:
    """Put another table in the place of one."""

    def transaction(tx: Any) -> object:
        tx.tables.rename(T, "t_old")
        return tx.tables.create(T, comment="instead")

    return hand.store.run(transaction)


def _noted(run: Callable[[Hand], object]) -> Callable[[Hand], object]:
    """In a transaction, which writes down what came of it: an error is one more thing it has read."""

    def transaction(hand: Hand) -> object:
        def noted(tx: Any) -> object:
            came = outcome_of(lambda: run(Hand(tx, hand.given)))
            tx.tables.alter(U, ms.SetProperty("came", str(came)))
            return str(came)

        return hand.store.run(noted)

    return transaction


def _together(*runs: Callable[[Hand], object]) -> Callable[[Hand], object]:
    """Several calls as one transaction."""
    return lambda h: h.store.run(lambda tx: shown([run(Hand(tx, h.given)) for run in runs]))


def _day(hand: Hand) -> object:
    return hand.store.partitions.load(T, "p0").doc["values"]["day"]


def _many(*names: str, **options: Any) -> Callable[[Hand], object]:
    """Create several tables in one call."""
    return lambda h: h.store.tables.create_many(S, [{"name": n, "comment": "many"} for n in names], **options)


def _replace_schema(hand: Hand) -> object:
    return hand.store.schemas.create_many(CAT, [{"name": "s", "comment": "replaced"}], if_exists="replace")


def _freeze(hand: Hand) -> object:
    store = hand.store
    with store.schemas.exclusive(S, ttl=10.0, timeout=60.0) as tx:
        seen = f"{store.schemas.load(S).comment} {','.join(store.tables.names(S))}"
        return tx.tables.alter(hand.given["u"], ms.SetProperty("tables", seen))


def _partition(name: str, day: str) -> Callable[[Hand], object]:
    return lambda h: h.store.partitions.create(T, name, values={"day": day})


def _create_gone(hand: Hand) -> object:
    return hand.store.tables.create(GONE, comment="the second")


def _create_t_with_id(hand: Hand) -> object:
    return hand.store.tables.create(T, operation_id=operation_id(9, 2))


def _drop_p0(hand: Hand) -> object:
    return hand.store.partitions.drop(T, "p0")


def _rename_r(hand: Hand) -> object:
    return hand.store.schemas.rename(R, "q")


def _fill_r(hand: Hand) -> object:
    return hand.store.tables.create("n", parent=hand.given["r"])


_C, _A, _X, _R = "create table", "alter table", "rename or move table", "drop, restore or purge table"
_O, _AS, _XS, _DS = "partition", "alter schema", "rename or move schema", "drop or restore schema"
_G, _TX, _F, _L, _LB = (
    "catalog: rename, disable, drop",
    "transaction",
    "freeze",
    "commit under a lease",
    "take the lease",
)
_READ = "read"

OPERATIONS: tuple[Operation, ...] = (
    Operation("create", _C, lambda h: h.store.tables.create(NEW)),
    Operation("create in hand", _C, lambda h: h.store.tables.create("new", parent=h.given["s"], comment="hand")),
    Operation("create a sibling", _C, lambda h: h.store.tables.create(OTHER)),
    Operation("create or return", _C, lambda h: h.store.tables.create(NEW, if_exists="return")),
    Operation("create or replace", _C, lambda h: h.store.tables.create(NEW, if_exists="replace", comment="replaced")),
    Operation("create in the empty schema", _C, lambda h: h.store.tables.create(f"{R}.t")),
    Operation("alter", _A, _put(T, "a")),
    Operation("alter in hand", _A, _put("t", "b")),
    Operation("alter a sibling", "alter its sibling", _put(U, "a")),
    Operation("swap", _A, _swap("1")),
    Operation("swap otherwise", _A, _swap("2")),
    Operation("alter at a version", _A, _put(T, "at", expected_version=1)),
    Operation("alter while hot", _A, _hot),
    Operation("rename", _X, lambda h: h.store.tables.rename(T, "new")),
    Operation("rename in hand", _X, lambda h: h.store.tables.rename(h.given["t"], "moved")),
    Operation("move", _X, lambda h: h.store.tables.rename(T, f"{R}.t")),
    Operation("rename a sibling", _X, lambda h: h.store.tables.rename(U, "new")),
    Operation("drop", _R, lambda h: h.store.tables.drop(T)),
    Operation("drop in hand", _R, lambda h: h.store.tables.drop(h.given["t"])),
    Operation("restore", _R, lambda h: h.store.tables.restore(GONE)),
    Operation("create what was dropped", _C, lambda h: h.store.tables.create(GONE)),
    Operation("purge", _R, lambda h: h.store.tables.purge(T)),
    Operation("load", _READ, lambda h: h.store.tables.load(T)),
    Operation("load in hand", _READ, lambda h: h.store.tables.load(h.given["t"])),
    Operation("exists", _READ, lambda h: h.store.tables.exists(NEW)),
    Operation("names", _READ, lambda h: tuple(h.store.tables.names(S))),
    Operation("list", _READ, lambda h: tuple(h.store.tables.list(S))),
    Operation("load both", _READ, lambda h: h.store.tables.load_many([T, NEW])),
    Operation("create a partition", _O, _partition("p1", "1")),
    Operation("create it with other values", _O, _partition("p1", "2")),
    Operation("drop a partition", _O, _drop_p0),
    Operation("list partitions", _READ, lambda h: tuple(h.store.partitions.names(T))),
    Operation("alter the schema", _AS, lambda h: h.store.schemas.alter(S, ms.SetComment("c"))),
    Operation("rename the schema", _XS, lambda h: h.store.schemas.rename(S, "q")),
    Operation("rename the schema in hand", _XS, lambda h: h.store.schemas.rename(h.given["s"], "q2")),
    Operation("move the schema", _XS, lambda h: h.store.schemas.rename(S, f"{R}.s")),
    Operation("move the other schema", _XS, lambda h: h.store.schemas.rename(R, f"{S}.r")),
    Operation("drop the schema", _DS, lambda h: h.store.schemas.drop(S, cascade=True)),
    Operation("drop the schema if empty", _DS, lambda h: h.store.schemas.drop(S)),
    Operation("drop the empty schema", _DS, lambda h: h.store.schemas.drop(R)),
    Operation("restore a schema", _DS, lambda h: h.store.schemas.restore(OLD)),
    Operation("freeze", _F, _freeze, may_conflict=True),
    Operation("rename the catalog", _G, lambda h: h.store.catalogs.rename(CAT, "dog")),
    Operation("disable the catalog", _G, lambda h: h.store.catalogs.disable(CAT)),
    Operation("enable a catalog", _G, lambda h: h.store.catalogs.enable("lake.shut")),
    Operation("drop the catalog", _G, lambda h: h.store.catalogs.drop(h.given["cat"], cascade=True)),
    Operation("alter the catalog", "alter catalog", lambda h: h.store.catalogs.alter(CAT, ms.SetComment("c"))),
    Operation("copy", _TX, _copy(T, U)),
    Operation("copy back", _TX, _copy(U, T)),
    Operation("write down what is listed", _TX, _listed),
    Operation("write down what is absent", _TX, _if_absent),
    Operation("put another in its place", _TX, _swapped),
    Operation("transaction, once", _TX, _once, may_conflict=True),
    Operation("alter under the lease", _L, lambda h: _put(T, "leased", lease=h.given["lease"])(h)),
    Operation("create under the lease", _L, lambda h: h.store.tables.create(NEW, lease=h.given["lease"])),
    Operation("break the lease", _LB, lambda h: h.store.leases.break_(LEASE)),
    *[Operation(name, group, run) for name, group, run in governed(S)],
)
"""All calls; each pair of them is explored, and is in the conflict matrix."""

CALLERS: tuple[Operation, ...] = (
    Operation("create beside the only one", _C, lambda h: h.store.tables.create(f"{FULL}.two")),
    Operation("alter to what it is, with an id", _A, _put(T, "x", "0", operation_id=operation_id(9, 1))),
    Operation("create what is there, with an id", _C, _create_t_with_id),
    Operation("drop the only one", _R, lambda h: h.store.tables.drop(ONE)),
    Operation("drop what was dropped", _R, _together(_create_gone, lambda h: h.store.tables.drop(GONE))),
    Operation("purge the empty schema", _DS, lambda h: h.store.schemas.purge(R)),
    Operation("create several", _C, _many("new", "other")),
    Operation("create several or return", _C, _many("new", "gone", if_exists="return")),
    Operation("create several or replace", _C, _many("new", "t", if_exists="replace")),
    Operation("put another partition in its place", _O, _together(_drop_p0, _partition("p0", "1"))),
    Operation("read a partition and drop it", _TX, _together(_day, _drop_p0)),
    Operation("read a partition and make another of it", _TX, _together(_day, _drop_p0, _partition("p0", "2"))),
    Operation("replace the schema", _AS, _replace_schema),
    Operation("rename the empty schema and fill it", _XS, _together(_rename_r, _fill_r)),
    Operation("note the drop of the schema", _TX, _noted(lambda h: h.store.schemas.drop(FULL))),
    Operation("note the restore", _TX, _noted(lambda h: h.store.tables.restore(GONE))),
    Operation("note the restore of what is there", _TX, _noted(lambda h: h.store.tables.restore(T))),
    Operation("note the creation", _TX, _noted(lambda h: h.store.tables.create(NEW))),
)
"""What callers make of them: errors that are caught, several calls as one, two writes in a row, ids of the callers."""


def named(name: str) -> Operation:
    """Return the operation of this name."""
    (found,) = [o for o in (*OPERATIONS, *CALLERS) if o.name == name]
    return found
