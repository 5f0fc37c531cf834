"""Turn the rows of :mod:`metastore.backends.sql.reads` into values, for both SQL backends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

from metastore.names import fold
from metastore.port.conditions import ROOT_ID
from metastore.port.intents import PENDING
from metastore.port.records import Child, Known, Lookup, Node, Pending, Record, Resolved, RowPage, Step
from metastore.port.search import Container, Matches, Search
from metastore.port.tickets import NOBODY, Line
from metastore.port.unreadable import DEEPEST, too_deep

T = TypeVar("T")
Row = Sequence[Any]


def node(row: Row, at: int) -> Node:
    """Return the node in the six columns of a row that begin there."""
    return Node(row[at], row[at + 1], row[at + 2], row[at + 3], bool(row[at + 4]), bool(row[at + 5]))


def lookup_parameters(lookup: Lookup) -> dict[str, Any]:
    """Return the parameters of ``ReadSql.resolve`` for one lookup."""
    first = lookup.names[0]
    parameters: dict[str, Any] = {
        "start": lookup.start.id,
        "f1": lookup.families[0],
        "n1": fold(first) if lookup.start.fold else first,
    }
    for n in range(1, len(lookup.names)):
        name = lookup.names[n]
        parameters[f"f{n + 1}"], parameters[f"n{n + 1}"], parameters[f"k{n + 1}"] = lookup.families[n], name, fold(name)
    return parameters


def resolved(row: Row | None, depth: int) -> Resolved:
    """Return the nodes and the record to which one path led."""
    if row is None:
        return Resolved((), None)
    nodes: list[Node] = []
    for at in range(0, 6 * depth, 6):
        if row[at] is None:
            return Resolved(tuple(nodes), None)
        nodes.append(node(row, at))
    chain = tuple(nodes)
    return Resolved(chain, Record(chain, *row[6 * depth :]))


def entities_by_id(rows: Iterable[Row], ids: Sequence[int]) -> list[Known | None]:
    """Return the entity of each id from rows that lead from the root down to it."""
    known: dict[int, Known] = {}
    for wanted, group in groupby(rows, key=itemgetter(0)):
        chain = list(group)
        if len(chain) > DEEPEST:
            raise too_deep(chain[-1][3], wanted)
        record = Record(tuple([node(row, 2) for row in chain]), *chain[-1][8:])
        known[wanted] = Known.of(record, [row[1] for row in chain])
    return [known.get(i) for i in ids]


def chains_of(rows: Iterable[Row], ids: Iterable[int]) -> dict[int, tuple[Node, ...]]:
    """Return the nodes from the root down to each id; each row is a node, with its parent at the end.

    Leave out entities that are not below the root, and those that are below themselves, in a damaged table.
    """
    nodes, parents = dict[int, Node](), dict[int, int]()
    for row in rows:
        nodes[row[0]], parents[row[0]] = node(row, 0), row[6]
    ways = ways_down(ids, parents, circles=True)
    return {i: tuple([nodes[at] for at in down]) for i, down in ways.items()}


def ways_down(ids: Iterable[int], parents: Mapping[int, int], *, circles: bool = False) -> dict[int, tuple[int, ...]]:
    """Return the ids from below the root down to each id; ids that are not below the root are left out.

    Raises UnreadableRow for an id that is below itself, in a damaged table; with ``circles`` it is left out.
    """
    ways: dict[int, tuple[int, ...]] = {ROOT_ID: ()}
    for wanted in ids:
        below, at = list[int](), wanted
        while at not in ways and at in parents:
            below.append(at)
            at = parents[at]
            if len(below) > DEEPEST:
                if circles:
                    break
                raise too_deep("entity", wanted)
        if at in ways:
            for i in reversed(below):
                ways[i] = (*ways[at], i)
                at = i
    return {i: ways[i] for i in ids if ways.get(i)}


def find_parameters(search: Search) -> dict[str, Any]:
    """Return the parameters of a search, except its pattern."""
    shared = {"scope": search.scope, "kind": search.kind, "parent": search.parent, "page_size": search.limit}
    shared |= {"fragment": search.fragment, "most": search.most}
    first, second = search.after
    if search.by_name:
        return {**shared, "after_name": first, "after_id": second, "before": search.before}
    if search.family:
        return {**shared, "family": search.family, "after_key": second, "before": search.before}
    return {**shared, "after_family": first, "after_key": second}


def found(rows: Sequence[Row], search: Search) -> Matches:
    """Return the matches of a search. Each row has the progress of the scan, and a match with the nodes above it."""
    total, *last = rows[0][:3]
    fit = [row for row in rows if row[4] is not None]
    records = [Record(_nodes(row[6]), *row[7:]) for row in fit]
    scanned = [Container(i, kind, bool(folds)) for i, kind, folds in json.loads(rows[0][3] or "[]")]
    ends = list(fit[-1][4:6]) if len(fit) == search.most else last  # after a full page there may be more
    more = total == search.limit or (len(fit) == search.most and ends != last)
    return Matches(records, scanned, tuple(ends) if more else None, len(records))


def _nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes from the root down; the text has them in any order, each with its height."""
    up = sorted(json.loads(text), key=itemgetter(0), reverse=True)
    return tuple([Node(i, kind, name, scope, bool(used), bool(folds)) for _, i, kind, name, scope, used, folds in up])


def child(row: Row) -> Child:
    """Return a child from (key, node, state, entity)."""
    return Child(row[0], node(row, 1), *row[7:])


def page(rows: Sequence[Row], guards: int, decode: Any) -> RowPage[Any]:
    """Return a page. Each of the rows begins with the number of guards that held."""
    if not rows or rows[0][0] != guards:
        return RowPage(False, [])
    return RowPage(True, [decode(row[1:]) for row in rows if row[1] is not None])


def step(row: Row) -> Step:
    """Return a row of the operation table."""
    if type(row[0]) is UUID:  # only PostgreSQL returns a UUID, and it has booleans too
        return Step._make(row)
    try:
        operation_id = UUID(row[0])
    except ValueError:  # the row is damaged; the reader of its changes names it
        operation_id, row = UUID(int=0), (*row[:12], "the operation id is damaged", *row[13:])
    in_use = None if row[14] is None else bool(row[14])
    return Step(*(operation_id, *row[1:14], in_use, *row[15:]))


def steps_of_json(text: str) -> list[Step]:
    """Return rows of the operation table from a JSON array of objects."""
    return [step([one.get(name) for name in Step._fields]) for one in json.loads(text)]


def pending(
    steps: Sequence[Step],
    chain: Iterable[Row],
    entity_id: int,
    operation_id: UUID | None,
    now: int,
    queued: bool,
    line: Line = NOBODY,
) -> Pending:
    """Return an entity, whose rows lead from the root down to it, with its intents among ``steps``."""
    own = next((s for s in steps if s.operation_id == operation_id), None)
    intents = [s for s in steps if s.action == PENDING and s.entity_id == entity_id]
    return Pending(entities_by_id(chain, [entity_id])[0], own, intents, now, queued, line)
