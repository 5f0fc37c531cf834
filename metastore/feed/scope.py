"""What stands below a path. Changes are compared with it as loads compare names: below a folding catalog, folded."""

from __future__ import annotations

from dataclasses import dataclass

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.entity import Change, Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS
from metastore.names import Path, fold, format_path, parse_path
from metastore.operation.request import committed
from metastore.operation.session import Session
from metastore.port.records import Lookup, Step

__all__ = ["Scope"]

_OWNERS = ("table", "model")
"""The kinds below which owned rows have paths."""


@dataclass(frozen=True)
class Scope:
    """A path, and how many of its first names are compared as they are; the others are folded."""

    names: tuple[str, ...]
    exact: int
    there: bool
    """Whether the path leads to a live entity, or the caller had the entity."""

    @classmethod
    def of(cls, session: Session, under: Path | Entity) -> Scope:
        """Return the scope of an entity, or of a path. Raises InvalidArgument."""
        if isinstance(under, Entity):
            committed(session.backend, under)
            names, there = parse_path(under.path), True
        else:
            names, there = parse_path(under), False
        families = {f for kind in KINDS.values() if (f := families_of(kind, len(names))) is not None}
        lookups = [Lookup(family, names) for family in sorted(families)]
        resolved = session.backend.resolve(lookups) if lookups else []
        nodes = max((one.nodes for one in resolved), key=len, default=())
        exact = next((n + 1 for n, node in enumerate(nodes) if node.fold), len(names))
        owned = len(nodes) == len(names) - 1 and bool(nodes) and nodes[-1].kind in _OWNERS
        there = there or owned or any(one.record is not None for one in resolved)
        return cls(_folded(names, exact), exact, there)

    def has(self, change: Change | Step) -> bool:
        """Whether a change is of the path, or of what was below it at that time."""
        return any(path is not None and self._begins(path) for path in (change.path_before, change.path_after))

    def _begins(self, path: str) -> bool:
        try:
            names = parse_path(path)
        except InvalidArgument:  # a damaged row
            return False
        return _folded(names[: len(self.names)], self.exact) == self.names

    def check(self) -> None:
        """Raise EntityNotFound if the path leads to nothing."""
        if not self.there:
            path = format_path(self.names)
            raise EntityNotFound(path, f"{path} does not exist, and there are no changes below it; correct the path")


def _folded(names: tuple[str, ...], exact: int) -> tuple[str, ...]:
    return (*names[:exact], *map(fold, names[exact:]))
