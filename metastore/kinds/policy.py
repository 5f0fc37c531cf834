"""The policy: a rule as JSON, which can be attached to entities. The tools that read it decide what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final

from metastore.arguments import boolean, items, shown
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.json_object import clean_json_object
from metastore.kinds.kind import COMMON_CHANGES, Kind
from metastore.names import exact_text
from metastore.plain import read_only

__all__ = ["POLICY", "Policy", "SetContent", "SetEnabled", "SetSupports"]

_TYPE: Final = re.compile(r"custom|system_[a-z0-9_]+|[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_clean_content = partial(clean_json_object, what="a policy's content")
_clean_enabled = partial(boolean, what="enabled")


def _clean_type(type: Any) -> str:
    if not _TYPE.fullmatch(exact_text(type, "a policy's type")):
        raise InvalidArgument(
            f"a policy's type is custom, a built-in one such as system_iceberg_compaction, or words with dots such as "
            f"org.retention, not {shown(type)}"
        )
    return str(type)


def _clean_supports(kinds: Any) -> list[str]:
    clean = [exact_text(kind, "a kind") for kind in items(kinds, "supports")]
    for kind in clean:
        if not _KIND.fullmatch(kind):
            raise InvalidArgument(f"supports names kinds such as table, schema or column, not {shown(kind)}")
    return list(dict.fromkeys(clean))


class Policy(Entity):
    """A policy. ``supports`` names the kinds that it can be attached to (``column`` for columns); ``()``: all kinds."""

    type: str = doc_field(_clean_type, default="custom", fixed=True)
    content: Mapping[str, Any] = doc_field(_clean_content, default=_NOTHING, decode=read_only)
    enabled: bool = doc_field(_clean_enabled, default=True, decode=bool)
    supports: tuple[str, ...] = doc_field(_clean_supports, several=True, decode=tuple)


@dataclass(frozen=True)
class SetContent(EntityChange):
    """Replace a policy's content as a whole."""

    content: Mapping[str, Any]
    since: ClassVar[int] = 3

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["content"] = _clean_content(self.content)

    def to_json(self) -> dict[str, Any]:
        return {"content": _clean_content(self.content)}


@dataclass(frozen=True)
class SetEnabled(EntityChange):
    """Enable or disable a policy."""

    enabled: bool
    since: ClassVar[int] = 3

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["enabled"] = _clean_enabled(self.enabled)


@dataclass(frozen=True)
class SetSupports(EntityChange):
    """Set the kinds that a policy can be attached to; ``()``: all kinds. Present attachments stay."""

    kinds: tuple[str, ...]
    since: ClassVar[int] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", items(self.kinds, "supports"))

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["supports"] = _clean_supports(self.kinds)


_CHANGES = (*COMMON_CHANGES, SetContent, SetEnabled, SetSupports)
POLICY = Kind("policy", "policy", ("metalake",), Policy, changes=_CHANGES, since=3, stays=True)
