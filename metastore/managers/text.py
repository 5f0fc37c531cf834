"""Look for a text in what an entity says of itself: its name, its comment, its columns, and the tags that it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.relation import TAG_ON
from metastore.managers.relations.ends import end_of
from metastore.managers.relations.reads import live_relating
from metastore.names import clean_text
from metastore.operation.session import ManagerSession

__all__ = ["Text", "clean", "text_of"]

_LONGEST: Final = 1000


@dataclass(frozen=True)
class Text:
    """A text to look for, without case, and the entities whose tags have it in their name."""

    text: str
    tagged: frozenset[int]

    def is_in(self, entity: Entity) -> bool:
        """Whether the name or comment of an entity or a column, or the name of a tag, contains the text."""
        return entity.id in self.tagged or any(self.text in one.casefold() for one in _texts(entity))


def clean(text: object) -> str | None:
    """Return a text to look for, without case; None: all fits. Raises InvalidArgument."""
    if text is None:
        return None
    folded = clean_text(text, "the text to find").casefold()
    if len(folded) > _LONGEST:
        raise InvalidArgument(f"the text to find has more than {_LONGEST} characters; look for a part of it")
    return folded or None


def text_of(session: ManagerSession, text: str | None, tags: Iterable[Entity]) -> Text | None:
    """Return what to look for; ``tags``: all that may be on an entity. The relations of tags are read now."""
    if text is None:
        return None
    found = set[int]()
    for tag in tags:
        if text in tag.name.casefold():
            with suppress(EntityNotFound):  # dropped meanwhile
                found.update(row.from_id for row, *_ in live_relating(session.backend, TAG_ON, end_of(tag, ("tag",))))
    return Text(text, frozenset(found))


def _texts(entity: Entity) -> Iterator[str]:
    yield entity.name
    yield entity.comment or ""
    yield from _of_columns(entity.doc.get("columns") or ())


def _of_columns(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield node["name"]
        yield node.get("comment") or ""
        yield from _of_columns(node.get("fields", ()))
