"""Paths of things that others rename and move: where one was last, and where else it may be."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Whereabouts"]


class Whereabouts:
    """The places where a thing may be; one looks for it in one after the other."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = tuple(places)
        self._at = 0

    @property
    def here(self) -> str:
        """Where it is believed to be."""
        return self._places[self._at]

    def elsewhere(self, place: str) -> None:
        """It is known to be at ``place`` now."""
        self._at = self._places.index(place)

    def missed(self) -> None:
        """It was not there: look at the next place."""
        self._at = (self._at + 1) % len(self._places)

    def others(self) -> list[str]:
        """The places where it is not believed to be."""
        return [place for place in self._places if place != self.here]
