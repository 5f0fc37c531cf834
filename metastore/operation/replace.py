"""``create(if_exists="replace")`` of what is there, as a change that every process can apply."""

from __future__ import annotations

from dataclasses import dataclass

from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.registry import KINDS

__all__ = ["Replace"]


@dataclass(frozen=True)
class Replace(EntityChange):
    """Put the document ``doc`` of a new entity of ``kind`` in place of what is there. Not for ``alter``."""

    kind: str
    doc: Doc

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        kind, new = KINDS[self.kind], self.doc
        if kind.replace_doc is not None:  # then it depends on what was there
            fields = {name: decode(new[name]) for name, decode in kind.entity.doc_fields.items()}
            new = kind.replaced(dict(doc), new["comment"], new["properties"], fields)
        doc.clear()
        doc.update(new)
