"""The rows, names and leases that a statement for PostgreSQL touches, from its parameters.

Two statements that touch nothing in common, or only read it, have the same effect in either order. A statement whose
parameters do not tell counts as touching everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.statements.gate import Touched

__all__ = ["together", "touched_by"]

_SHARED: Final = {"guard_ids": "row", "read_ids": "row", "owned_ids": "row", "lease_names": "lease"}
_CHANGED: Final = {
    **dict.fromkeys(("id", "u_ids", "bar_ids", "turn_ids", "w_owners", "entity_id", "held", "own_ids"), "row"),
    **dict.fromkeys(("key", "i_keys", "u_keys", "keys"), "name"),
    **dict.fromkeys(("path_before", "path_after", "e_before", "e_after", "before", "after", "paths"), "path"),
    "names": "lease",
    "r_from": "relation",
}
_LOCKS_SHARED: Final = re.compile(r"FOR (KEY )?SHARE$")
_ONLY_CHECKS: Final = ("patience",)


def touched_by(text: str, parameters: Mapping[str, Any]) -> Touched | None:
    """Return what the statement touches; None: perhaps everything."""
    shared, changed = set[object](), set[object]()
    if "named" in parameters:
        return None  # it finds by itself which row it changes
    for name, value in parameters.items():
        if name == "ids":
            (shared if _LOCKS_SHARED.search(text) else changed).update(("row", one) for one in _values(value))
        elif name in _SHARED:
            shared.update((_SHARED[name], one) for one in _values(value))
        elif name in _CHANGED:
            kind = _CHANGED[name]
            for one in _values(value):
                changed.add(("name", one.rpartition(".")[2]) if kind == "path" else (kind, one))
    if not shared and not changed and not set(parameters) <= set(_ONLY_CHECKS):
        return None
    return Touched(frozenset(shared), frozenset(changed))


def together(one: Touched | None, other: Touched | None) -> Touched | None:
    """Return what two statements touch together."""
    if one is None or other is None:
        return None
    return Touched(one.shared | other.shared, one.changed | other.changed)


def _values(value: Any) -> Iterator[str]:
    """Yield the values of a parameter: one, or those of an array's literal."""
    if isinstance(value, str) and value.startswith("{"):
        yield from (part.strip('"') for part in value[1:-1].split(",") if part not in ("", "NULL"))
    elif value is not None:
        yield str(value)
