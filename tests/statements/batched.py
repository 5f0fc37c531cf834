"""Operations of one process that travel together, beside renames of entities above them, on PostgreSQL.

A process knows the entity at ``lake.cat.s`` before another process renames it, and looks at ``lake.cat.r``, its path
afterwards. So two requests with different knowledge meet in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import metastore as ms
from metastore.combine.combiner import Combiner
from metastore.combine.lane import Lane
from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.operation.guards import lookup
from metastore.store import Store
from tests.interleaving.process import Hand
from tests.interleaving.tasks import Tasks
from tests.statements.operations import Operation

__all__ = ["BATCHED", "together", "twins"]

CAT, S, R, O = "lake.cat", "lake.cat.s", "lake.cat.r", "lake.cat.o"  # noqa: E741


def twins(store: Store) -> Mapping[str, Any]:
    """Make two schemas with tables of the same names; return what is in hand."""
    store.metalakes.create("lake")
    store.catalogs.create(CAT, type="relational")
    given: dict[str, Any] = {"s": store.schemas.create(S), "t": store.tables.create(f"{S}.t")}
    store.tables.create(f"{S}.only")
    given["o"] = store.schemas.create(O)
    store.tables.create(f"{O}.t", comment="twin")
    return given


def together(tasks: Tasks, hand: Hand, bodies: Sequence[Callable[[], None]]) -> None:
    """Run operations that wait until all of them do. Where the entities in hand stood is known from before."""
    session = hand.store._session
    if not isinstance(session.combiner, Combiner):  # SQLite has no batches
        for body in bodies:
            body()
        return
    for entity in hand.given.values():
        if isinstance(entity, Entity):
            session.recent.note_parents(lookup(kind_named(entity.kind), entity.names), entity.record.chain)
    lanes: list[Lane[Any, Any]] = [session.combiner.finds._lane, session.combiner.writes._lane]
    terms = [lane.lead() for lane in lanes]

    def begin() -> None:
        for lane, term in zip(lanes, terms, strict=True):
            assert term is not None
            lane.leave(term)

    tasks.run(bodies, begin)


def _call(name: str, run: Callable[[Hand], object]) -> Operation:
    return Operation(name, "batch", run)


def _at_once(*operations: Operation) -> tuple[Operation, ...]:
    return (*[replace(one, with_next=True) for one in operations[:-1]], operations[-1])


def _load(path: str) -> Operation:
    return _call(f"load {path}", lambda h: h.store.tables.load(path))


def _exists(path: str) -> Operation:
    return _call(f"exists {path}", lambda h: h.store.tables.exists(path))


def _alter(path: str, key: str) -> Operation:
    return _call(f"alter {path}", lambda h: h.store.tables.alter(path, ms.SetProperty(key, "1")))


def _drop(path: str) -> Operation:
    return _call(f"drop {path}", lambda h: h.store.tables.drop(path))


def _create(path: str) -> Operation:
    return _call(f"create {path}", lambda h: h.store.tables.create(path))


def _rename(path: str, to: str) -> Operation:
    return _call(f"rename {path}", lambda h: h.store.tables.rename(path, to))


_IN_HAND = _call("alter in hand", lambda h: h.store.tables.alter(h.given["t"], ms.SetProperty("hand", "1")))
_S_TO_R = _call("rename s to r", lambda h: bool(h.store.schemas.rename(h.given["s"], "r")))
_O_TO_S = _call("rename o to s", lambda h: bool(h.store.schemas.rename(h.given["o"], "s")))
_RENAME_CAT = _call("rename the catalog", lambda h: bool(h.store.catalogs.rename(CAT, "dog")))
_DROP_S = _call("drop s", lambda h: h.store.schemas.drop(S, cascade=True))
_S_AGAIN = _call("create s again", lambda h: bool(h.store.schemas.create(S)))
_SWAP = (_S_TO_R, _O_TO_S)
_LOOK = _exists(f"{R}.t")

BATCHED: Mapping[str, tuple[tuple[Operation, ...], ...]] = {
    "reads by an old and a new path | swap": (
        (_LOOK, *_at_once(_load(f"{S}.t"), _load(f"{R}.t"))),
        _SWAP,
    ),
    "reads by a new and an old path | rename of the catalog": (
        (_exists("lake.dog.s.t"), *_at_once(_exists("lake.dog.s.only"), _exists(f"{S}.only"))),
        (_RENAME_CAT,),
    ),
    "reads | drop of the schema, and another one": (
        _at_once(_load(f"{S}.t"), _exists(f"{S}.only"), _exists(f"{O}.t")),
        (_DROP_S, _S_AGAIN),
    ),
    "alters by a new and an old path | rename": (
        (_LOOK, *_at_once(_alter(f"{R}.t", "r"), _alter(f"{S}.t", "s"))),
        (_S_TO_R,),
    ),
    "alters by an old path and in hand | rename": (_at_once(_alter(f"{S}.t", "s"), _IN_HAND), (_S_TO_R,)),
    "drops by an old and a new path | rename": ((_LOOK, *_at_once(_drop(f"{S}.only"), _drop(f"{R}.only"))), (_S_TO_R,)),
    "creates by an old and a new path | rename": ((_LOOK, *_at_once(_create(f"{S}.n"), _create(f"{R}.n"))), (_S_TO_R,)),
    "an alter and a rename | an alter": (
        _at_once(_alter(f"{S}.t", "a"), _rename(f"{S}.t", "u")),
        (_alter(f"{S}.t", "b"),),
    ),
}
"""By name, what each process does."""
