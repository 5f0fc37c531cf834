"""Find the locations of a new fileset, as Gravitino derives them, and the place of a file in a fileset."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from metastore.serve.gravitino.changes import clean_properties
from metastore.serve.gravitino.errors import Refused
from metastore.serve.gravitino.reading import optional
from metastore.serve.web import Answer, BadRequest, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["ENDPOINTS", "fields"]

_DEFAULT: Final = "default-location-name"
_PLACEHOLDER: Final = re.compile(r"\{\{(.*?)\}\}")
_VALUE: Final = "placeholder-"
"""Properties with this prefix give placeholders their values."""
_UNNAMED: Final = "unknown"
"""Gravitino's name for a location without a name."""
_OPERATION: Final = "filesetdataoperation"
"""The header with a client's action on a file."""


def fields(store: Store, names: tuple[str, ...], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return type, locations and properties of a new fileset."""
    kind = (optional(body, "type", str) or "managed").lower()
    given = dict(optional(body, "storageLocations", dict) or {})
    if single := optional(body, "storageLocation", str):
        given.setdefault(_UNNAMED, single)
    properties = clean_properties(optional(body, "properties", dict))
    bases = _bases(store, names)
    if kind != "managed" and not given:
        bases = {}
    values = {key.removeprefix(_VALUE): value for key, value in properties.items() if key.startswith(_VALUE)}
    values |= dict(zip(("catalog", "schema", "fileset"), names[1:], strict=True))
    locations = {name: _filled(base, values, names[-1]) for name, base in bases.items()}
    locations |= {name: _filled(place, values) for name, place in given.items()}
    if not locations:
        raise BadRequest("a fileset needs a storageLocation, or its schema or catalog the property location")
    if len(locations) == 1:
        properties.setdefault(_DEFAULT, *locations)
    if properties.get(_DEFAULT, next(iter(locations))) not in locations:
        raise BadRequest(f"{_DEFAULT} is the name of one of the locations: {', '.join(locations)}")
    return {"type": kind, "locations": locations, "properties": properties}


def _bases(store: Store, names: tuple[str, ...]) -> dict[str, str]:
    """Return the places for new filesets by name, from ``location`` and ``location-NAME``.

    The places of the schema replace those of the catalog.
    """
    catalog = _locations(store.catalogs.load(names[:2]).properties)
    below = {name: place if _PLACEHOLDER.search(place) else _joined(place, names[2]) for name, place in catalog.items()}
    return {**below, **_locations(store.schemas.load(names[:3]).properties)}


def _locations(properties: Mapping[str, str]) -> dict[str, str]:
    named = {key.removeprefix("location-"): value for key, value in properties.items() if key.startswith("location-")}
    return {_UNNAMED: properties["location"], **named} if "location" in properties else named


def _filled(place: Any, values: Mapping[str, str], below: str | None = None) -> str:
    """Fill in the placeholders of a location. A location without placeholders gets ``below`` as its last folder."""
    if not isinstance(place, str):
        raise BadRequest("a storage location is a text")

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise BadRequest(
                f"the placeholder {found[1][:40]!r} has no value; give the property {_VALUE}{found[1][:40]}"
            )
        return values[found[1]]

    is_template = _PLACEHOLDER.search(place) is not None
    filled = _PLACEHOLDER.sub(value, place) if is_template or below is None else _joined(place, below)
    return f"file:{filled}" if filled.startswith("/") else filled


def _joined(place: str, name: str) -> str:
    return f"{place.rstrip('/')}/{name}"


def _location(store: Store, call: Call) -> Answer:
    """Answer with the location of a path inside a fileset. Gravitino decodes the path once more than HTTP does."""
    fileset = store.filesets.load(tuple(call.names[word] for word in ("metalake", "catalog", "schema", "fileset")))
    name = call.query.get("location_name") or fileset.properties.get(_DEFAULT)
    if name is None:
        name = next(iter(fileset.locations)) if len(fileset.locations) == 1 else _UNNAMED
    if name not in fileset.locations:
        message = f"the fileset has no location {name[:80]}; it has {', '.join(fileset.locations) or 'none'}"
        raise Refused(1003, 404, "NoSuchLocationNameException", message)
    below, location = unquote(call.query.get("sub_path", "")).strip("/"), fileset.locations[name]
    if not below and call.headers.get(_OPERATION, "").upper() == "RENAME":
        message = "sub_path: only a file or folder in the fileset can be renamed, not the fileset itself"
        # the same error as Gravitino's: clients choose by the code
        raise Refused(1002, 400, "GravitinoRuntimeException", message)
    return Answer({"code": 0, "fileLocation": _joined(location, below) if below else location})


_SCHEMA: Final = "/metalakes/{metalake}/catalogs/{catalog}/schemas/{schema}"
ENDPOINTS: Final = (("GET", f"{_SCHEMA}/filesets/{{fileset}}/location", "fileset", _location),)
