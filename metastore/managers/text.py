"""Search for a text in the fields of an entity, in the names of its owners, and in the names of its tags.

The fields are the entity's name and comment, those of its columns, and its properties. The search skips each value that
may be a secret: a match would confirm a guess of the secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from metastore.errors import EntityNotFound, InvalidArgument, UnreadableRow
from metastore.kinds.entity import Entity
from metastore.kinds.relation import OWNER, TAG_ON, Relation
from metastore.kinds.secret import Secret
from metastore.managers.relations.ends import EndOf, end_of
from metastore.managers.relations.reads import live_relating
from metastore.managers.relations.writes import column_paths
from metastore.names import clean_text
from metastore.operation.session import ManagerSession
from metastore.port.backend import Reads
from metastore.port.relations import NO_COLUMN
from metastore.secrets.names import is_hidden

_LONGEST: Final = 1000
RELATED: Final[Mapping[str, Relation]] = {"tag": TAG_ON, "user": OWNER, "group": OWNER}
"""The kinds whose names a search also looks at, each with the relation that leads to such an entity."""


@dataclass(frozen=True)
class Text:
    """A case-folded text to look for, and the ids of the entities whose tag or owner has the text in its name."""

    text: str
    related: frozenset[int]

    def is_in(self, entity: Entity) -> bool:
        """Whether the entity, a column, a property, a tag on it or its owner contains the text."""
        return entity.id in self.related or any(self.text in one.casefold() for one in _texts(entity))


def clean(text: object) -> str | None:
    """Return the case-folded text to look for; None: every entity matches. Raises InvalidArgument."""
    if text is None:
        return None
    folded = clean_text(text, "the text to find").casefold()
    if len(folded) > _LONGEST:
        raise InvalidArgument(f"the text to find has more than {_LONGEST} characters; look for a part of it")
    return folded or None


def text_of(session: ManagerSession, text: str | None, named: Iterable[Entity]) -> Text | None:
    """Return the text to look for; ``named``: all tags, users and groups that may be related to an entity."""
    if text is None:
        return None
    found = set[int]()
    for one in named:
        if text in one.name.casefold():
            end = end_of(one, (one.kind,))
            with suppress(EntityNotFound):  # dropped meanwhile
                found.update(_related(session.backend, RELATED[one.kind], end))
    return Text(text, frozenset(found))


def _related(backend: Reads, relation: Relation, end: EndOf) -> Iterator[int]:
    """Yield the ids of the entities that the relation connects to ``end``, directly or by one of their columns."""
    columns = lru_cache(maxsize=1)(_columns)  # relations of one object's columns come one after the other
    for row, _, doc, _ in live_relating(backend, relation, end):
        if row.column_id == NO_COLUMN or row.column_id in columns(doc):
            yield row.from_id


def _columns(doc: str | None) -> Collection[int]:
    with suppress(UnreadableRow):  # the search may not read this entity; if it does, it raises the error itself
        return column_paths(doc, None).keys()
    return ()


def _texts(entity: Entity) -> Iterator[str]:
    yield entity.name
    yield entity.comment or ""
    yield from _of_columns(entity.doc.get("columns") or ())
    for key, value in entity.properties.items():
        yield key
        if not isinstance(value, Secret) and not is_hidden(key):
            yield value


def _of_columns(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield node["name"]
        yield node.get("comment") or ""
        yield from _of_columns(node.get("fields", ()))
