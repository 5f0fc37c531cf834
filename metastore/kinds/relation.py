"""The kinds of relations between two entities: the built-in ones, and those that others declare.

    ms.Relation("reviewed_by", from_kinds=("table",), to_kinds=("user",))
    store.relations("reviewed_by").attach("lake.sales.eu.orders", ("lake", "ann@corp.com"))

A relation goes from an object, or from a column of it, to another entity of the same metalake. A kind of relation is
not a kind of entity, but its events are in the feed under its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, Final

from metastore.arguments import boolean, items, shown
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Owned
from metastore.kinds.field import as_stored, doc_field
from metastore.kinds.kind import OwnedKind, to_json
from metastore.kinds.registry import KINDS, OWNED_KINDS, RELATIONSHIPS

__all__ = [
    "GRANT",
    "MEMBERSHIP",
    "OWNER",
    "POLICY_ON",
    "TAG_ON",
    "Relation",
    "Relationship",
    "relation_doc",
    "relation_named",
]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_RELATIONS: Final[dict[str, Relation]] = {}


class Relationship(Owned):
    """A relation in history and the feed: the other end's id, the column's id (0: no column), the value ("": none)."""

    other_id: int = doc_field(as_stored)
    column_id: int = doc_field(as_stored)
    value: str = doc_field(as_stored)


@lru_cache(1024)
def relation_doc(to_id: int, column_id: int, value: str) -> str:
    """Return the document of a relation, which history stores."""
    return to_json({"comment": None, "properties": {}, "other_id": to_id, "column_id": column_id, "value": value})


@dataclass(frozen=True)
class Relation:
    """A kind of relation. ``from_kinds`` and ``to_kinds`` are the kinds of its ends; ``()``: all kinds.

    ``exclusive``: an entity has at most one such relation, and a new one replaces it. ``columns``: it can also go from
    a column. ``to_the_object``: the object, whose path comes first in its events, is the end that the relation leads
    to. Declare the same relations in every program that works on one database. Raises InvalidArgument.
    """

    name: str
    _: KW_ONLY
    from_kinds: tuple[str, ...] = ()
    to_kinds: tuple[str, ...] = ()
    exclusive: bool = False
    columns: bool = False
    to_the_object: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidArgument(f"a relation is named by a word of a-z, 0-9 and _, not {shown(self.name)}")
        for flag in ("exclusive", "columns", "to_the_object"):
            boolean(getattr(self, flag), flag)
        for kinds in ("from_kinds", "to_kinds"):
            object.__setattr__(self, kinds, _kinds(getattr(self, kinds), kinds))
        there = _RELATIONS.get(self.name)
        if self.name in KINDS or self.name in OWNED_KINDS or (there is not None and there != self):
            raise InvalidArgument(f"the kind {self.name} is already declared differently; choose another name")
        _RELATIONS[self.name] = self
        RELATIONSHIPS[self.name] = OwnedKind(self.name, Relationship)

    def check_end(self, kind: str, *, far: bool) -> None:
        """Raise InvalidArgument for a kind that this end cannot have; ``far``: the end that the relation leads to."""
        kinds = self.to_kinds if far else self.from_kinds
        if kinds and kind not in kinds:
            raise InvalidArgument(
                f"{self.name} {'ends at' if far else 'starts at'} a {' or a '.join(kinds)}, not a {kind}"
            )


def relation_named(name: object) -> Relation:
    """Return a kind of relation. Raises InvalidArgument for one that this program does not know."""
    if not isinstance(name, str) or name not in _RELATIONS:
        known = ", ".join(sorted(_RELATIONS))
        raise InvalidArgument(
            f"there is no relation {shown(name)}; known are {known}; declare others with ms.Relation(…)"
        )
    return _RELATIONS[name]


def _kinds(kinds: Any, what: str) -> tuple[str, ...]:
    given: Iterable[Any] = items(kinds, what)
    for kind in given:
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidArgument(f"{what} names kinds such as table; there is no kind {shown(kind)}")
    return tuple(given)


TAG_ON: Final = Relation("tag_on", to_kinds=("tag",), columns=True)
POLICY_ON: Final = Relation("policy_on", to_kinds=("policy",), columns=True)
OWNER: Final = Relation("owner", to_kinds=("user", "group"), exclusive=True)
MEMBERSHIP: Final = Relation("membership", from_kinds=("user", "group"), to_kinds=("role", "group"))
GRANT: Final = Relation("grant", from_kinds=("role",), to_the_object=True)
