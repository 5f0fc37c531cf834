"""Check that an operation's writes match its outcome: one commit if it was acknowledged, none if it was refused."""

from __future__ import annotations

from collections.abc import Iterator

from metastore.checker.finding import Finding
from metastore.checker.operation import ClientOperation
from metastore.checker.tree import Placed

__all__ = ["account", "line"]


def account(operation: ClientOperation) -> Iterator[Finding]:
    """Yield each contradiction. An operation of unknown outcome may have been applied once or not at all."""
    events = operation.events
    if operation.end is not None and operation.end < operation.start:
        yield Finding("order", "it returned before it was called", (line(operation),))
    if not all(_asked(operation.action, event) for event in events):
        yield Finding("once", f"its action was {operation.action}, and it wrote something else", (line(operation),))
    if operation.outcome == "applied":
        if not events:
            yield Finding("once", "it was acknowledged, and the feed has no event for it", (line(operation),))
        elif operation.version_after is not None and not _made(operation):
            message = (
                f"it returned version {operation.version_after} of entity {operation.entity_id}, which it did not make"
            )
            yield Finding("once", message, (line(operation),))
    elif events and operation.outcome not in ("unknown", "open"):
        yield Finding("once", f"its outcome was {operation.outcome!r}, and it wrote", (line(operation),))
    if len({event.operation_id for event in events}) > 1:
        yield Finding("once", "it was applied twice, under two operation ids", (line(operation),))
    elif len({event.entity_id for event in events}) < len(events):
        yield Finding("once", "it was applied twice to one entity", (line(operation),))


def _asked(action: str, event: Placed) -> bool:
    """Return whether an action writes such an event. An unknown action may write any event."""
    if action in ("create", "alter"):
        return not event.exclusive and not event.gone
    if action in ("rename", "move", "restore"):
        return event.exclusive and not event.gone
    return action not in ("drop", "drop_cascade", "purge") or event.gone


def _made(operation: ClientOperation) -> bool:
    return any(
        event.version == operation.version_after and operation.entity_id in (None, event.entity_id)
        for event in operation.events
    )


def line(operation: ClientOperation) -> str:
    """Return one line about an operation: its client, action, time, outcome, and what it read and wrote."""
    when = f"[{operation.start} … {'' if operation.end is None else operation.end}]"
    saw = "".join(
        f", saw {seen.path or seen.entity_id} {'v' + str(seen.version) if seen.there else 'absent'}"
        for seen in operation.reads[:3]
    )
    wrote = "".join(f", wrote entity {e.entity_id} v{e.version} at {e.seq}" for e in operation.events[:3])
    who, what = f"{operation.client}/{operation.number}", f"{operation.action} {operation.path or ''}"
    return f"{who}: {what} {when} {operation.outcome}{saw}{wrote}"
