"""How the memory model finds entities: it looks at all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from metastore.backends.memory.tables import Stand, Tables
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.records import Known, Record
from metastore.port.search import Matches, Search

__all__ = ["find"]


def find(tables: Tables, search: Search, known_of: Callable[[int], Known | None]) -> Matches:
    """Return one page of what is looked for."""
    page = [pair for pair in _scanned(tables, search) if pair[0] > search.after][: search.limit]
    matching = [record for _, stand in page if (record := _fitting(stand, search, known_of)) is not None]
    last = page[-1][0] if len(page) == search.limit else None
    return Matches(matching, [(stand.id, stand.kind) for _, stand in page], last)


def _scanned(tables: Tables, search: Search) -> list[tuple[tuple[Any, ...], Stand]]:
    live = [s for s in tables.stands.values() if s.state == LIVE and s.id != ROOT_ID]
    if search.by_name:
        return sorted(((s.name, s.id), s) for s in live if s.name < search.before)
    return sorted(((s.family, s.key), s) for s in live if s.parent_id == search.parent)


def _fitting(stand: Stand, search: Search, known_of: Callable[[int], Known | None]) -> Record | None:
    known = known_of(stand.id)
    if known is None or not known.live or search.kind not in ("", stand.kind):
        return None
    above = [ROOT_ID, *(node.id for node in known.record.chain[:-1])]
    fits = _like(search.glob, stand.name) or (_folds(known.record) and _like(search.folded, stand.key))
    return known.record if fits and search.parent in (-1, stand.parent_id) and search.scope in above else None


def _folds(record: Record) -> bool:
    return len(record.chain) > 1 and record.chain[-2].fold


def _like(glob: str, text: str) -> bool:
    pattern = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, text, re.DOTALL) is not None
