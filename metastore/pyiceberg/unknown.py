"""Keep the fields of a metadata file that PyIceberg does not know, at any depth.

PyIceberg drops such fields of snapshots, schemas, partition specs, sort orders, references and statistics when it reads
a file. So they are kept apart when a file is read, and put back whenever the metadata is written.

A field goes back to the part that had it: to a snapshot by its id, to a reference by its name. Any other part of a list
must be unchanged, because a client may use the same id for another part. Only a schema may have a new id: see `room`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from metastore.plain.bodies import FINITE

__all__ = ["Unknown", "unknown_fields", "with_unknown"]

Unknown = dict[str, Any]
"""The unknown fields below an object or a list, by field or by part. Under ``_OWN`` are those of the object itself."""
_OWN: Final = ""
_SNAPSHOT: Final = "snapshot-id"
_SCHEMA: Final = "schema-id"
_MANIFESTS: Final = "manifest-list"


def unknown_fields(text: bytes, known: str) -> Unknown:
    """Return the fields that the JSON ``text`` has and ``known``, which was written from it, lacks.

    Raises ValueError for a number that could not be written again.
    """
    return _below(json.loads(text, **FINITE), json.loads(known))


def with_unknown(known: str, unknown: Unknown) -> str:
    """Return the JSON ``known`` with the unknown fields put back."""
    if not unknown:
        return known
    whole = json.loads(known)
    _put_back(whole, unknown)
    return json.dumps(whole)


def _below(found: Any, known: Any) -> Unknown:
    if isinstance(found, dict) and isinstance(known, dict):
        own = {name: part for name, part in found.items() if name not in known and part is not None}
        below = {name: _below(part, known[name]) for name, part in found.items() if name in known}
        return {name: part for name, part in {_OWN: own, **below}.items() if part}
    if isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        pairs = zip(found, known, strict=True)
        return {_part(one): below for part, one in pairs if (below := _below(part, one))}
    return {}


def _put_back(known: Any, unknown: Unknown) -> None:
    named = known.items() if isinstance(known, dict) else [(_kept(one, unknown), one) for one in known]
    for name, part in list(named):
        if name != _OWN and name in unknown and isinstance(part, dict | list):
            _put_back(part, unknown[name])
    if isinstance(known, dict):
        known.update({name: part for name, part in unknown.get(_OWN, {}).items() if name not in known})


def _kept(one: Any, unknown: Unknown) -> str:
    """Return the key of a part's fields. A schema with a new id has the key of its old id."""
    if (name := _part(one)) in unknown or not isinstance(one, dict) or _SCHEMA not in one:
        return name
    return next((old for old in unknown if _is_same_schema(one, json.loads(old))), name)


def _is_same_schema(one: dict[str, Any], other: Any) -> bool:
    return isinstance(other, dict) and _SCHEMA in other and {**other, _SCHEMA: one[_SCHEMA]} == one


def _part(one: Any) -> str:
    """Return a key that distinguishes a part of a list from the others."""
    # a snapshot: its id is enough; its other fields may change when its parent expires
    if isinstance(one, dict) and _MANIFESTS in one:
        return str(one[_SNAPSHOT])
    return json.dumps(one, sort_keys=True)
