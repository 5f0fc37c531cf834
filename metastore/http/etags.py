"""Make ETags of entities, and check the preconditions that name them (RFC 9110, 8.8.3 and 13.1). Pure.

A tag is an entity's id and version: ``"7-3"``. The id distinguishes an entity from a later one with the same name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from metastore.kinds.entity import Entity

__all__ = ["Tags", "etag", "tags_in"]

_TAG: Final = re.compile(r'(W/)?"([^"]*)"')
_OURS: Final = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)


def etag(entity: Entity) -> str:
    """Return the tag of an entity's state."""
    return f'"{entity.id}-{entity.version}"'


class Tags(NamedTuple):
    """The content of a header ``If-Match`` or ``If-None-Match``."""

    anything: bool
    """The header is ``*``."""
    strong: tuple[tuple[int, int], ...]
    """The ids and versions in strong tags. Tags that this router did not make are left out."""
    weak: tuple[tuple[int, int], ...]

    def name(self, entity: Entity) -> bool:
        """Whether a weak or strong tag names the state of an entity, as ``If-None-Match`` compares."""
        return self.anything or (entity.id, entity.version) in (*self.strong, *self.weak)

    def versions_of(self, entity_id: int) -> list[int]:
        """Return the versions of an entity that strong tags name; as ``If-Match`` compares, weak tags never match."""
        return [version for of, version in self.strong if of == entity_id]


def tags_in(header: str | None) -> Tags | None:
    """Return the tags in a header; None without a header. A text that is not a tag matches nothing."""
    if header is None:
        return None
    strong, weak = list[tuple[int, int]](), list[tuple[int, int]]()
    for mark, text in _TAG.findall(header):
        if ours := _OURS.fullmatch(text):
            (weak if mark else strong).append((int(ours[1]), int(ours[2])))
    return Tags(header.strip() == "*", tuple(dict.fromkeys(strong)), tuple(weak))
