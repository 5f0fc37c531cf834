"""One operation and its outcome."""

from __future__ import annotations

from metastore.plain import plain
from metastore.secrets.names import without_secrets
from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.words import short

__all__ = ["operation"]


def operation(asked: Asked) -> Shown:
    """Return the outcome of the operation with an id."""
    operation_id = asked.query.get("id", "").strip()
    outcome = asked.store.outcome(operation_id)
    result = outcome.result
    path = getattr(result, "path", None)
    values = {
        "id": operation_id,
        "outcome": outcome,
        "path": path,
        "kind": getattr(result, "kind", None),
        "result": None if path is not None or result is None else short(without_secrets(plain(result)), 500),
    }
    return Shown("operation.html", f"Operation {short(operation_id, 40)}", values)
