"""The fileset: named places in a file system or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import Kind
from metastore.names import clean_text, exact_text
from metastore.plain import read_only

__all__ = ["FILESET", "FILESET_TYPES", "Fileset"]

FILESET_TYPES = ("managed", "external")


def _clean_type(type: Any) -> str:
    if not isinstance(type, str) or exact_text(type, "a type").lower() not in FILESET_TYPES:
        raise InvalidArgument(f"a fileset's type must be one of {', '.join(FILESET_TYPES)}, not {shown(type)}")
    return exact_text(type, "a type").lower()


def _clean_locations(locations: Any) -> dict[str, str]:
    if not isinstance(locations, Mapping):
        raise InvalidArgument("a fileset's locations must map names to places")
    clean = {}
    for name, place in locations.items():
        if not clean_text(name, "a location's name") or not clean_text(place, f"the location {shown(name)}"):
            raise InvalidArgument("a location has a name and a place, neither of them empty")
        clean[exact_text(name, "a location's name")] = exact_text(place, "a location")
    return clean


class Fileset(Entity):
    """A fileset. ``type`` is managed or external; ``locations`` maps names to places."""

    type: Literal["managed", "external"] = doc_field(_clean_type, default="managed", decode=str)
    locations: Mapping[str, str] = doc_field(_clean_locations, default=MappingProxyType({}), decode=read_only)


FILESET = Kind("fileset", "fileset", ("schema",), Fileset)
