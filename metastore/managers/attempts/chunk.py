"""The attempt that creates a chunk of many entities below one parent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from metastore.errors import EntityAlreadyExists
from metastore.kinds.kind import Kind
from metastore.managers.attempts.create import IfExists, Wish, new_entity, of_existing
from metastore.managers.target import check_standing, root_or_last, standing
from metastore.names import format_path
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.request import Proposal, Results, View
from metastore.port.conditions import Expect, Read
from metastore.port.records import Lookup, Node
from metastore.port.writes import Insert, Update

_CHUNK = 1000
_CHUNK_BYTES = 4 << 20


class NamedWish(NamedTuple):
    """An entity to create below the parent of its chunk."""

    name: str
    wish: Wish
    text: str
    """Its document."""
    id: int | None = None
    """Its id, if the document has secrets bound to the id; None: the database draws one."""


def create_chunk(
    view: View,
    wishes: Sequence[NamedWish],
    kind: Kind,
    parents_of: Callable[[View], tuple[Node, ...]],
    if_exists: IfExists,
) -> Proposal[int] | int:
    """Propose all of ``wishes`` below one parent; the result counts the entities that it wrote."""
    parents = parents_of(view)
    check_in_use(parents)
    parent = root_or_last(parents)
    upper = tuple(n.name for n in parents)
    inserts = [new_entity(kind, parent, (*upper, w.name), w.text, w.wish.folds(parent), w.id) for w in wishes]
    if if_exists != "return":
        wishes, inserts = _distinct(wishes, inserts, if_exists)
    if view.guessed or if_exists == "return":
        return Proposal(guards_of(parents), tuple(inserts), _count, skip_existing=if_exists == "return")
    lookups = [Lookup((kind.family,), (name,), parent) for name, *_ in wishes]
    guards = {guard.id: guard for guard in guards_of(parents)}
    writes: list[Insert | Update] = []
    equal_rows: list[Read] = []  # not written; the commit checks that these rows are still equal
    with standing(view, parents):
        for resolved, insert, (name, wish, *_) in zip(view.backend.resolve(lookups), inserts, wishes, strict=True):
            if resolved.record is None:
                if resolved.nodes:
                    raise EntityAlreadyExists(format_path((*upper, name)))
                writes.append(insert)
                continue
            there = resolved.record._replace(chain=(*parents, *resolved.record.chain))
            decided = of_existing(wish, wish.document(), there, (*upper, name), if_exists, None)
            if isinstance(decided, Proposal):
                # guard a container that is replaced, too: a freeze of the container then waits for this commit
                guards |= {guard.id: guard for guard in decided.guards}
                writes.extend(w for w in decided.writes if isinstance(w, Update))
            else:
                equal_rows.append(Expect(there.chain[-1].id, there.version))
    if not writes:
        check_standing(view, parents)
        return 0
    exclusive = any(guard.exclusive for guard in guards.values())
    return Proposal(tuple(guards.values()), tuple(writes), _count, exclusive=exclusive, reads=tuple(equal_rows))


def _distinct(
    wishes: Sequence[NamedWish], inserts: list[Insert], if_exists: IfExists
) -> tuple[Sequence[NamedWish], list[Insert]]:
    """Return the wishes with the last row of each name. Raises EntityAlreadyExists for a repeated name with "error"."""
    last = {insert.key: n for n, insert in enumerate(inserts)}
    for n, insert in enumerate(inserts):
        if if_exists == "error" and last[insert.key] != n:
            raise EntityAlreadyExists(insert.event.path_after or insert.name)
    return [wishes[n] for n in last.values()], [inserts[n] for n in last.values()]


def _count(results: Results) -> int:
    return sum(r is not None for r in results)


def chunks(
    rows: Iterable[Mapping[str, Any]], wish: Callable[[Mapping[str, Any]], NamedWish]
) -> Iterator[list[NamedWish]]:
    """Yield the wishes in chunks that are bounded in number and in size."""
    chunk: list[NamedWish] = []
    size = 0
    for row in rows:
        chunk.append(wish(row))
        size += len(chunk[-1].text)
        if len(chunk) == _CHUNK or size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
