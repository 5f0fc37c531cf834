"""Write many relations to one entity in chunks, one commit each. Existing relations stay as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import Any, Final

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.relation import Relation, relation_doc
from metastore.managers.relations.ends import WantedRelation, find_ends
from metastore.managers.relations.writes import Judge, column_id, event_of
from metastore.operation.guards import both, check_in_use
from metastore.operation.perform import perform
from metastore.operation.raising import raising
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import ManagerSession
from metastore.port.records import Record
from metastore.port.relations import NO_VALUE, ONLY
from metastore.port.writes import Relate

_CHUNK: Final = 1000
_WRITERS: Final = 2
"""How many chunks are written at once: one is read and prepared while the database applies another."""


def attach_many(
    session: ManagerSession,
    relation: Relation,
    rows: Iterable[Mapping[str, Any]],
    wanted: Callable[[Mapping[str, Any]], WantedRelation],
    judge: Judge,
    call: Call,
) -> int:
    """Write a relation for each row; return how many are new."""
    if relation.exclusive:
        raise InvalidArgument(f"the relation {relation.name} is exclusive; attach the targets one by one")
    chunks = _chunks(rows, wanted, at_least=0 if call.lease is None else 1)
    if session.in_transaction:
        return sum(_write(session, relation, chunk, judge, call) for chunk in chunks)
    # prepare the next chunk while others are written; the first error ends the call
    with ThreadPoolExecutor(_WRITERS, "metastore-attach-many") as writers:
        written, running = 0, deque[Future[int]]()
        for chunk in chunks:
            if len(running) == _WRITERS:
                written += running.popleft().result()
            running.append(writers.submit(copy_context().run, _write, session, relation, chunk, judge, call))
        return written + sum(one.result() for one in running)


def _chunks(
    rows: Iterable[Mapping[str, Any]], wanted: Callable[[Mapping[str, Any]], WantedRelation], at_least: int
) -> Iterator[list[WantedRelation]]:
    """Yield at least ``at_least`` chunks of wanted relations: an empty chunk lets the call check its lease."""
    if not issubclass(type(rows), Iterable):
        raise InvalidArgument(f"rows are mappings with a target, not {shown(rows)}")
    left = iter(rows)
    while (chunk := list(islice(left, _CHUNK))) or at_least > 0:
        at_least -= 1
        for row in chunk:
            if not isinstance(row, Mapping) or "target" not in row or row.keys() - _KEYS:
                raise InvalidArgument(f"each row is a mapping with target, kind, column and value, not {shown(row)}")
        yield [wanted(row) for row in chunk]


_KEYS: Final = frozenset({"target", "kind", "column", "value"})


def _write(session: ManagerSession, relation: Relation, chunk: list[WantedRelation], judge: Judge, call: Call) -> int:
    def attempt(view: View) -> Proposal[int] | int:
        if not chunk:
            return 0
        fresh = View(view.backend, False)
        (other,) = find_ends(fresh, chunk[0].other)
        targets = find_ends(fresh, *[one.target for one in chunk])  # paths of one kind need one statement
        relation.check_end(other.chain[-1].kind, far=True)
        check_in_use(other.chain[:-1])
        path = other.path
        docs: dict[tuple[int, str], str] = {}
        made = [_one(relation, *pair, other, path, judge, docs) for pair in zip(chunk, targets, strict=True)]
        writes = tuple({(w.from_id, w.column_id, w.value): w for w in made}.values())
        if raising(writes):  # existing relations take no right away
            rows = view.backend.relations(relation.name, [(w.from_id, w.slot) for w in writes])
            there = {row.key for row in rows}
            writes = tuple([write for write in writes if write.key not in there])
            if not writes:
                return 0
        return Proposal(
            both(other.chain, *[target.chain for target in targets]),
            writes,
            lambda results: sum(r is not None for r in results),
            skip_existing=True,
        )

    request = Request[int](
        verb="attach_many",
        what=lambda: f"attach {len(chunk)} of {relation.name}",
        attempt=attempt,
        replay=len,
        arguments=tuple,
    )
    return perform(session, request, call)


def _one(
    relation: Relation,
    wanted: WantedRelation,
    target: Record,
    other: Record,
    path: str,
    judge: Judge,
    docs: dict[tuple[int, str], str],
) -> Relate:
    """Return the write of one relation; ``docs`` caches the documents made so far, by column and value."""
    node, far = target.chain[-1], other.chain[-1]
    if target.chain[0].id != other.chain[0].id:
        raise InvalidArgument(f"{target.path} and {path} are in different metalakes; both ends must be in one")
    relation.check_end(node.kind, far=False)
    check_in_use(target.chain[:-1])
    column, value = column_id(target, wanted.column), NO_VALUE if wanted.value is None else wanted.value
    judge(target, other, value, column)
    slot = ONLY if relation.exclusive else far.id
    event = event_of(relation, "create", target.path, path)
    doc = docs.get((column, value))
    if doc is None:
        doc = docs[column, value] = relation_doc(far.id, column, value)
    return Relate(node.id, relation.name, slot, column, value, far.id, 0, doc, event)
