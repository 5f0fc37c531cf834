"""Small histories, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metastore.checker.finding import Finding
from metastore.checker.operation import ClientOperation
from metastore.checker.records import Lost, Seen
from metastore.checker.sweep import Sweep
from metastore.checker.tree import Named, Placed

__all__ = ["created", "dropped", "found", "lost", "operation", "saw", "wrote"]


def wrote(seq: int, entity_id: int, version: int, by: str, *, operation_id: str | None = None) -> Placed:
    """One version of an entity."""
    return Placed(seq, operation_id or f"o{by}", by, entity_id, version, False, False, ())


def created(seq: int, entity_id: int, name: str, by: str, *, parent_id: int = 0, family: str = "metalake") -> Placed:
    """The first version, and its name."""
    return Placed(seq, f"o{by}", by, entity_id, 1, False, False, (Named(parent_id, family, name, entity_id),))


def dropped(seq: int, entity_id: int, name: str, by: str) -> Placed:
    """Gone, and its name with it."""
    return Placed(seq, f"o{by}", by, entity_id, 99, True, True, (Named(0, "metalake", name, None),))


def saw(path: str | None, entity_id: int | None = None, version: int | None = None) -> Seen:
    """What was read: an entity, or that nothing was there."""
    return Seen(path, entity_id is not None, entity_id, version)


def lost(cause: str, entity_id: int | None = None, expected: int | None = None) -> Lost:
    return Lost(cause, entity_id, expected)


def operation(
    who: str,
    start: int,
    end: int | None,
    *,
    action: str = "alter",
    outcome: str = "applied",
    reads: Sequence[Seen] = (),
    events: Sequence[Placed] = (),
    conflicts: Sequence[Lost] = (),
    entity_id: int | None = None,
    version: int | None = None,
    helped: bool | None = None,
    held: tuple[int | None, int | None] = (None, None),
    clock: str = "here",
) -> ClientOperation:
    """One operation of ``client/number``."""
    client, _, number = who.partition("/")
    if action in ("load", "list"):
        outcome = "read"
    return ClientOperation(
        client,
        int(number),
        action,
        "metalake",
        None,
        clock,
        start,
        end,
        outcome,
        entity_id,
        version,
        helped,
        *held,
        None,
        start / 1e9,
        None,
        tuple(conflicts),
        tuple(reads),
        tuple(events),
    )


def found(operations: Iterable[ClientOperation], *, before: Iterable[Placed] = (), since: int = 0) -> list[Finding]:
    """Sweep over a history; ``before``: what others wrote."""
    sweep = Sweep(since)
    sweep.place(before)
    findings: list[Finding] = []
    for told in sorted(operations, key=lambda one: one.start):
        findings += sweep.take(told)
    return [*findings, *sweep.close()]
