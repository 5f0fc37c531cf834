"""The changes of one entity and of everything below it, followed by its id.

So changes of another entity at the same path, of another family or created later, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from metastore.feed.standing import Standing
from metastore.feed.subject import Subject, is_of_entity, subjects_of
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS
from metastore.port.backend import Backend
from metastore.port.past import NotKept
from metastore.port.records import Known, Step

__all__ = ["Tracked"]

_ALL = 1_000_000
"""A limit above the number of versions that a purged entity has left."""


@dataclass
class Tracked:
    """An entity, and its place after each step."""

    backend: Backend
    standing: Standing
    seq: int
    """The position of ``standing``; rows up to it whose commit ends later are not in ``standing``."""
    _begun: set[UUID] = field(default_factory=set)
    """The commits of several rows of which some rows were read, but not the last one."""
    _inside: set[tuple[int | None, int | None]] = field(default_factory=set)

    def see(self, steps: Sequence[Step]) -> None:
        """Take the next page of the feed, before :meth:`has` is called for its steps."""
        self._inside.clear()
        below = self._purged_below(steps)
        for step, subject in zip(steps, subjects_of(self.backend, steps, _is_unclear), strict=True):
            for one in self._skipped(step):
                self.standing.apply(one)
            if subject.id == self.standing.id or self._holds(step, subject, below):
                self._inside.add((step.entity_id, step.version))
            self.standing.apply(step)
            if step.through == step.seq:  # this is the commit's last row
                self._begun.discard(step.operation_id)

    def has(self, step: Step) -> bool:
        """Whether a step of the page concerns the entity, or one that was below it then."""
        return (step.entity_id, step.version) in self._inside

    def _skipped(self, step: Step) -> Iterator[Step]:
        """Yield the rows of a step's commit up to the position ``seq``, if this is the commit's first step after it."""
        if step.through is None or not step.ordinal or step.operation_id in self._begun:
            return
        self._begun.add(step.operation_id)
        yield from (one for one in self.backend.steps(step.operation_id) if (one.seq or 0) <= self.seq)

    def _holds(self, step: Step, subject: Subject, purged: set[int]) -> bool:
        if is_of_entity(step) and step.action == "purge":  # its path is the one at the time of the drop: use ids
            return subject.id in purged
        return any(self.standing.holds(path, subject.kind) for path in subject.paths)

    def _purged_below(self, steps: Sequence[Step]) -> set[int]:
        """Return the ids of the entities that these steps purge below this one, even if this one is dropped."""
        purges = [step for step in steps if is_of_entity(step) and step.action == "purge"]
        return {i for run in _runs(purges) for i in self._below(run)}

    def _below(self, run: Sequence[Step]) -> list[int]:
        """Return those of the entities in a run of purges that were below this one before the run."""
        ids = [step.entity_id or 0 for step in run]
        try:
            known = self.backend.past.by_id((run[0].seq or 0) - 1, ids, docs=False)
        except NotKept as kept:
            return [step.entity_id or 0 for step in run if self._is_above(step.parent_id, kept.since)]
        return [i for i, one in zip(ids, known, strict=True) if one is not None and self._is_on(one)]

    def _is_above(self, parent_id: int | None, since: int) -> bool:
        """Return whether a purged entity, whose past is not kept, was below this one, by the places of its parents."""
        while parent_id and parent_id != self.standing.id:
            try:
                (known,) = self.backend.past.by_id(since, [parent_id], docs=False)
            except NotKept as kept:
                return self._is_above(parent_id, kept.since)
            if known is not None:
                return self._is_on(known)
            steps = self.backend.history(parent_id, 0, _ALL)
            parent_id = steps[-1].parent_id if steps else None
        return parent_id == self.standing.id

    def _is_on(self, known: Known) -> bool:
        return any(node.id == self.standing.id for node in known.record.chain)


def _is_unclear(subject: Subject) -> bool:
    """Whether containers of several families may be above the subject of a step.

    The entity's place does not matter here: it may be created or moved within the page.
    """
    return any(_is_shared(depth, len(KINDS)) for path in subject.paths for depth in range(1, len(path)))


@lru_cache(maxsize=1024)
def _is_shared(depth: int, _kinds: int) -> bool:
    """Whether containers of several families have paths of ``depth`` names. That may change with each declared kind."""
    families = {families_of(kind, depth) for kind in KINDS.values() if kind.container}
    return len(families - {None}) > 1


def _runs(purges: Sequence[Step]) -> list[list[Step]]:
    """Return purges grouped into runs of consecutive positions, within which nothing moves."""
    runs = list[list[Step]]()
    for step in purges:
        if runs and (runs[-1][-1].seq or 0) + 1 == step.seq:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs
