"""Track the place of one entity before or after each step of the feed."""

from __future__ import annotations

from dataclasses import dataclass

from metastore.feed.subject import is_of_entity, names_in
from metastore.kinds.families import families_of
from metastore.kinds.registry import kind_named
from metastore.port.records import Step

__all__ = ["Standing"]

_Names = tuple[str, ...]


@dataclass
class Standing:
    """The place of an entity at one position."""

    id: int
    kind: str
    path: _Names | None = None
    """Its live path; None: it is not live."""
    dropped: tuple[int, _Names] | None = None
    """The nearest dropped entity, itself or an ancestor, and the names from there down to it."""
    guessed: bool = False
    """Whether the entity was purged later. Until an earlier step is undone, it may be live or dropped here."""

    def apply(self, step: Step) -> None:
        """Note the entity's place after a step."""
        if not is_of_entity(step):
            return
        before, after = names_in(step.path_before), names_in(step.path_after)
        if step.entity_id == self.id:
            self.path, self.dropped = after, None if after is not None else (self.id, ())
        elif self._comes_back(step, after):
            return
        elif before is not None and step.action in ("rename", "move", "drop"):
            self._carry(step, before, after)

    def undo(self, step: Step) -> None:
        """Note the entity's place before a step."""
        if not is_of_entity(step):
            return
        before, after = names_in(step.path_before), names_in(step.path_after)
        if step.entity_id == self.id:
            self.path, self.guessed = before, step.action == "purge"
            self.dropped = (self.id, ()) if step.action == "restore" else None
        elif step.action == "drop" and self._comes_back(step, before):
            return
        elif after is not None and step.action in ("rename", "move", "restore"):
            self._carry(step, after, before)

    def _comes_back(self, step: Step, path: _Names | None) -> bool:
        """If a step restores the dropped entity to a path, note the place below it; return whether it does."""
        if path is None or self.dropped is None or self.dropped[0] != step.entity_id:
            return False
        self.path, self.dropped = (*path, *self.dropped[1]), None
        return True

    def _carry(self, step: Step, there: _Names, here: _Names | None) -> None:
        """Note a move from ``there`` to ``here`` (None: a drop), if this entity is below ``there``."""
        if self.path is None or self.path[: len(there)] != there:
            return
        if not _can_lead(step.kind or "", len(there), self.kind, len(self.path)):
            return
        rest = self.path[len(there) :]
        self.path, self.dropped = ((*here, *rest), None) if here is not None else (None, (step.entity_id or 0, rest))

    def holds(self, path: _Names, kind: str | None) -> bool:
        """Whether a path to a ``kind`` (None: unknown) leads through the entity."""
        if self.path is None or len(path) <= len(self.path) or path[: len(self.path)] != self.path:
            return False
        if not kind_named(self.kind).container:  # it has only rows, and another entity may have the same path
            return False
        return kind is None or _can_lead(self.kind, len(self.path), kind, len(path))


def _can_lead(upper: str, high: int, lower: str, low: int) -> bool:
    """Whether a path of ``low`` names can lead through one of ``high`` names. If a kind is unknown, it can."""
    above, below = families_of(kind_named(upper), high), families_of(kind_named(lower), low)
    return above is None or below is None or below[:high] == above
