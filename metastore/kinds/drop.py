"""The drop: a row owned by the root that says how far a drop in steps is, and which process is working on it.

Its name is made of ids, so that renames do not matter: ``17`` is an entity, ``17/column/3`` a column of this entity,
``17/partition/21`` one of its partitions. Its token grows with each take-over.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from metastore.arguments import integer, positive_seconds
from metastore.errors import InvalidArgument, UnreadableRow
from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.kind import OwnedKind
from metastore.names import clean_text

__all__ = [
    "ANNOUNCED",
    "DESTROYED",
    "DROP",
    "PARTS",
    "STARTED",
    "Drop",
    "drop_name",
    "is_drop_name",
    "part_of",
    "target_id",
]

ANNOUNCED, STARTED, DESTROYED = "announced", "started", "destroyed"
"""The phases: nothing is destroyed yet; destruction may have begun; destruction is complete, and only metadata is left.

A part of a table stays *destroyed* while the table is not live, because nothing writes to a table that is not live."""
PARTS = ("column", "partition")
"""The parts of an entity that can be dropped in steps."""


def _clean_phase(phase: object) -> str:
    if phase not in (ANNOUNCED, STARTED, DESTROYED):
        raise InvalidArgument(f"a drop is {ANNOUNCED}, {STARTED} or {DESTROYED}, not {phase!r}")
    return str(phase)


def _clean_part(part: object) -> str | None:
    if part is not None and part not in PARTS:
        raise InvalidArgument(f"the dropped part of an entity is a {' or a '.join(PARTS)}, not {part!r}")
    return None if part is None else str(part)


def _text(value: Any) -> str:
    return clean_text(value, "a text")


def _optional(value: Any) -> str | None:
    return None if value is None else _text(value)


class Drop(Owned):
    """A drop in steps. Its time to live counts from the last write of its row, by the database's clock."""

    phase: str = doc_field(_clean_phase)
    operation: str = doc_field(_text)
    """The id of the operation that announced it."""
    target_kind: str = doc_field(_text)
    target_path: str = doc_field(_text)
    """The path of the entity, column or partition at the time of the announcement."""
    part: str | None = doc_field(_clean_part, default=None)
    part_name: str | None = doc_field(_optional, default=None)
    handler: str | None = doc_field(_optional, default=None)
    """The handler of the kind in the process that announced the drop; for people to read."""
    token: int = doc_field(lambda token: integer(token, "a token"))
    ttl: float = doc_field(lambda ttl: positive_seconds(ttl, "a ttl"))


DROP = OwnedKind("drop", Drop)
_NAME: Final = re.compile(r"[0-9]{1,19}(/(column|partition)/[0-9]{1,19})?")


def drop_name(entity_id: int, part: Literal["column", "partition"] | None = None, part_id: int = 0) -> str:
    """Return the name of the row of a drop."""
    return str(entity_id) if part is None else f"{entity_id}/{part}/{part_id}"


def part_of(name: str) -> str | None:
    """Return which part of an entity a drop's row is about; None: the whole entity."""
    _, _, rest = name.partition("/")
    return rest.partition("/")[0] or None


def target_id(name: str) -> int:
    """Return the id of the entity that a drop's row is about, whole or in part. Raises UnreadableRow."""
    if not is_drop_name(name):
        raise UnreadableRow(f"the row of the drop in steps {name!r}", "it names no target", kind=DROP.name)
    return int(name.split("/", 1)[0])


def is_drop_name(name: str) -> bool:
    """Whether a text can be the name of a drop's row."""
    return _NAME.fullmatch(name) is not None
