"""Find the steps of history that gc may delete, in the memory model."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.memory.past import until
from metastore.backends.memory.tables import Tables
from metastore.port.conditions import LIVE
from metastore.port.records import Step
from metastore.port.upkeep import HistoryLimits

_NEVER = 1 << 62


def needless(tables: Tables, step: Step, limits: HistoryLimits) -> bool:
    """Whether gc may delete a step: it is old, has ``keep`` newer versions or no row, and the past does not need it."""
    history = [s for s in tables.steps if s.entity_id == step.entity_id and s.seq is not None]
    older = [s for s in history if (s.version or 0) < (step.version or 0)]
    if step.time >= limits.before or (step.seq or 0) > limits.unread or any(s.time >= limits.before for s in older):
        return False
    current = tables.row(step.entity_id)
    if current is not None and (step.version or 0) > current.version - limits.keep:
        return False
    gone_at = next_seen(tables, step)
    # keep the last step of a deleted row until its older steps are gone, or one of these would seem the newest
    first = min(map(until, [*older, step])) if _is_last(tables, step) and step.state != LIVE else until(step)
    return gone_at <= limits.horizon and not any(first <= pin.seq < gone_at for pin in tables.pins.values())


def next_seen(tables: Tables, step: Step) -> int:
    """Return the position from which the past does not show a step; 0 if its row, or the parent, is long gone."""
    if step.state is None:
        return 0
    later = [s for s in tables.steps if s.entity_id == step.entity_id and (s.version or 0) > (step.version or 0)]
    later = [s for s in later if s.seq is not None]
    if later:
        return until(min(later, key=lambda s: s.version or 0))
    if step.state != LIVE:
        return until(step)
    if tables.row(step.entity_id) is not None:
        return _NEVER
    # the entity was dropped together with an ancestor, or the relation with one of its ends
    return min(_gone_at(tables, above) for above in (step.parent_id, step.other_id) if above is not None)


def _gone_at(tables: Tables, entity_id: int) -> int:
    """Return the position from which the past does not show an entity; 0: it was deleted long ago, without steps."""
    above = [s for s in tables.steps if s.entity_id == entity_id and s.seq is not None]
    return next_seen(tables, max(above, key=lambda s: s.version or 0)) if above else 0


def _is_last(tables: Tables, step: Step) -> bool:
    return not any(s.entity_id == step.entity_id and (s.version or 0) > (step.version or 0) for s in tables.steps)


def with_names(kept: Sequence[Step], doomed: Sequence[Step]) -> list[Step]:
    """Return the steps that stay; if the step that took a name is deleted, the entity's next step gets its name."""
    took: dict[tuple[int | None, int], Step] = {}
    for gone in doomed:
        if gone.key is not None and gone.owner_id is None:
            later = [s.version or 0 for s in kept if s.entity_id == gone.entity_id]
            after = min((version for version in later if version > (gone.version or 0)), default=None)
            if after is not None:
                took[gone.entity_id, after] = gone
    return [_named(step, took.get((step.entity_id, step.version or 0))) for step in kept]


def _named(step: Step, took: Step | None) -> Step:
    if took is None or step.key is not None:
        return step
    if (step.parent_id, step.name) != (took.parent_id, took.name):
        return step
    return step._replace(family=took.family, key=took.key)
