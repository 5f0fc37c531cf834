"""The tag: a label for entities and columns, which may carry a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from metastore.arguments import items, shown
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import COMMON_CHANGES, Kind
from metastore.names import clean_text

__all__ = ["MAX_VALUE", "TAG", "SetAllowedValues", "Tag", "clean_value"]

MAX_VALUE = 1024
"""The largest size of an attached tag's value (bytes of UTF-8). The value is part of an index."""


def clean_value(value: object) -> str:
    """Return a tag's value, or raise InvalidArgument."""
    text = clean_text(value, "a tag's value")
    if not text or "\x00" in text:
        raise InvalidArgument("a tag's value must not be empty or contain NUL; leave it out for no value")
    if len(text.encode()) > MAX_VALUE:
        raise InvalidArgument(f"a tag's value has {len(text.encode())} bytes; at most {MAX_VALUE} are allowed")
    return text


def _clean_values(values: Any) -> list[str]:
    clean = [clean_value(value) for value in items(values, "allowed values")]
    if len(set(clean)) < len(clean):
        raise InvalidArgument(f"the allowed values must differ; {shown(clean)} has one twice")
    return clean


class Tag(Entity):
    """A tag. With ``allowed_values``, an attachment has one of them; without, it has any value or none."""

    allowed_values: tuple[str, ...] = doc_field(_clean_values, several=True, decode=tuple)


@dataclass(frozen=True)
class SetAllowedValues(EntityChange):
    """Set the values that a tag may carry from now on; ``()``: any value. Present attachments stay."""

    values: tuple[str, ...]
    since: ClassVar[int] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", items(self.values, "allowed values"))

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["allowed_values"] = _clean_values(self.values)


TAG = Kind("tag", "tag", ("metalake",), Tag, changes=(*COMMON_CHANGES, SetAllowedValues), since=3, stays=True)
