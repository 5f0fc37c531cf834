"""Find the version and audit of an entity's row in Gravitino: those of the import, until the entity is changed here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from metastore.imports.gravitino.groups import Group
from metastore.imports.gravitino.run import PRINCIPAL

__all__ = ["Standing", "audit_json", "standing"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Standing(NamedTuple):
    """A version, and who made and changed it; times in µs since 1970, as the lines of an export have them."""

    version: int
    audit: Mapping[str, Any]


def standing(group: Group) -> Standing:
    """Return the version and audit.

    A repeated import writes under its own name, so the user is taken from the origin.
    """
    line, origin = group.entity, group.origin
    version, audit = int(line.row["version"]), dict(line.audit)
    if origin is None:
        return Standing(version, audit)
    was = origin.doc["values"]
    if audit["modified_by"] == PRINCIPAL or audit == was["audit"]:
        return Standing(was["version"], was["audit"])
    if audit["created_by"] == PRINCIPAL:
        audit |= {key: was["audit"][key] for key in ("created_by", "created_at")}
    return Standing(max(version, was["version"] + 1), audit)


def audit_json(audit: Mapping[str, Any]) -> str:
    """Return an audit as Gravitino stores it."""
    stored = {"creator": audit["created_by"], "createTime": _time(audit["created_at"])}
    if (audit["modified_by"], audit["modified_at"]) != (audit["created_by"], audit["created_at"]):
        stored |= {"lastModifier": audit["modified_by"], "lastModifiedTime": _time(audit["modified_at"])}
    return json.dumps({key: value for key, value in stored.items() if value is not None})


def _time(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
