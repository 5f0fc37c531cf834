"""Values that a user's write may keep but not set: references to secrets, and pointers to Iceberg files.

A client that writes all properties back includes these too. That is allowed if the entity has these values already: the
commit expects the version that proves it. Such a change is never announced, because an intent could be applied after
others have replaced the values.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from metastore.errors import PermissionDenied
from metastore.governance.access import Access
from metastore.operation.request import View
from metastore.port.writes import Delete, Insert, Put, Update, Write
from metastore.retry.runner import Conflict

_REFERENCE: Final = re.compile(r'"secret:((?:env|file):(?:[^"\\]|\\.)*)"')
"""A reference to a secret in JSON text."""
_POINTER: Final = "metadata_location"
"""The property that names the metadata file of an Iceberg table or view."""
_ALLOWED: Final = "METASTORE_SECRETS"
"""The variable that lists the references which users may set, as patterns: ``env:APP_* file:/run/secrets/*``."""
_UUID: Final = "table_uuid"
"""The property by which a purge recognises the other tables that have the same files."""
_FILE: Final = (f'"{_POINTER}"', '"change":"SetLocation"', f'"{_UUID}"')
"""The parts of an event's changes that show a pointer, or the location or UUID of an entity with a pointer."""


def keeps(access: Access, write: Write) -> bool:
    """Whether the changes of a write contain a value that the entity must have already.

    The commits of Iceberg's server name the file that they replace, so they may be applied later.
    """
    changes = write.event.changes
    return bool(_REFERENCE.search(changes)) or (not access.swaps and any(one in changes for one in _FILE))


def check_references(access: Access, view: View, write: Insert | Update | Put | Delete) -> None:
    """Raise PermissionDenied for a reference to a secret that users may not set, because this process can read it.

    Without this check a user could refer to any variable or file of a service, and let the service reveal it. A value
    that the entity has already is allowed: clients write all properties back.
    """
    doc, event = None if isinstance(write, Delete) else write.doc, write.event
    text = event.changes if event.action == "alter" and event.changes != "[]" else doc
    if text is None or '"secret:' not in text:
        return
    allowed = os.environ.get(_ALLOWED, "").split()
    refused = [one for one in _REFERENCE.findall(text) if not _is_allowed(one, allowed)]
    if not refused:
        return
    there = _REFERENCE.findall(_stands(view, write) or "")
    for reference in refused:
        if reference not in there:
            path = event.path_after or event.path_before or ""
            message = (
                f"{access.who.name} may not refer to {reference}: the variable {_ALLOWED} of this process allows "
                f"{' '.join(allowed) or 'no reference'}"
            )
            raise PermissionDenied(access.who.name, "refer_to_secret", path, message)


def check_pointer(access: Access, view: View, write: Insert | Update) -> None:
    """Raise PermissionDenied if a user changes the Iceberg metadata file, the location or the UUID of a table or view.

    With the file of a table that the user does not see, the Iceberg server would show that table, and delete its files.
    A user may not remove the file either, because that would allow another location. With the UUID of another table, a
    purge would spare that table's files.
    """
    event = write.event
    if access.swaps or write.doc is None or event.kind not in ("table", "view"):
        return
    # a replacement has no list of changes ("[]"), and may remove the file's properties too
    removes = isinstance(write, Update) and (event.changes == "[]" or _FILE[0] in event.changes)
    if not removes and f'"{_POINTER}"' not in write.doc:
        return
    new, old = _pointer(write.doc), _pointer(_stands(view, write) or "{}")
    if new != old and (new.file is not None or old.file is not None):
        path = event.path_after or ""
        message = (
            f"{access.who.name} may not set or remove {_POINTER} of {path}, nor the location or {_UUID} beside it: "
            "only a commit of the Iceberg server may"
        )
        raise PermissionDenied(access.who.name, "admin", path, message)


class _Pointer(NamedTuple):
    """The metadata file of a table or view, and the values that users may set only without such a file."""

    file: str | None
    location: str | None
    uuid: str | None


def _pointer(doc: str) -> _Pointer:
    fields = json.loads(doc)
    properties = fields.get("properties", {})
    return _Pointer(properties.get(_POINTER), fields.get("location"), properties.get(_UUID))


def _is_allowed(reference: str, allowed: Sequence[str]) -> bool:
    return ".." not in reference and any(fnmatch.fnmatchcase(reference, pattern) for pattern in allowed)


def _stands(view: View, write: Insert | Update | Put | Delete) -> str | None:
    """Return the document that a write replaces. Raises Conflict if another write has replaced it already.

    If the write rests on a guess, return the guessed document: after a refusal, the attempt runs again.
    """
    if isinstance(write, Update):
        (known,) = view.backend.by_id([write.id])
        if known is not None and known.record.version != write.version and not view.guessed:
            raise Conflict("self", "it was changed while the right to change it was checked", 0.0)
        return None if known is None else known.record.doc
    if isinstance(write, Put):
        (row,) = view.backend.owned_by_name([write.owner_id], write.kind, [write.name])
        return None if row is None else row.doc
    return None
