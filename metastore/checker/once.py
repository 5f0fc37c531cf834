"""Whether an operation wrote what its client was told: once if it was acknowledged, never if it was refused."""

from __future__ import annotations

from collections.abc import Iterator

from metastore.checker.finding import Finding
from metastore.checker.operation import Told
from metastore.checker.tree import Placed

__all__ = ["account", "line"]


def account(told: Told) -> Iterator[Finding]:
    """Yield what does not fit. An unknown outcome may have been applied once, or not at all."""
    events = told.events
    if told.end is not None and told.end < told.start:
        yield Finding("order", "it returned before it was called", (line(told),))
    if not all(_asked(told.action, event) for event in events):
        yield Finding("once", f"it was asked to {told.action}, and wrote something else", (line(told),))
    if told.outcome == "applied":
        if not events:
            yield Finding("once", "it was acknowledged, and the feed has nothing of it", (line(told),))
        elif told.version_after is not None and not _made(told):
            message = f"it was told of version {told.version_after} of entity {told.entity_id}, which it did not make"
            yield Finding("once", message, (line(told),))
    elif events and told.outcome not in ("unknown", "open"):
        yield Finding("once", f"it was told {told.outcome!r}, and it wrote", (line(told),))
    if len({event.operation_id for event in events}) > 1:
        yield Finding("once", "it was applied twice, under two operation ids (or was it several calls?)", (line(told),))
    elif len({event.entity_id for event in events}) < len(events):
        yield Finding("once", "it was applied twice to one entity", (line(told),))


def _asked(action: str, event: Placed) -> bool:
    """Whether an action writes such an event. Of actions that are not known, any."""
    if action in ("create", "alter"):
        return not event.exclusive and not event.gone
    if action in ("rename", "move", "restore"):
        return event.exclusive and not event.gone
    return action not in ("drop", "drop_cascade", "purge") or event.gone


def _made(told: Told) -> bool:
    return any(
        event.version == told.version_after and told.entity_id in (None, event.entity_id) for event in told.events
    )


def line(told: Told) -> str:
    """Return one line that says whose it was, what it did, when, what it was told, and what it wrote."""
    when = f"[{told.start} … {'' if told.end is None else told.end}]"
    saw = "".join(
        f", saw {seen.path or seen.entity_id} {'v' + str(seen.version) if seen.there else 'absent'}"
        for seen in told.reads[:3]
    )
    wrote = "".join(f", wrote entity {e.entity_id} v{e.version} at {e.seq}" for e in told.events[:3])
    return f"{told.client}/{told.number}: {told.action} {told.path or ''} {when} {told.outcome}{saw}{wrote}"
