"""The entities that a transaction has written, in their present state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metastore.port.conditions import LIVE
from metastore.port.records import Child, Node, Record


@dataclass
class Draft:
    """An entity that the transaction has written. Its record's chain is not kept up to date."""

    node: Node
    parent_id: int
    family: str
    key: str
    state: int
    record: Record
    new: bool = False

    def child(self) -> Child:
        """Return the entity as a listing of its parent shows it."""
        record = self.record
        audit = record.created_by, record.created_at, record.modified_by, record.modified_at
        return Child(self.key, self.node, self.state, record.version, record.doc, *audit)


_Name = tuple[int, str, str]


class Drafts(dict[int, Draft]):
    """Drafts by id, with indexes by parent and by name. Code that changes a draft must set it again."""

    def __init__(self) -> None:
        super().__init__()
        self._below: dict[int, dict[int, Draft]] = {}
        self._named: dict[_Name, dict[int, Draft]] = {}
        self._at: dict[int, _Name] = {}

    def __setitem__(self, entity_id: int, draft: Draft) -> None:
        super().__setitem__(entity_id, draft)
        before = self._at.get(entity_id)
        if before is not None:
            del self._below[before[0]][entity_id], self._named[before][entity_id]
        name = self._at[entity_id] = draft.parent_id, draft.family, draft.key
        self._below.setdefault(draft.parent_id, {})[entity_id] = draft
        self._named.setdefault(name, {})[entity_id] = draft

    def is_new(self, entity_id: int) -> bool:
        """Whether the transaction created this entity."""
        draft = self.get(entity_id)
        return draft is not None and draft.new

    def below(self, parent_id: int, state: int = LIVE) -> Iterator[Draft]:
        """Yield the drafts directly below a parent that are in this state."""
        return (d for d in self._below.get(parent_id, {}).values() if d.state == state)

    def at(self, parent_id: int, family: str, key: str, state: int = LIVE, kind: str | None = None) -> Draft | None:
        """Return the draft with this name, and with ``kind`` if it is given; of several, the one written last."""
        named = reversed(self._named.get((parent_id, family, key), {}).values())
        return next((d for d in named if d.state == state and kind in (None, d.node.kind)), None)
