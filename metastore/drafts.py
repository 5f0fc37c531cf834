"""The entities that a transaction has written, as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metastore.commit import LIVE
from metastore.entity import Node, Record

__all__ = ["Draft", "Drafts"]


@dataclass
class Draft:
    """One entity. The record's chain is not kept up to date."""

    node: Node
    parent_id: int
    family: str
    key: str
    state: int
    record: Record
    new: bool = False


class Drafts(dict[int, Draft]):
    """Drafts by id."""

    def is_new(self, entity_id: int) -> bool:
        """Whether the transaction itself has created this entity."""
        draft = self.get(entity_id)
        return draft is not None and draft.new

    def below(self, parent_id: int, state: int = LIVE) -> Iterator[Draft]:
        """Yield the drafts that stand below a parent, the one written first last."""
        return (d for d in reversed(self.values()) if d.parent_id == parent_id and d.state == state)

    def at(self, parent_id: int, family: str, key: str, state: int = LIVE, kind: str | None = None) -> Draft | None:
        """Return the draft of this name, and kind if one is given; of several dropped ones, the one written last."""
        named = (d for d in self.below(parent_id, state) if d.key == key and d.family == family)
        return next((d for d in named if kind in (None, d.node.kind)), None)
