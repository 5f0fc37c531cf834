"""The whereabouts of an entity that other clients rename and move: its last path, and other possible paths."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Whereabouts"]


class Whereabouts:
    """The possible paths of an entity. A client tries one after the other."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = tuple(places)
        self._at = 0

    @property
    def here(self) -> str:
        """The path where the entity was last."""
        return self._places[self._at]

    def elsewhere(self, place: str) -> None:
        """Set the path: the entity is at ``place`` now."""
        self._at = self._places.index(place)

    def missed(self) -> None:
        """Move on to the next path: the entity was not at this one."""
        self._at = (self._at + 1) % len(self._places)

    def others(self) -> list[str]:
        """Return the other paths."""
        return [place for place in self._places if place != self.here]
