"""Divide lines into chunks that are small enough for one commit. No chunk holds a parent together with its child."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from metastore.kinds.kind import to_json
from metastore.kinds.secret import masked
from metastore.transfer.lines import Body, EntityLine, OwnedLine

__all__ = ["Group", "Key", "chunks", "key_of", "parent_key"]

_CHUNK = 1000
_CHUNK_BYTES = 4 << 20

Key = tuple[tuple[str, ...], tuple[str, ...]]
"""The names and the families on the path to an entity."""


@dataclass
class Group:
    """An entity with rows that it owns. ``fresh``: the group has the entity itself; otherwise only more of its rows."""

    number: int
    line: EntityLine
    doc: str
    fresh: bool = True
    owned: list[tuple[int, OwnedLine, str]] = field(default_factory=list)
    """Each owned row with the number of its line, and its document in stored form."""


def key_of(line: EntityLine) -> Key:
    """Return the key of an entity."""
    return line.names, (*line.under, line.family)


def parent_key(line: EntityLine) -> Key:
    """Return the key of the entity's parent."""
    return line.names[:-1], line.under


def chunks(lines: Iterable[tuple[int, Body]]) -> Iterator[list[Group]]:
    """Yield the groups of a file in chunks. A large group is divided, but not before its first owned row."""
    chunk: list[Group] = []
    keys = set[Key]()
    count = size = 0
    for number, line in lines:
        text = masked(to_json(line.doc)) if isinstance(line, EntityLine | OwnedLine) else ""
        full = count >= _CHUNK or size > _CHUNK_BYTES
        first = isinstance(line, OwnedLine) and not chunk[-1].owned and chunk[-1].fresh
        if chunk and not first and (full or (isinstance(line, EntityLine) and parent_key(line) in keys)):
            yield chunk
            last = chunk[-1]
            chunk, keys, count, size = [], set(), 0, 0
            if isinstance(line, OwnedLine):
                chunk.append(Group(last.number, last.line, last.doc, fresh=False))
        if isinstance(line, EntityLine):
            chunk.append(Group(number, line, text))
            keys.add(key_of(line))
        elif isinstance(line, OwnedLine):
            chunk[-1].owned.append((number, line, text))
        count, size = count + 1, size + len(text)
    if chunk:
        yield chunk
