"""The record of a run's database: the feed and the findings of ``verify``. The judge needs nothing else from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import metastore as ms
from metastore.checker.documents import Documents
from metastore.checker.event import Event

__all__ = ["keep", "kept_events"]

_STORED = tuple(name for name in Event._fields if name not in ("asked", "wrong"))


def keep(url: str, folder: Path) -> None:
    """Write ``feed.jsonl``, ``positions.json`` and ``verify.json`` to a record folder."""
    documents = Documents()
    with ms.open(url) as store, (folder / "feed.jsonl").open("w") as file:
        (folder / "verify.json").write_text(json.dumps([str(violation) for violation in store.verify()]))
        (folder / "positions.json").write_text(json.dumps([change.position for change in store.changes()]))
        with store._session.backend.snapshot() as snapshot:
            for row in snapshot.rows("operation", [*_STORED, "doc", "changes"], ["seq"]):
                event: dict[str, Any] = dict(zip((*_STORED, "doc", "changes"), row, strict=True))
                if event["seq"] is not None and event["kind"] != "lease" and event["entity_id"] is not None:
                    file.write(json.dumps(_line(event, documents)) + "\n")


def _line(event: dict[str, Any], documents: Documents) -> dict[str, Any]:
    doc, changes = event.pop("doc"), event.pop("changes")
    stored = None if doc is None else json.loads(doc)
    shown = stored and {"comment": stored.get("comment"), "properties": stored.get("properties")}
    wrong = documents.wrong(event, doc, changes)
    return {**event, "operation_id": str(event["operation_id"]), "wrong": wrong, "document": shown}


def kept_events(folder: Path) -> list[tuple[Event, dict[str, Any] | None]]:
    """Return the events of a record folder by position, each with the document that it made."""
    events = []
    with (folder / "feed.jsonl").open() as file:
        for line in file:
            row = json.loads(line)
            document = row.pop("document")
            events.append((Event(**row), document))
    return events
