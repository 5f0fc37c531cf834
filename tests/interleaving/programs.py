"""The programs: the operations of two or three processes, and the faults that may hit them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.clock import Clock
from metastore.managers.drops.pending import PendingDrop
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from tests.interleaving.oracle import OracleClock
from tests.interleaving.process import URL, Hand, Op, Wrap
from tests.interleaving.world import START, WRITES, Database

__all__ = ["GC_LATER", "NEW", "PROGRAMS", "Program", "S", "T", "by_path", "freeze", "named"]

SHARED = "019b76da-a800-7fff-8000-0f0000000001"
S, T, NEW = "lake.cat.s", "lake.cat.s.t", "lake.cat.s.new"


@dataclass(frozen=True)
class Program:
    """Small enough to be explored to the end."""

    name: str
    processes: tuple[tuple[Op, ...], ...]
    crash: tuple[int, ...] = ()
    """The processes that may stop for ever, one in a run. That is a fault as well."""
    lose: tuple[int, ...] = ()
    """The processes of which one answer may be lost: the call was applied, or is later, or never."""
    losable: tuple[str, ...] = WRITES
    """Which calls those are."""
    fail: tuple[int, ...] = ()
    """The processes of which one call may end in BackendUnavailable: it was applied, or is not."""
    most_faults: int = 1
    """How many calls may go wrong in one run."""
    jumps: tuple[float, ...] = ()
    """By how many seconds time passes, each at any moment; below zero: the database's clock is set back."""
    forgets: tuple[str, ...] = ()
    """The calls that a crash of the database forgets, unless another one came after them: asynchronous commits."""
    still: bool = False
    """Time passes for the database only: the processes' own clocks stand still."""
    after: float = 0.0
    """Seconds between the setup and the begin."""
    setup: Callable[[Store], Mapping[str, Any]] | None = None
    tick: int = 0
    """By how many microseconds time passes when an intent is written: their order is that of arrival then."""
    collected: bool = False
    """gc may remove history, so that it is not compared; nothing must be applied but what the setup did."""
    most_lost: int = 3
    """How many attempts a transaction may lose that runs again until it commits."""
    before: int = 1
    """How many attempts a change may lose before it is announced."""
    full: bool = False
    """Only explored by ``--full``."""
    make: Callable[[Clock], MemoryBackend] = MemoryBackend
    wrap: Wrap | None = None
    broken: Callable[[], AbstractContextManager[object]] = nullcontext
    """Breaks the library for a while, the same for each process."""

    def prepare(self, db: Database) -> Mapping[str, Any]:
        """Set up the database; return the entities that are there."""
        clock = OracleClock()
        clock.process, clock.at = 15, START
        db.clock.at = START
        store = Store(URL, db.backend, RetryPolicy(), "setup", clock)
        store.metalakes.create("lake")
        given: dict[str, Any] = {
            "cat": store.catalogs.create("lake.cat", type="relational"),
            "s": store.schemas.create(S),
            "t": store.tables.create(T, properties={"x": "0"}),
        }
        return given | dict(self.setup(store) if self.setup else {})


# --- operations


def put(key: str = "x", value: str = "1", *, at: str = T, **options: Any) -> Callable[[Hand], object]:
    return lambda hand: hand.store.tables.alter(at, ms.SetProperty(key, value), **options)


def by_path(key: str, *, hot: bool = False, at: str = T) -> Op:
    """Set a property of the table at a path."""
    return Op(f"alter {key}", put(key, at=at), "t" if hot else None)


def by_entity(key: str, *, hot: bool = False) -> Op:
    """Set a property of the table, wherever it is."""
    change = ms.SetProperty(key, "1")
    return Op(f"alter entity {key}", lambda h: h.store.tables.alter(h.given["t"], change), "t" if hot else None)


def swap(old: str, new: str, *, hot: bool = False) -> Op:
    """Set a property if it has a value."""
    change = ms.SetProperty("x", new, expected=old)
    return Op(f"swap {old} {new}", lambda h: h.store.tables.alter(T, change), "t" if hot else None)


def impatient(key: str, *, hot: bool = False) -> Op:
    return Op(f"alter {key} within 1 s", put(key, deadline=1.0), "t" if hot else None)


def with_id(key: str = "a") -> Op:
    """Set a property under an operation id that others use as well."""
    return Op("alter with id", put(key, operation_id=SHARED))


_REFUSED = Op("refused with id", put("x", "2", operation_id=SHARED, expected_version=2))
REFUSED_TWICE = (_REFUSED, _REFUSED)
SET_X = Op("set x", put("x", "1"))
"""Makes version 2, which the refused one expects."""
RENAME = Op("rename", lambda h: h.store.tables.rename(T, "u"))
RENAME_ENTITY = Op("rename entity", lambda h: h.store.tables.rename(h.given["t"], "u"))
RENAME_BACK = Op("rename back", lambda h: h.store.tables.rename(S + ".u", "t"))
RENAME_PARENT = Op("rename parent", lambda h: h.store.schemas.rename(S, "r"))
DROP = Op("drop", lambda h: h.store.tables.drop(T))
RECREATE = Op("create again", lambda h: h.store.tables.create(T, properties={"x": "9"}))
RESTORE = Op("restore", lambda h: h.store.tables.restore(T))
CREATE = Op("create", lambda h: h.store.tables.create(NEW))
CREATE_TOO = Op("create another", lambda h: h.store.tables.create(NEW + "2"))
CREATE_THREE = Op("create a third", lambda h: h.store.tables.create(NEW + "3"))
CREATE_IN = Op("create in the schema", lambda h: h.store.tables.create("new", parent=h.given["s"]))
LOAD = Op("load", lambda h: h.store.tables.load(T))
GC = Op("gc", lambda h: bool(h.store.gc(retention=ms_timedelta(0), keep_versions=1)))
GC_LATER = Op("gc, a day", lambda h: bool(h.store.gc(retention=ms_timedelta(86_400))))


def ms_timedelta(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


def freeze(*, ttl: float = 10.0, timeout: float = 30.0) -> Op:
    """Look whether a table is there while nobody can make it or drop it, and write down what was seen."""

    def run(hand: Hand) -> object:
        with hand.store.schemas.exclusive(S, ttl=ttl, timeout=timeout) as tx:
            there = hand.store.tables.exists(NEW)
            return tx.tables.alter(hand.given["t"], ms.SetProperty("new", str(there)))

    return Op("freeze", run, may_fail=True)


def transaction(key: str) -> Op:
    """Copy a property into another."""

    def run(hand: Hand) -> object:
        with hand.store.transaction() as tx:
            return tx.tables.alter(T, ms.SetProperty(key, tx.tables.load(T).properties["x"]))

    return Op("transaction", run, may_fail=True)


def count(*, hot: bool = False) -> Op:
    """Count in a transaction that runs again until it commits."""

    def run(hand: Hand) -> object:
        def fn(tx: Any) -> object:
            table = tx.tables.load(T)
            return tx.tables.alter(table, ms.SetProperty("n", str(int(table.properties.get("n", "0")) + 1)))

        return hand.store.run(fn)

    return Op("count", run, "t" if hot else None, counts=True)


def count_absent() -> Op:
    """Note how many tables there are, in a transaction that runs again until it commits."""

    def run(hand: Hand) -> object:
        def fn(tx: Any) -> object:
            there = len(list(tx.tables.list(S)))
            return tx.schemas.alter(S, ms.SetProperty("n", str(there)))

        return hand.store.run(fn)

    return Op("note how many", run, counts=True)


def _two(store: Store) -> Mapping[str, Any]:
    store.tables.alter(T, ms.SetProperty("first", "1"), operation_id=SHARED)
    store.tables.alter(T, ms.SetProperty("first", "2"))
    return {}


M = "lake.cat.s.m"
PLACE = {"default": "s3://b/x"}


def _model(store: Store) -> Mapping[str, Any]:
    """Make a model with two versions; "prod" is the first."""
    store.models.create(M)
    for aliases in (("prod",), ()):
        store.models.add_version(M, uris=PLACE, aliases=aliases)
    return {}


ADD_VERSION = Op("add a version", lambda h: h.store.models.add_version(M, uris=PLACE, aliases=("prod",)).number)
ALIAS = Op("move the alias", lambda h: h.store.models.set_alias(M, "prod", 2).number)
DROP_VERSION = Op("drop the version", lambda h: h.store.models.drop_version(M, 2))
DROP_PROD = Op("drop what the alias means", lambda h: h.store.models.drop_version(M, "prod"))
LOAD_PROD = Op("load what the alias means", lambda h: h.store.models.load_version(M, "prod").number)
ALTER_MODEL = Op("alter the model", lambda h: bool(h.store.models.alter(M, ms.SetComment("c"))))
RENAME_MODEL = Op("rename the model", lambda h: bool(h.store.models.rename(M, "n")))


def _dropping(store: Store) -> Mapping[str, Any]:
    """Announce the drop of the table in steps."""
    return {"drop": store.tables.begin_drop(T)._drop}


def _step(name: str, step: Callable[[PendingDrop], object]) -> Op:
    """Take a step of the drop that was announced, with its token, as the process that has it in hand does."""
    return Op(name, lambda h: step(PendingDrop(h.store._session, h.given["drop"], held=True)))


BEGIN_DROP = Op("begin a drop", lambda h: bool(h.store.tables.begin_drop(T)))
START_DROP = _step("start", lambda pending: pending.started())
ROLL_BACK = _step("roll back", lambda pending: pending.roll_back())
FINISH = _step("finish", lambda pending: pending.finish())
DROP_PARENT = Op("drop the schema", lambda h: h.store.schemas.drop(S))

A, B, C = by_path("a"), by_path("b"), by_path("c")
A_HOT, B_HOT, C_HOT = by_path("a", hot=True), by_path("b", hot=True), by_path("c", hot=True)
D_HOT = by_path("d", hot=True)
FIVE = (A, B, C, by_path("d"), by_path("e"))
EA, EB = by_entity("a"), by_entity("b")
EA_HOT, EB_HOT = by_entity("a", hot=True), by_entity("b", hot=True)

PROGRAMS: tuple[Program, ...] = (
    Program("two alters", ((A,), (B,)), crash=(0, 1), lose=(0, 1)),
    Program("two alters of an entity", ((EA,), (EB,)), crash=(0, 1), lose=(0, 1)),
    Program("two hot alters", ((A_HOT,), (B_HOT,)), crash=(0, 1), lose=(0, 1)),
    Program("a hot alter, one that is not", ((EA_HOT,), (B,)), crash=(0, 1), lose=(0, 1)),
    Program("three alters", ((A,), (B,), (C,))),
    Program("three hot alters", ((A_HOT,), (B_HOT,), (C_HOT,))),
    Program("hot alter, three alters in a row", ((A_HOT,), (B, C, by_path("d")))),
    Program("hot alter, three hot ones in a row", ((A_HOT,), (B_HOT, C_HOT, D_HOT))),
    Program("swaps", ((swap("0", "1"),), (swap("0", "2"),)), crash=(0,), lose=(0, 1)),
    Program("hot swaps", ((swap("0", "1", hot=True),), (swap("0", "2", hot=True),)), lose=(0, 1)),
    Program("alter, rename", ((A,), (RENAME,)), crash=(0, 1), lose=(0, 1)),
    Program("hot alter, rename", ((A_HOT,), (RENAME_ENTITY,)), crash=(0, 1), lose=(0, 1)),
    Program("hot alter of an entity, rename", ((EA_HOT,), (RENAME,)), crash=(0, 1), lose=(0, 1)),
    Program("two alters, rename", ((A_HOT,), (EB_HOT,), (RENAME,))),
    Program("alter, rename there and back", ((A_HOT,), (RENAME, RENAME_BACK)), lose=(0,)),
    Program("alter, rename of the parent", ((A,), (RENAME_PARENT,)), crash=(0, 1), lose=(0, 1)),
    Program("hot alter, rename of the parent", ((A_HOT,), (RENAME_PARENT,)), crash=(0, 1), lose=(0, 1)),
    Program("two alters, rename of the parent", ((A_HOT,), (EB_HOT,), (RENAME_PARENT,))),
    Program("alter, drop", ((A,), (DROP,)), crash=(0, 1), lose=(0, 1)),
    Program("hot alter, drop", ((A_HOT,), (DROP,)), crash=(0, 1), lose=(0, 1)),
    Program("alter, drop and create", ((A,), (DROP, RECREATE)), crash=(0, 1), lose=(0,)),
    Program("hot alter, drop and create", ((A_HOT,), (DROP, RECREATE)), crash=(0, 1), lose=(0,)),
    Program("alter of an entity, drop and restore", ((EA_HOT,), (DROP, RESTORE)), crash=(0,), lose=(0,)),
    # what was loaded before is renamed and dropped by name
    Program("rename by name, rename of the parent", ((LOAD, RENAME), (RENAME_PARENT,)), crash=(0,), lose=(0, 1)),
    Program("drop by name, another one there", ((LOAD, DROP), (RENAME, RECREATE)), crash=(0,), lose=(0,)),
    Program("hot alter, drop by name", ((A_HOT,), (LOAD, DROP)), lose=(0, 1)),
    Program("alter, deadline", ((impatient("a"),), (B,)), jumps=(2.0,), lose=(0,)),
    Program("hot alter, deadline", ((impatient("a", hot=True),), (B_HOT,)), jumps=(2.0,), lose=(0, 1)),
    Program("two alters with one id", ((with_id(),), (with_id(),)), lose=(0,), crash=(0,)),
    Program("two alters with one id, another", ((with_id(),), (with_id(),), (B,))),
    Program("alter, freeze", ((A,), (freeze(),)), crash=(0,), lose=(0, 1)),
    Program("hot alter, freeze", ((A_HOT,), (freeze(),)), crash=(0, 1), lose=(0, 1)),
    Program("create, freeze that lapses", ((CREATE,), (freeze(ttl=1.0),)), crash=(1,), jumps=(2.0,)),
    Program(
        "create, freeze that lapses, late marks",
        ((CREATE_IN,), (freeze(ttl=1.0),)),
        lose=(1,),
        losable=("mark",),
        jumps=(2.0, 3.0),
        still=True,
        full=True,
    ),
    Program("rename, create below", ((RENAME_PARENT,), (CREATE,)), crash=(0, 1), lose=(0, 1)),
    Program("two freezes", ((freeze(ttl=1.0),), (freeze(ttl=1.0),)), crash=(0,), lose=(0,)),
    Program("freeze, rename of the parent", ((freeze(),), (RENAME_PARENT,)), crash=(0, 1)),
    Program("transaction, alter", ((transaction("copy"),), (swap("0", "1"),)), crash=(0, 1), lose=(0, 1)),
    Program("transaction, two alters", ((transaction("copy"),), (swap("0", "1", hot=True),), (B,))),
    Program("two counts", ((count(),), (count(),)), crash=(0,)),
    Program("two hot counts", ((count(hot=True),), (count(hot=True),)), crash=(0, 1), lose=(0,)),
    Program("hot count, alter", ((count(hot=True),), (A,)), crash=(0, 1), lose=(0, 1)),
    Program("hot count, hot alter", ((count(hot=True),), (A_HOT,)), crash=(0, 1), lose=(0, 1)),
    Program("count, three alters in a row", ((count(),), (A, B, C))),
    Program("hot count, three alters in a row", ((count(hot=True),), (A, B, C))),
    Program("count, three counts in a row", ((count(),), (count(), count(), count()))),
    Program("hot count, hot alter, an alter", ((count(hot=True),), (A_HOT,), (B,))),
    Program("two hot counts in line", ((count(hot=True),), (count(hot=True),)), most_lost=0),
    Program(
        "hot count, five alters in a row", ((count(hot=True),), (A, B, C, by_path("d"), by_path("e"))), most_lost=1
    ),
    Program("count, two creates in a row", ((count_absent(),), (CREATE, CREATE_TOO, CREATE_THREE)), most_lost=2),
    Program("two hot counts, a hot alter", ((count(hot=True),), (count(hot=True),), (A_HOT,))),
    Program("hot count, rename", ((count(hot=True),), (RENAME_ENTITY,)), crash=(0,)),
    Program("hot count, freeze", ((count(hot=True),), (freeze(),)), crash=(0, 1)),
    Program("two versions", ((ADD_VERSION,), (ADD_VERSION,)), setup=_model, lose=(0,), crash=(0,)),
    Program("version, alias", ((ADD_VERSION,), (ALIAS,)), setup=_model, lose=(0, 1)),
    Program("alias, drop of the version", ((ALIAS,), (DROP_VERSION,)), setup=_model, lose=(0, 1)),
    Program("alias, drop of what it means", ((ALIAS,), (DROP_PROD,)), setup=_model, lose=(0, 1)),
    Program("alias, load", ((ALIAS, DROP_PROD), (LOAD_PROD,)), setup=_model),
    Program("version, alter, rename of the model", ((ADD_VERSION,), (ALTER_MODEL,), (RENAME_MODEL,)), setup=_model),
    Program("alias, rename of the model, load", ((ALIAS,), (RENAME_MODEL,), (LOAD_PROD,)), setup=_model),
    Program("refused with an id twice, alter", (REFUSED_TWICE, (SET_X,)), lose=(0,)),
    Program(
        "hot alter, deadline, two in a row", ((impatient("a", hot=True),), (B_HOT, C_HOT)), jumps=(2.0,), full=True
    ),
    Program("a lost commit, deadline", ((impatient("a"),), (B,)), jumps=(2.0,), lose=(0,), losable=("commit",)),
    Program("begin a drop, create", ((BEGIN_DROP,), (RECREATE,)), lose=(0,), crash=(0,)),
    Program("begin a drop, load", ((BEGIN_DROP,), (LOAD,))),
    Program("begin a drop, hot alter", ((BEGIN_DROP,), (A_HOT,)), lose=(0,)),
    Program("begin a drop, drop of the parent", ((BEGIN_DROP,), (DROP_PARENT,))),
    Program("begin a drop, twice", ((BEGIN_DROP,), (BEGIN_DROP,)), lose=(0,)),
    Program("roll back, start", ((ROLL_BACK,), (START_DROP,)), setup=_dropping, lose=(0, 1)),
    Program("roll back, finish", ((ROLL_BACK,), (FINISH,)), setup=_dropping, lose=(0, 1)),
    Program("start and finish, roll back", ((START_DROP, FINISH), (ROLL_BACK,)), setup=_dropping),
    Program("roll back, create", ((ROLL_BACK,), (RECREATE,)), setup=_dropping),
    Program("gc, replay", ((with_id("first"),), (GC,)), setup=_two, after=100.0, collected=True),
)


def named(wanted: str, **changes: Any) -> Program:
    """Return a program, changed."""
    (found,) = [p for p in PROGRAMS if p.name == wanted]
    return replace(found, **changes)
