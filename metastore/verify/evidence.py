"""Check that no commit relies on a right that was taken away before the commit.

Invariant 14: in the order of the feed, the scope versions that a commit notes as its evidence are those of that time. A
commit that takes a right away increases a scope version. The new one is in the commit's note, or, after an exclusive
operation, in its row. Both commits lock the guard before they draw their positions, so the feed has the order in which
the database decided. The check keeps two numbers in memory for each entity with a scope version above 1 in a step or
in the evidence of a commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["Evidence"]


class Evidence:
    """Reads the feed, and compares the evidence of its commits with the scope versions of that time."""

    def __init__(self) -> None:
        self._least: dict[int, int] = {}  # by entity: the lowest scope version that it can have by now
        self._position: dict[int, int] = {}  # by entity: the position where this was seen

    def stood(self, seq: int, entity_id: int, scope_version: int | None) -> None:
        """Note the scope version that an entity has after a step."""
        if scope_version is not None and scope_version > self._least.get(entity_id, 1):
            self._least[entity_id], self._position[entity_id] = scope_version, seq

    def commit(self, seq: int, evidence: Mapping[int, int], raised: Mapping[int, int]) -> Iterator[str]:
        """Note the evidence of a commit, and the scope versions that it increased. Yield the problems."""
        for entity_id, scope in evidence.items():
            least = self._least.get(entity_id, 1)
            if scope < least:
                since = self._position.get(entity_id, 0)
                yield (
                    f"position {seq} relies on the rights of scope version {scope} of entity {entity_id}, which had "
                    f"{least} since position {since}: a right was taken away before the commit"
                )
            self.stood(seq, entity_id, scope)
        for entity_id, scope in raised.items():
            self.stood(seq, entity_id, scope)

    def beyond(self, entity_id: int, scope_version: int) -> str | None:
        """Return the problem if a commit relies on a scope version that the entity never had; None: there is none."""
        least = self._least.get(entity_id, 1)
        if least <= scope_version:
            return None
        since = self._position[entity_id]
        return f"position {since} relies on, or made, its scope version {least}, but it has {scope_version}"
