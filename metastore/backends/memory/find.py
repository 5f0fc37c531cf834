"""The search of the memory model, which looks at all entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metastore.backends.memory.tables import Stand, Tables
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.records import Known, Record
from metastore.port.search import Container, Matches, Search, Sizes, Span, matches


def find(tables: Tables, search: Search, known_of: Callable[[int], Known | None]) -> Matches:
    """Return one page of the matches."""
    page = [pair for pair in _scanned(tables, search) if pair[0] > search.after][: search.limit]
    fit = [(at, record) for at, stand in page if (record := _fitting(stand, search, known_of)) is not None]
    last = page[-1][0] if len(page) == search.limit else None
    if len(fit) >= search.most and fit[search.most - 1][0] != page[-1][0]:
        last = fit[search.most - 1][0]
    scanned = [] if search.by_name else [Container(stand.id, stand.kind, stand.fold) for _, stand in page]
    records = [record for _, record in fit[: search.most]]
    return Matches(records, scanned, last, len(records))


def sizes(tables: Tables, span: Span, most: Sizes) -> Sizes:
    """Return how many rows each way of a search would read."""
    live = [s for s in tables.stands.values() if s.state == LIVE and s.id != ROOT_ID]
    waiting, below = [span.scope], 0
    while waiting:
        above = waiting.pop()
        there = [s.id for s in live if s.parent_id == above and (span.families is None or s.family in span.families)]
        waiting, below = waiting + there, below + len(there)
    names = sum(span.begin <= s.name < span.before for s in live)
    return Sizes(min(names, most.names), min(below, most.below))


def _scanned(tables: Tables, search: Search) -> list[tuple[tuple[Any, ...], Stand]]:
    live = [s for s in tables.stands.values() if s.state == LIVE and s.id != ROOT_ID]
    if search.by_name:
        return sorted(((s.name, s.id), s) for s in live if s.name < search.before)
    below = [s for s in live if s.parent_id in (search.parents or (search.parent,))]
    if search.family:
        below = [s for s in below if s.family == search.family and s.key < search.before]
    return sorted((((s.family, s.key), s) for s in below), key=lambda pair: pair[0])


def _fitting(stand: Stand, search: Search, known_of: Callable[[int], Known | None]) -> Record | None:
    known = known_of(stand.id)
    if known is None or not known.live or search.kind not in ("", stand.kind):
        return None
    above = [ROOT_ID, *(node.id for node in known.record.chain[:-1])]
    fits = matches(search.glob, stand.name) or (known.record.folded and matches(search.folded, stand.key))
    fits = fits and search.fragment in known.record.doc
    return known.record if fits and search.parent in (-1, stand.parent_id) and search.scope in above else None
