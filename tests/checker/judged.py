"""What the checker says of a real store and its clients' logs, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import metastore as ms
from metastore.checker.event import Event
from metastore.checker.finding import Finding
from metastore.checker.gather import _events
from metastore.checker.operation import ClientOperation
from metastore.checker.sweep import Sweep
from metastore.checker.tree import Placed, Tree
from tests.loadtest.alone import recorded

__all__ = ["judged", "swept"]


def judged(store: ms.Store, folder: Path) -> list[Finding]:
    """Do what gather and check do, in memory. All calls in the logs have returned."""
    operations = list(recorded(folder))
    asked = {one.principal: one.action for one in operations if one.action in ("drop", "restore")}
    with store._session.backend.snapshot() as snapshot:
        events = [event | {"asked": asked.get(event["principal"])} for event in map(dict, _events(snapshot))]
    rows = [{name: getattr(one, name, None) for name in ClientOperation._fields} for one in operations]
    return swept(events, rows)


def swept(events: Iterable[dict[str, Any]], operations: Iterable[dict[str, Any]], since: int = 0) -> list[Finding]:
    """Replay events, then take the operations in the order of their calls."""
    tree, found = Tree(), list[Finding]()
    before: list[Placed] = []
    wrote: dict[str, list[Placed]] = {}
    for event in sorted(events, key=lambda event: int(event["seq"])):
        placed, problems = tree.apply(Event._make([event.get(name) for name in Event._fields]))
        found += problems
        wrote.setdefault(placed.principal, []).append(placed) if placed.principal else before.append(placed)
    sweep = Sweep(since)
    sweep.place(before)
    for row in sorted(operations, key=lambda row: int(row["start"])):
        mine = wrote.get(f"{row['client']}/{row['number']}", ())
        told: dict[str, Any] = {name: row.get(name) for name in ClientOperation._fields}
        told |= {"reads": tuple(row["reads"]), "conflicts": tuple(row["conflicts"]), "events": tuple(mine)}
        found += sweep.take(ClientOperation(**told))
    return [*found, *sweep.close()]
