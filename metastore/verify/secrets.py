"""Check that no value that a catalog declares secret is plain text now, and that the data keys exist.

History is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from metastore.arguments import shown
from metastore.errors import BackendRefused, InvalidArgument
from metastore.kinds.secret import key_numbers
from metastore.port.backend import Backend
from metastore.port.conditions import ROOT_ID
from metastore.port.snapshot import TableSnapshot
from metastore.secrets.declared import Declared, declared_in, is_plain
from metastore.verify.violations import Places, Violation

__all__ = ["check_data_keys", "check_secrets", "data_keys_needed"]

_HOW = "it is plain text, and the catalog declares it secret; run: metastore secrets scrub"


def check_secrets(snapshot: TableSnapshot, places: Places) -> Iterator[Violation]:
    """Yield a violation for each property that is declared secret, but holds the secret in plain text."""
    catalogs = [row_id for row_id, one in places.containers.items() if one.kind == "catalog"]
    declared = dict(_declared(snapshot, catalogs)) if catalogs else {}
    if not declared:
        return
    stands = {row[0]: (row[1], row[2]) for row in snapshot.rows("guard", ("id", "parent_id", "name"), ("id",))}
    for row_id, doc in snapshot.rows("entity", ("id", "doc"), ("id",)):
        yield from _plain(row_id, row_id, doc, None, stands, declared, places)
    for row_id, owner_id, name, doc in snapshot.rows("owned", ("id", "owner_id", "name", "doc"), ("id",)):
        yield from _plain(row_id, owner_id, doc, name, stands, declared, places)


def data_keys_needed(snapshot: TableSnapshot) -> dict[int, int]:
    """Return the numbers of the data keys that encrypted properties need, each with the id of a row that needs it."""
    needed = dict[int, int]()
    for table in ("entity", "owned"):
        for row_id, doc in snapshot.rows(table, ("id", "doc"), ("id",)):
            for number in key_numbers(doc) if isinstance(doc, str) else ():
                needed.setdefault(number, row_id)
    return needed


def check_data_keys(backend: Backend, needed: dict[int, int]) -> Iterator[Violation]:
    """Yield a violation for each missing data key.

    Their rows are never deleted, so they can be read after the snapshot.

    Yields nothing if the role may not read the data keys.
    """
    try:
        there = {row.number for row in backend.secret_keys.rows()} if needed else set()
    except BackendRefused:
        return
    for number in sorted(needed.keys() - there):
        yield Violation(
            17, needed[number], None, f"the data key {number} is missing, so its values are lost; put the key back"
        )


def _declared(snapshot: TableSnapshot, catalogs: list[int]) -> Iterator[tuple[int, Declared]]:
    for row_id, doc in snapshot.rows("entity", ("id", "doc"), ("id",), sorted(catalogs)):
        properties = _properties(doc)
        try:
            patterns = declared_in(properties)
        except InvalidArgument:
            # its patterns cannot be read, so there is nothing to compare; calls that set properties below this catalog
            # raise the same error
            continue
        if patterns.patterns:
            yield row_id, patterns


def _properties(doc: Any) -> dict[str, Any]:
    try:
        properties = json.loads(doc)["properties"]
    except (ValueError, TypeError, LookupError):
        return {}  # another check reports the damaged text
    return properties if isinstance(properties, dict) else {}


def _plain(
    row_id: int,
    entity_id: int,
    doc: Any,
    name: str | None,
    stands: dict[int, tuple[int, str]],
    declared: dict[int, Declared],
    places: Places,
) -> Iterator[Violation]:
    if isinstance(doc, str) and '"properties":{}' in doc:
        return
    above, catalog = entity_id, None
    for _ in stands:
        if above in declared:
            catalog = declared[above]
            break
        if above == ROOT_ID or above not in stands:
            break
        above = stands[above][0]
    if catalog is None:
        return
    parent_id, own = stands.get(entity_id, (ROOT_ID, ""))
    path = places.path(parent_id, own) if name is None else f"{places.path(parent_id, own)}.{name}"
    for key, value in _properties(doc).items():
        if catalog.covers(key) and is_plain(value):
            yield Violation(17, row_id, path, f"the property {shown(key)}: {_HOW}")
