"""Check that no commit rests on a right that was taken away before it.

Invariant 14: in the order of the feed, the scope versions that a commit notes as its evidence are those of that time.
A commit that takes a right away raises one and notes it, or is an exclusive operation, whose row has it. Both lock
the guard before they draw their position, so that the feed has the order in which the database decided. Memory: two
numbers for each entity whose scope version is known to have grown, or that is evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["Evidence"]


class Evidence:
    """Reads the feed, and compares the evidence of its commits with the scope versions of that time."""

    def __init__(self) -> None:
        self._least: dict[int, int] = {}  # the lowest scope version that an entity can have by now
        self._position: dict[int, int] = {}  # the position where that was seen

    def stood(self, seq: int, entity_id: int, scope_version: int | None) -> None:
        """Read the scope version that an entity has after a step."""
        if scope_version is not None and scope_version > self._least.get(entity_id, 1):
            self._least[entity_id], self._position[entity_id] = scope_version, seq

    def commit(self, seq: int, evidence: Mapping[int, int], raised: Mapping[int, int]) -> Iterator[str]:
        """Read what a commit rests on, and what it raised; yield what is wrong."""
        for entity_id, scope in evidence.items():
            least = self._least.get(entity_id, 1)
            if scope < least:
                since = self._position.get(entity_id, 0)
                yield (
                    f"position {seq} rests on the rights of scope version {scope} of entity {entity_id}, which had "
                    f"{least} since position {since}: a right was taken away before the commit"
                )
            self.stood(seq, entity_id, scope)
        for entity_id, scope in raised.items():
            self.stood(seq, entity_id, scope)

    def beyond(self, entity_id: int, scope_version: int) -> str | None:
        """Return what is wrong if a commit rests on a scope version that the entity never had."""
        least = self._least.get(entity_id, 1)
        if least <= scope_version:
            return None
        since = self._position[entity_id]
        return f"position {since} rests on, or made, its scope version {least}, and it has {scope_version}"
