"""Changes of a model's versions.

:class:`SetUri` and :class:`RemoveUri` are for ``models.alter_version``. The other changes record in a model's history
what ``add_version``, ``drop_version`` and the methods for aliases did. ``alter`` does not take them, because only the
commits of those methods check whether the version exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange, not_found
from metastore.kinds.model.document import clean_uris
from metastore.names import clean_name, format_path

__all__ = ["RemoveAlias", "RemoveUri", "SetAlias", "SetLatestVersion", "SetUri"]

Names = tuple[str, ...]


@dataclass(frozen=True)
class SetUri(EntityChange):
    """Set one of the URIs of a model version."""

    name: str
    uri: str
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        doc["uris"].update(clean_uris({self.name: self.uri}))


@dataclass(frozen=True)
class RemoveUri(EntityChange):
    """Remove one of the URIs of a model version, which must keep at least one. Raises EntityNotFound."""

    name: str
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        name = clean_name(self.name)
        if name not in doc["uris"]:
            raise not_found(path, "uri", name)
        if len(doc["uris"]) == 1:
            raise InvalidArgument(f"{format_path(path)} has only the uri {name}; set another before you remove it")
        del doc["uris"][name]


@dataclass(frozen=True)
class SetLatestVersion(EntityChange):
    """A version with this number was added."""

    number: int
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        doc["latest_version"] = self.number


@dataclass(frozen=True)
class SetAlias(EntityChange):
    """Point an alias to this version."""

    alias: str
    number: int
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        doc["aliases"][self.alias] = self.number


@dataclass(frozen=True)
class RemoveAlias(EntityChange):
    """Remove an alias: it points to no version from now on."""

    alias: str
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        doc["aliases"].pop(self.alias, None)
