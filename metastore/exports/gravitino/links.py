"""The rows of relations: tags and policies on objects, owners, memberships, and the grants of roles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from metastore.exports.gravitino.addresses import Address
from metastore.exports.gravitino.entities import Said, TablesRow
from metastore.exports.gravitino.releases import Release, can_hold, privilege_in
from metastore.exports.gravitino.standing import audit_json
from metastore.governance.privileges import REVEAL
from metastore.transfer.lines import RelationLine

__all__ = ["link_rows"]

_NOT_THERE: Final = (REVEAL,)
"""Privileges that Gravitino does not have; a role that had one could not be loaded there."""


def link_rows(said: Said, release: Release) -> Iterator[TablesRow]:
    """Yield the rows of the relations that lead from an entity to an exported one, and that the release can read."""
    grants: dict[tuple[str, int], list[str]] = {}
    for line in said.group.relations:
        to = None if line.to is None or line.to_kind is None else said.addresses.get(line.to_kind, line.to)
        if to is None:
            continue
        own_kind = said.address.shape.kind
        if line.kind == "grant" and can_hold(release, to.shape.kind):
            grants.setdefault((to.shape.kind, to.id), []).append(line.value)
        elif line.kind in ("tag_on", "policy_on") and can_hold(release, own_kind):
            yield from _attached(said, line, to)
        elif line.kind == "owner" and can_hold(release, own_kind):
            yield "owner_meta", {**_owner(said, line, to), "updated_at": said.now}
        elif line.kind == "membership" and to.shape.kind == "role":  # Gravitino has no users in groups
            own = {f"{said.address.shape.kind}_id": said.address.id, "role_id": to.id}
            yield f"{said.address.shape.kind}_role_rel", {**own, **_standing(line)}
    yield from _grants(said, grants.items(), release)


def _standing(line: RelationLine) -> dict[str, Any]:
    return {"audit_info": audit_json(line.audit), "current_version": 1, "last_version": 1, "deleted_at": 0}


def _end(address: Address) -> dict[str, Any]:
    return {"metadata_object_id": address.id, "metadata_object_type": address.shape.kind.upper()}


def _attached(said: Said, line: RelationLine, to: Address) -> Iterator[TablesRow]:
    """Yield the row of an attached tag or policy; Gravitino has none on a field inside a column."""
    end = _end(said.address)
    if line.column is not None:
        ours = [one["id"] for one in said.doc["columns"] if (one["name"],) == line.column]
        if not ours:
            return
        end = {"metadata_object_id": said.column_ids[ours[0]], "metadata_object_type": "COLUMN"}
    word = line.kind.removesuffix("_on")
    value = {"tag_value": line.value} if word == "tag" else {}
    yield f"{word}_relation_meta", {f"{word}_id": to.id, **end, **value, **_standing(line)}


def _owner(said: Said, line: RelationLine, to: Address) -> dict[str, Any]:
    metalake = (*said.address.above, said.address.id)[0]
    owner = {"owner_id": to.id, "owner_type": to.shape.kind.upper()}
    return {"metalake_id": metalake, **owner, **_end(said.address), **_standing(line)}


def _grants(said: Said, grants: Iterable[tuple[tuple[str, int], list[str]]], release: Release) -> Iterator[TablesRow]:
    """Yield one row for each object on which a role has privileges."""
    for (kind, key), values in grants:
        pairs = [value.split(":", 1) for value in values]
        named = [(privilege_in(release, word), effect) for effect, word in pairs if word not in _NOT_THERE]
        known = sorted((word, effect) for word, effect in named if word is not None)
        if not known:
            continue
        yield (
            "role_meta_securable_object",
            {
                "role_id": said.address.id,
                "metadata_object_id": key,
                "type": kind.upper(),
                "privilege_names": json.dumps([word.upper() for word, _ in known]),
                "privilege_conditions": json.dumps([effect.upper() for _, effect in known]),
                "current_version": 1,
                "last_version": 1,
                "deleted_at": 0,
            },
        )
