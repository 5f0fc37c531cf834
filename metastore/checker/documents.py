"""Check the documents of a feed: each must be the result of its event's changes on the previous document.

So this finds an alter that started from an uncommitted document, and overwrote the committed one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metastore.errors import MetastoreError
from metastore.kinds.change import UnknownChange, decode
from metastore.kinds.kind import Kind
from metastore.kinds.registry import KINDS
from metastore.names import parse_path
from metastore.operation.merge import altered

__all__ = ["Documents"]


class Documents:
    """The newest document of each entity in the part of the feed that was read."""

    def __init__(self) -> None:
        self._last: dict[int, str] = {}

    def wrong(self, event: Mapping[str, Any], doc: str | None, changes: str | None) -> str | None:
        """Take the next event; return how its document differs from the result of its changes.

        Return None if it does not differ, or if it cannot be compared.
        """
        if event["owner_id"] is not None:
            return None
        entity_id = event["entity_id"]
        before = self._last.get(entity_id)
        if event["action"] == "purge":
            self._last.pop(entity_id, None)
        elif doc is not None:
            self._last[entity_id] = doc
        if event["action"] != "alter" or before is None or doc is None or event["kind"] not in KINDS:
            return None
        return _differs(KINDS[event["kind"]], event["path_after"], before, doc, changes or "[]")


def _differs(kind: Kind, path: str, before: str, doc: str, changes: str) -> str | None:
    asked = decode(json.loads(changes))
    if not asked or any(isinstance(c, UnknownChange) or not isinstance(c, kind.changes) for c in asked):
        return None  # a replacement, or a newer program's change: nothing to compare with
    try:
        expected = json.loads(altered(before, parse_path(path), asked) or before)
    except MetastoreError as error:
        return f"its changes do not fit the document before: {error}"
    stored = json.loads(doc)
    if expected == stored:
        return None
    fields = sorted(key for key in {*expected, *stored} if expected.get(key) != stored.get(key))
    return f"its changes do not make this document of the one before: {', '.join(fields)} differ"
