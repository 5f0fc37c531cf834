"""The entities below a path. Names are compared as in a load: folded, below a catalog that folds case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from metastore.errors import EntityNotFound
from metastore.feed.subject import Subject, names_in, subjects_of
from metastore.kinds.families import families_of
from metastore.kinds.registry import kind_named
from metastore.managers.any_kind import found_at, lookups_of
from metastore.names import Path, fold, format_path, parse_path
from metastore.operation.session import Session
from metastore.port.backend import Backend, Reads
from metastore.port.records import Step

__all__ = ["Scope"]

_OWNERS = ("table", "model")
"""The kinds below which owned rows have paths."""


@dataclass(frozen=True)
class Scope:
    """A path, and how many of its first names are compared exactly; the others are folded."""

    backend: Backend
    names: tuple[str, ...]
    exact: int
    there: bool
    """Whether a live entity is at the path, or (if no kind is given) a live table or model is directly above it."""
    families: tuple[str, ...] | None
    """The families of the names on the path; None: any, because no entity is at the path now, and no kind is given."""
    _inside: set[tuple[int | None, int | None]] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, session: Session, under: Path, kind: str | None) -> Scope:
        """Return the scope of a path. Raises InvalidArgument if several kinds are there and ``kind`` is None."""
        names = parse_path(under)
        lookups = lookups_of(names, kind)
        resolved = session.backend.resolve(lookups) if lookups else []
        record = found_at(names, resolved, kind)
        nodes = max((one.nodes for one in resolved), key=len, default=())
        exact = next((n + 1 for n, node in enumerate(nodes) if node.fold), len(names))
        there = record is not None or (kind is None and _is_owner(session.backend, names[:-1]))
        of = kind if record is None else record.chain[-1].kind
        families = None if of is None else families_of(kind_named(of), len(names))
        # read without the user's rights, because ancestors may be hidden from the user
        whole = session.backend if session.access is None else session.access.backend
        return cls(whole, _folded(names, exact), exact, there, families)

    def see(self, steps: Sequence[Step]) -> None:
        """Take the next page of the feed, before :meth:`has` is called for its steps."""
        self._inside.clear()
        for step, subject in zip(steps, subjects_of(self.backend, steps, self._is_unclear), strict=True):
            paths = (names_in(step.path_before), names_in(step.path_after))
            if any(path is not None and self._begins(path) for path in paths) and self._agrees(step, subject):
                self._inside.add((step.entity_id, step.version))

    def has(self, step: Step) -> bool:
        """Whether a step of the page concerns the entity at the path, or one that was below it at that time."""
        return (step.entity_id, step.version) in self._inside

    def _begins(self, path: tuple[str, ...]) -> bool:
        return _folded(path[: len(self.names)], self.exact) == self.names

    def _is_unclear(self, subject: Subject) -> bool:
        return self.families is not None and any(self._begins(path) for path in subject.paths)

    def _agrees(self, step: Step, subject: Subject) -> bool:
        """Whether the subject of a step is in the families of the path, as far as that is known."""
        if self.families is None or subject.kind is None or not subject.paths:
            return True
        depth = len(subject.paths[0])
        families = families_of(kind_named(subject.kind), depth)
        if families is None:
            return True
        return families[: len(self.names)] == self.families[:depth]

    def check(self) -> None:
        """Raise EntityNotFound if no entity is at the path. A partition or a version is not checked, only its owner."""
        if not self.there:
            path = format_path(self.names)
            raise EntityNotFound(path, f"{path} does not exist, and there are no changes below it; correct the path")


def _is_owner(reads: Reads, names: tuple[str, ...]) -> bool:
    """Return whether a table or a model is at a path: its partitions or versions have paths below it."""
    lookups = [one for kind in _OWNERS for one in lookups_of(names, kind)]
    return bool(lookups) and any(one.record is not None for one in reads.resolve(lookups))


def _folded(names: tuple[str, ...], exact: int) -> tuple[str, ...]:
    return (*names[:exact], *map(fold, names[exact:]))
