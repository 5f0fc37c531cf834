"""Record folders made by hand, and one that looks like a real run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore.checker.records import Lost, Operation, Outcome

_LOST = pa.struct([("cause", pa.string()), ("entity_id", pa.int64()), ("expected", pa.int64())])
_SEEN = pa.struct([("path", pa.string()), ("there", pa.bool_()), ("entity_id", pa.int64()), ("version", pa.int64())])
_OPERATIONS = pa.schema(
    [("client", pa.string()), ("number", pa.int64())]
    + [(name, pa.string()) for name in ("action", "kind", "path", "path_to", "clock")]
    + [("start", pa.int64()), ("at", pa.float64()), ("end", pa.int64()), ("operation_id", pa.string())]
    + [("attempts", pa.int32()), ("conflicts", pa.list_(_LOST)), ("outcome", pa.string()), ("error", pa.string())]
    + [(name, pa.int64()) for name in ("entity_id", "version_before", "version_after")]
    + [("helped", pa.bool_()), ("reads", pa.list_(_SEEN))]
    + [("values", pa.map_(pa.string(), pa.float64())), ("position", pa.int64())]
)
_EVENTS = pa.schema(
    [(name, pa.int64()) for name in ("seq", "entity_id", "owner_id", "version", "time")]
    + [(name, pa.string()) for name in ("operation_id", "principal", "kind", "action", "path_before", "path_after")]
)
BEGAN = 1_700_000_000.0


def operation(
    client: str = "1",
    number: int = 1,
    *,
    action: str = "alter",
    outcome: Outcome = "applied",
    start: float = 0.0,
    ms: float | None = 1.0,
    attempts: int = 1,
    causes: Sequence[str] = (),
    on: int | None = 7,
    path: str | None = "lake.c.s.t",
    to: str | None = None,
    helped: bool | None = None,
) -> Operation:
    """Make one operation, begun ``start`` seconds into the run; ``causes`` are those of the attempts it lost."""
    nanoseconds = round(start * 1e9)
    return Operation(
        client=client,
        number=number,
        action=action,
        kind="table",
        path=path,
        path_to=to,
        clock="c",
        start=nanoseconds,
        at=BEGAN + start,
        end=None if ms is None else nanoseconds + round(ms * 1e6),
        attempts=attempts,
        conflicts=[Lost(cause, on, 3) for cause in causes],
        outcome=outcome,
        entity_id=on,
        helped=helped,
    )


def write_run(
    folder: Path,
    operations: Iterable[Operation],
    facts: Mapping[str, Any] | None = None,
    events: Sequence[tuple[int, int, str | None, str | None]] = (),
    principals: Mapping[int, str] = MappingProxyType({}),
) -> Path:
    """Write a record folder; ``events`` are (seq, entity id, path before, path after), ``principals`` are by seq."""
    for name in ("operations", "feed", "tables"):
        (folder / name).mkdir(parents=True)
    rows = []
    for made in operations:
        row = asdict(made)
        row["conflicts"] = [lost._asdict() for lost in made.conflicts]
        row["reads"] = [seen._asdict() for seen in made.reads]
        rows.append({**row, "values": list(made.values.items()), "position": None})
    pq.write_table(pa.Table.from_pylist(rows, _OPERATIONS), folder / "operations" / "part-0.parquet")
    feed = [
        {"seq": seq, "operation_id": "o", "kind": "table", "action": "alter", "entity_id": entity_id, "version": seq}
        | {"path_before": before, "path_after": after, "time": 0, "principal": principals.get(seq)}
        for seq, entity_id, before, after in events
    ]
    pq.write_table(pa.Table.from_pylist(feed, _EVENTS), folder / "feed" / "part-0.parquet")
    if facts is not None:
        (folder / "run.json").write_text(json.dumps(facts))
    return folder


def lively(clients: int, seconds: float, names: Sequence[str] = ("lake.main.sales.orders",)) -> list[Operation]:
    """Make what a run under contention might leave: with more clients more attempts lose, and one client is slow."""
    random, made = Random(clients), []
    for client in range(clients):
        at, number = random.random() * 0.01, 0
        slowness = 1.6 if client == clients // 2 else 1.0
        while at < seconds:
            number += 1
            entity = min(int(random.expovariate(0.6)), len(names) - 1)
            one = _lively_one(random, f"c{client}", number, at, names[entity], 100 + entity, clients, slowness)
            made.append(one)
            assert one.end is not None
            at += (one.end - one.start) / 1e9 + random.random() * 0.004 * slowness
    return made


def _lively_one(
    random: Random, client: str, number: int, start: float, path: str, on: int, clients: int, slowness: float
) -> Operation:
    action = random.choices(("load", "alter", "create", "rename", "drop"), (30, 50, 10, 5, 5))[0]
    if action == "load":
        ms = random.lognormvariate(-0.5, 0.4)
        return operation(
            client, number, action="load", outcome="read", attempts=0, ms=ms, start=start, path=path, on=on
        )
    lost = 0
    while lost < 9 and random.random() < 1 - 1 / (1 + 0.12 * (clients - 1)):
        lost += 1
    rare: Sequence[Outcome] = ("failed", "nothing", "unknown", "conflicted")
    return operation(
        client,
        number,
        action=action,
        outcome="applied" if random.random() < 0.99 else random.choice(rare),
        start=start,
        ms=random.lognormvariate(0.9, 0.5) * (1 + lost) * slowness,
        attempts=1 + lost,
        causes=random.choices(("self", "pending", "marked", "ancestor"), (6, 2, 1, 1), k=lost),
        on=on,
        path=path,
        to=f"{path}_new" if action == "rename" else None,
        helped=lost > 0 and random.random() < 0.6,
    )
