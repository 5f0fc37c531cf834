"""Programs that use results and errors: each operation meets another process that writes twice in a row.

No program here aims at a particular defect. Each operation that looks at more than one row, or more than once
(:data:`LOOKERS`), meets two writes in a row (:data:`CHURNS`) in three ways:

* as it is;
* in a transaction that stores its result in the note, also if that is an error (:func:`noted`);
* in a transaction that may be refused, and whose result is used afterwards (:data:`USES`).

The tree, besides ``lake.cat.s.t``::

    lake.cat.s.t      partition p0, with the value 0
    lake.cat.s.gone   a dropped table
    lake.cat.r        an empty schema
    lake.cat.n.note   a table in which transactions write down what they saw
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import permutations, product
from typing import Any

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from tests.interleaving.oracle import Oracle, OracleClock
from tests.interleaving.process import URL, Foreign, Hand, Op, outcome_of
from tests.interleaving.programs import GC_LATER, NEW, Program, S, T, by_path, freeze
from tests.interleaving.world import START, Database

__all__ = ["CALLERS", "HANDED", "LOOKING", "MET", "every_two", "matters"]

R, GONE, P0 = "lake.cat.r", "lake.cat.s.gone", "p0"
IN_R, NOTE = f"{R}.t", "lake.cat.n.note"
_DAY = 86_400.0


def _tree(store: Store) -> Mapping[str, Any]:
    """Make the tree; return the entities that are in hand, one of them of another database that was made alike."""
    given = _grow(store)
    clock = OracleClock()
    clock.process, clock.at = 13, START + 1
    other = Store(URL, MemoryBackend(clock), RetryPolicy(), "other", clock)
    other.metalakes.create("lake")
    other.catalogs.create("lake.cat", type="relational")
    other.schemas.create(S)
    foreign = other.tables.create(T, properties={"x": "foreign"})
    _grow(other)
    return given | {"foreign": Foreign(foreign)}


def _grow(store: Store) -> dict[str, Any]:
    store.partitions.create(T, P0, values={"day": "0"})
    store.tables.create(GONE, comment="the first")
    store.tables.drop(GONE)
    store.schemas.create("lake.cat.n")
    store.tables.create(NOTE)
    given: dict[str, Any] = {"r": store.schemas.create(R)}
    with suppress(_Aborted), store.transaction() as tx:
        given["new"] = tx.tables.create(NEW, comment="never")
        raise _Aborted
    return given


class _Aborted(Exception):
    """Nothing of the transaction is written."""


# --- operations that write

_ALTER = by_path("a")
_DROP = Op("drop", lambda h: h.store.tables.drop(T))
_CREATE = Op("create it again", lambda h: bool(h.store.tables.create(T, comment="again")))
_AWAY = Op("rename", lambda h: bool(h.store.tables.rename(T, "new")))
_BACK = Op("rename back", lambda h: bool(h.store.tables.rename(NEW, "t")))
_MOVE = Op("move", lambda h: bool(h.store.tables.rename(T, IN_R)))
_NEW = Op("create new", lambda h: bool(h.store.tables.create(NEW, comment="other")))
_DROP_NEW = Op("drop new", lambda h: h.store.tables.drop(NEW))
_GONE = Op("create gone", lambda h: bool(h.store.tables.create(GONE, comment="the second")))
_DROP_GONE = Op("drop gone", lambda h: h.store.tables.drop(GONE))
_FILL = Op("fill r", lambda h: bool(h.store.tables.create(IN_R)))
_EMPTY = Op("empty r", lambda h: h.store.tables.drop(IN_R))
_RENAME_R = Op("rename r", lambda h: bool(h.store.schemas.rename(R, "q")))
_FILL_Q = Op("fill what was r", lambda h: bool(h.store.tables.create("t", parent=h.given["r"])))
_RENAME_S = Op("rename s", lambda h: bool(h.store.schemas.rename(S, "q")))
_NEW_Q = Op("create new in what was s", lambda h: bool(h.store.tables.create("new", parent=h.given["s"])))
_DROP_R = Op("drop r", lambda h: h.store.schemas.drop(R))
_CREATE_R = Op("create r", lambda h: bool(h.store.schemas.create(R)))
_DROP_P0 = Op("drop p0", lambda h: h.store.partitions.drop(T, P0))
_CREATE_P0 = Op("create p0", lambda h: h.store.partitions.create(T, P0, values={"day": "1"}).version)

_WRITES = (
    *(_ALTER, _DROP, _CREATE, _AWAY, _BACK, _MOVE, _NEW, _DROP_NEW, _GONE, _DROP_GONE, _FILL, _EMPTY),
    *(_DROP_R, _CREATE_R, _DROP_P0, _CREATE_P0, _RENAME_R, _FILL_Q, _RENAME_S, _NEW_Q),
)
CHURNS: tuple[tuple[Op, ...], ...] = (
    *((_DROP, _CREATE), (_AWAY, _BACK), (_NEW, _DROP_NEW), (_GONE, _DROP_GONE), (_FILL, _EMPTY)),
    *((_DROP_R, _CREATE_R), (_DROP_P0, _CREATE_P0), (_NEW, _DROP), (_ALTER, _DROP)),
    *((_RENAME_R, _FILL_Q), (_RENAME_S, _NEW_Q)),
)
"""Two writes after which something is as it was, or looks as if it were."""

# --- operations that look at more than one row, or more than once


def _many(*names: str, **options: Any) -> Any:
    """Create several tables in one call."""
    rows = [{"name": name, "comment": "many"} for name in names]
    return lambda h: h.store.tables.create_many(S, rows, **options)


def _schemas(h: Hand) -> object:
    rows = [{"name": name, "comment": "many"} for name in ("s", "r")]
    return h.store.schemas.create_many("lake.cat", rows, if_exists="replace")


def _seen(h: Hand) -> object:
    return tuple((t.path, t.version, t.comment) for t in h.store.tables.list(S))


def _partition(h: Hand) -> object:
    return h.store.partitions.load(T, P0).doc["values"]["day"]


LOOKERS: tuple[Op, ...] = (
    Op("load", lambda h: h.store.tables.load(T)),
    Op("list", _seen),
    Op("list what was dropped", lambda h: tuple(t.comment for t in h.store.tables.dropped(S))),
    Op("load several", lambda h: tuple(t and t.version for t in h.store.tables.load_many([T, NEW]))),
    Op("create", lambda h: h.store.tables.create(NEW)),
    Op("create or return", lambda h: h.store.tables.create(NEW, if_exists="return")),
    Op("create or replace", lambda h: h.store.tables.create(T, if_exists="replace", comment="replaced")),
    Op("create several", _many("new", "gone")),
    Op("create one of several or return", _many("new", if_exists="return")),
    Op("create several or return", _many("new", "gone", if_exists="return")),
    Op("create several or replace", _many("new", "t", if_exists="replace")),
    Op("replace the schemas", _schemas),
    Op("rename", lambda h: h.store.tables.rename(T, "new")),
    Op("move", lambda h: h.store.tables.rename(T, IN_R)),
    Op("drop", lambda h: h.store.tables.drop(T)),
    Op("drop if empty", lambda h: h.store.schemas.drop(R)),
    Op("drop s if empty", lambda h: h.store.schemas.drop(S)),
    Op("restore", lambda h: h.store.tables.restore(GONE)),
    Op("restore t", lambda h: h.store.tables.restore(T)),
    Op("restore elsewhere", lambda h: h.store.tables.restore(GONE, to=NEW)),
    Op("purge", lambda h: h.store.tables.purge(T)),
    Op("purge r", lambda h: h.store.schemas.purge(R)),
    Op("purge s", lambda h: h.store.schemas.purge(S)),
    Op("read the partition", _partition),
    Op("list partitions", lambda h: tuple(p.doc["values"]["day"] for p in h.store.partitions.list(T))),
    Op("create a partition", lambda h: h.store.partitions.create(T, P0, values={"day": "2"}).version),
    Op("drop the partition", lambda h: h.store.partitions.drop(T, P0)),
)
"""What they return is a value that can be compared, without ids and times."""


def _drop_as_read(h: Hand) -> object:
    return _partition(h), h.store.partitions.drop(T, P0)


def _count_on(h: Hand) -> object:
    day = str(_partition(h))
    h.store.partitions.drop(T, P0)
    return h.store.partitions.create(T, P0, values={"day": day + "1"}).version


TOGETHER: tuple[Op, ...] = (
    Op("read the partition and drop it", _drop_as_read),
    Op("read the partition and make another of it", _count_on),
)
"""Several calls, which are one operation inside of a transaction only."""


def noted(op: Op) -> Op:
    """The operation in a transaction, which writes down what came of it: an error is one more thing it has read."""

    def run(hand: Hand) -> object:
        def transaction(tx: Any) -> object:
            came = outcome_of(lambda: op.run(Hand(tx, hand.given)))
            tx.tables.alter(NOTE, ms.SetProperty("came", str(came)))
            return str(came)

        return hand.store.run(transaction)

    return Op(f"{op.name}, noted", run)


def frozen_while(op: Op) -> Op:
    """The operation while its schema is frozen: it and the freeze's commit are one instant."""

    def run(hand: Hand) -> object:
        with hand.store.schemas.exclusive(S) as tx:
            came = outcome_of(lambda: op.run(hand))
            tx.tables.alter(NOTE, ms.SetProperty("came", str(came)))
        return str(came)

    return Op(f"{op.name}, frozen", run, may_fail=True)


def _whole(hand: Hand) -> object:
    schema = hand.store.schemas.load(S)
    return schema.version, schema.comment, _seen(hand), outcome_of(lambda: _partition(hand))


WHOLE = Op("read all of s", _whole)

# --- what is done with what a transaction returned, whether it was applied or not


def _left(key: str, what: str, run: Any) -> Op:
    """A transaction that is not tried again, whose result stays in hand."""

    def transaction(hand: Hand) -> object:
        with hand.store.transaction() as tx:
            entity = run(tx)
            hand.given[key] = entity
        return bool(entity)

    return Op(f"a transaction's {what}", transaction, may_fail=True)


_B = ms.SetProperty("b", "1")
RETURNED: tuple[Op, ...] = (
    _left("t", "altered table", lambda tx: tx.tables.alter(T, _B)),
    _left("t", "renamed table", lambda tx: tx.tables.rename(T, "mine")),
    _left("s", "altered schema", lambda tx: tx.schemas.alter(S, ms.SetComment("mine"))),
    _left("s", "renamed schema", lambda tx: tx.schemas.rename(S, "mine")),
    _left("new", "new table", lambda tx: tx.tables.create(NEW)),
)


def _uses(key: str) -> tuple[Op, ...]:
    """What is done with a table, or a schema, that is in hand."""
    if key == "s":
        return (
            Op("create in it", lambda h: h.store.tables.create("below", parent=h.given["s"])),
            Op("alter it", lambda h: h.store.schemas.alter(h.given["s"], ms.SetProperty("c", "1"))),
            Op("list it", lambda h: tuple(h.store.tables.names(h.given["s"]))),
        )
    change = ms.SetProperty("c", "1")
    return (
        Op("alter it", lambda h: h.store.tables.alter(h.given[key], change)),
        Op("alter it at version 2", lambda h: h.store.tables.alter(h.given[key], change, expected_version=2)),
        Op("load it", lambda h: h.store.tables.load(h.given[key])),
        Op("rename it", lambda h: h.store.tables.rename(h.given[key], "used")),
        Op("drop it", lambda h: h.store.tables.drop(h.given[key])),
        Op("add a partition to it", lambda h: h.store.partitions.create(h.given[key], "p9", values={"day": "9"}).name),
    )


def _strange(op: Op) -> Op:
    """The operation with what this database does not know: how it says so is its own affair."""

    def run(hand: Hand) -> object:
        try:
            return op.run(hand) and "done"
        except (EntityNotFound, InvalidArgument):
            return False

    return Op(f"{op.name}, of another database", run)


_ALTER_S = Op("alter the schema", lambda h: bool(h.store.schemas.alter(S, ms.SetProperty("a", "1"))))
_MEANWHILE = {"t": (_ALTER, _AWAY, _DROP), "s": (_ALTER_S, _RENAME_S, _NEW), "new": (_NEW,)}


# --- the programs


def _program(looker: Op, *writes: Op, **more: Any) -> Program:
    name = f"{looker.name} | {', '.join(w.name for w in writes)}"
    return Program(f"{name}{more.pop('says', '')}", ((looker,), writes), setup=_tree, **more)


def _used() -> Iterator[Program]:
    for returned, key in zip(RETURNED, ("t", "t", "s", "s", "new"), strict=True):
        for use, other in product(_uses(key), _MEANWHILE[key]):
            yield Program(f"{returned.name}, {use.name} | {other.name}", ((returned, use), (other,)), setup=_tree)
    for use in _uses("foreign"):
        yield _program(_strange(use), _ALTER)


def _met(lookers: tuple[Op, ...], churns: Any, **more: Any) -> Iterator[Program]:
    for looker, writes in product(lookers, churns):
        yield _program(looker, *writes, **more)


_LOST = tuple(op for op in LOOKERS if op.name.startswith(("create", "restore", "drop")))
_FORGETFUL = ("mark", "unmark", "clear")
"""What a crash of the database may forget."""
HANDED: tuple[Program, ...] = tuple(_used())
"""What a transaction returned is used, whether it was applied or not; what another database returned too."""
LOOKING: Mapping[str, Op] = {op.name: op for op in (*LOOKERS, *map(noted, (*LOOKERS, *TOGETHER)))}
MET: Mapping[str, tuple[Program, ...]] = {name: tuple(_met((op,), CHURNS)) for name, op in LOOKING.items()}
"""By the operation, its meetings with two writes in a row."""
CALLERS: tuple[Program, ...] = (
    *_met(_LOST, ((_NEW, _DROP_NEW),), lose=(0,), says="; a lost answer"),
    *[_program(frozen_while(WHOLE), looker) for looker in LOOKERS],
    _program(freeze(), _ALTER, crash=(0,), jumps=(-_DAY,), still=True, says="; a crash, the clock is set back"),
    _program(freeze(), _ALTER, jumps=(-_DAY,), still=True, says="; the clock is set back"),
    Program("gc, alter; a clock that was ahead", ((GC_LATER,), (_ALTER,)), jumps=(2 * _DAY, -2 * _DAY), still=True),
)
"""Explored by the test suite."""


def matters(program: Program) -> bool:
    """Whether both writes do something, and what the first process is told or writes depends on when they come."""
    oracle, writes = _oracle(program), ((1, 0), (1, 1))
    return _effective(oracle) and len({oracle.did((*writes[:n], (0, 0))) for n in range(3)}) > 1


def _effective(oracle: Oracle) -> bool:
    return all(len(oracle.did(order)) > 1 for order in (((1, 0),), ((1, 0), (1, 1))))


def _oracle(program: Program) -> Oracle:
    db = Database(program.make)
    given = program.prepare(db)
    return Oracle(db, db.keep(), START, program.processes, given)


@cache
def _pairs() -> tuple[tuple[Op, Op], ...]:
    pairs = [(a, b) for a, b in permutations(_WRITES, 2) if (a, b) not in CHURNS]
    return tuple([(a, b) for a, b in pairs if _effective(_oracle(_program(LOOKERS[0], a, b)))])


def every_two(op: Op) -> Iterator[Program]:
    """Yield the meetings of an operation with each two writes in a row that matter to it."""
    return filter(matters, _met((op,), _pairs()))
