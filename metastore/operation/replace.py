"""``create(if_exists="replace")`` of an existing entity, as a change that every process can apply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from metastore.errors import DropPending
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.registry import KINDS
from metastore.kinds.secret import kept_in
from metastore.names import format_path, parse_path


@contextmanager
def below(path: tuple[str, ...]) -> Iterator[None]:
    """Add the path of the entity to a DropPending about a part of it, because a kind knows no paths."""
    try:
        yield
    except DropPending as error:
        raise DropPending(error.operation, path=format_path((*path, *parse_path(error.path or "")))) from None


@dataclass(frozen=True)
class Replace(EntityChange):
    """Replace the document of an existing entity with ``doc``, the document of a new entity of ``kind``.

    Only ``create`` uses this change, never ``alter``.
    """

    kind: str
    doc: Doc

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        old = doc["properties"]
        with below(path):
            new = KINDS[self.kind].replaced_by(dict(doc), self.doc)
        new["properties"] = kept_in(new["properties"], old)
        doc.clear()
        doc.update(new)
