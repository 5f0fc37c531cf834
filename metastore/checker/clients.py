"""Find the clients of a run whose records are missing: they were not checked, so the verdict cannot be clean.

The run's ``run.json`` has the ``names`` of its clients. It may also have ``calls``: how many calls each client made in
the incarnations that ended in an orderly way. Without names, it may have ``clients``, their number. A client whose
process was started again continues as ``<client>.<n>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

__all__ = ["INCARNATION", "missing_records", "records_by_client", "run_facts"]

INCARNATION: Final = r"\.\d+$"
"""The suffix of a client's name that distinguishes its incarnations."""


def run_facts(folder: Path) -> dict[str, Any]:
    """Return the content of ``run.json``; {} if there is none."""
    path = folder / "run.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def records_by_client(operations: DataFrame) -> dict[str, int]:
    """Return how many operations each client has recorded."""
    return {row["client"]: row["count"] for row in operations.groupBy("client").count().collect()}


def missing_records(
    facts: Mapping[str, Any], recorded: Mapping[str, int], operations: DataFrame, events: DataFrame
) -> tuple[str, ...]:
    """Return a sentence for each client whose records are missing, and one sentence if all records are missing.

    ``recorded`` is how many ``operations`` each client has. ``events`` come from the run: they show which clients have
    written, with or without records.
    """
    there = {re.sub(INCARNATION, "", client) for client in recorded}
    names, calls = set(facts.get("names") or ()), dict(facts.get("calls") or {})
    if not names:
        return tuple(_unnamed(len(there), facts.get("clients")))
    wrote = _wrote(events, operations, names)
    fewer = [client for client in calls.keys() - wrote.keys() if recorded.get(client, 0) < calls[client]]
    silent = names - calls.keys() - there - wrote.keys()
    lines = [f"{one} left no records, and the feed has {n:,} event{'s' * (n != 1)} of it" for one, n in wrote.items()]
    lines += [f"{one} made {calls[one]:,} calls, and left {recorded.get(one, 0):,} records" for one in fewer]
    return tuple(sorted([*lines, *[f"{client} left no records" for client in silent]]))


def _unnamed(there: int, clients: object) -> Iterator[str]:
    if isinstance(clients, int) and there < clients:
        yield f"{clients - there:,} of {clients:,} clients left no records"
    elif not there:
        yield "no client left a record"


def _wrote(events: DataFrame, operations: DataFrame, names: Collection[str]) -> dict[str, int]:
    """Return, by client, how many events of the run belong to clients without records."""
    client = F.regexp_extract("principal", "^(.*)/[0-9]+$", 1).alias("client")
    unrecorded = events.select(client).join(operations.select("client").distinct(), "client", "left_anti")
    ours = unrecorded.where(F.regexp_replace("client", INCARNATION, "").isin(*names))
    return {row["client"]: row["count"] for row in ours.groupBy("client").count().collect()}
