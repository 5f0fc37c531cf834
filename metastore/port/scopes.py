"""Scope versions that were read, and two ways to combine those from different times. Pure.

A scope version read later must not vouch for facts read earlier: in between, a right may have been taken away. So
:class:`Scopes` is not a mapping. It has no ``|``, and cannot be merged into a ``dict``. To combine several, either
require that they agree, or take the older one, so that a commit which requires it fails.
"""

from __future__ import annotations

from collections.abc import Iterable

Pairs = tuple[tuple[int, int], ...]
"""(id, scope version)."""


class Scopes:
    """Scope versions of entities, each entity once."""

    __slots__ = ("_by_id", "pairs")

    pairs: Pairs
    """All pairs, in the order in which they were given."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._by_id: dict[int, int] = {}
        for i, scope in pairs:
            self._by_id[i] = min(scope, self._by_id.get(i, scope))
        self.pairs = tuple(self._by_id.items())

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __contains__(self, entity_id: int) -> bool:
        return entity_id in self._by_id

    def get(self, entity_id: int, default: int) -> int:
        """Return the scope version of an entity; ``default``: it is not among them."""
        return self._by_id.get(entity_id, default)

    def all_in(self, other: Scopes) -> bool:
        """Whether ``other`` has the same scope version for each of these entities."""
        return self._by_id.items() <= other._by_id.items()

    def agrees(self, other: Scopes) -> bool:
        """Whether no entity has different scope versions in the two."""
        return all(other._by_id.get(i, scope) == scope for i, scope in self.pairs)

    def without(self, ids: Iterable[int]) -> Scopes:
        """Return the scope versions of all entities except ``ids``."""
        gone = {*ids}
        return Scopes([pair for pair in self.pairs if pair[0] not in gone]) if gone else self

    def sorted(self) -> Scopes:
        """Return the same scope versions in the order of ids."""
        return Scopes(sorted(self.pairs))

    @staticmethod
    def agreed(many: Iterable[Scopes]) -> Scopes | None:
        """Return the union; None: two of them disagree about an entity, so one is outdated: read again."""
        found: Scopes | None = None
        for one in many:
            if found is None:
                found = one
            elif not found.agrees(one):
                return None
            elif not one.all_in(found):
                found = Scopes([*found.pairs, *one.pairs])
        return Scopes() if found is None else found

    @staticmethod
    def older(many: Iterable[Scopes]) -> Scopes:
        """Return the union. Of two scope versions of an entity take the older: a commit that requires it fails."""
        return Scopes([pair for one in many for pair in one.pairs])
