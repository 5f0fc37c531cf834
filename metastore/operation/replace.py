"""``create(if_exists="replace")`` of what is there, as a change that every process can apply."""

from __future__ import annotations

from dataclasses import dataclass

from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.registry import KINDS
from metastore.kinds.secret import kept_in

__all__ = ["Replace"]


@dataclass(frozen=True)
class Replace(EntityChange):
    """Put the document ``doc`` of a new entity of ``kind`` in place of what is there. Not for ``alter``."""

    kind: str
    doc: Doc

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        old = doc["properties"]
        new = KINDS[self.kind].replaced_by(dict(doc), self.doc)
        new["properties"] = kept_in(new["properties"], old)
        doc.clear()
        doc.update(new)
