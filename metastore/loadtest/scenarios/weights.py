"""Weighted random choice, and the weights of Zipf's law."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

__all__ = ["Weighted", "zipf"]

T = TypeVar("T")


class Weighted(Generic[T]):
    """Draws ``things`` at random, with probabilities in proportion to their weights."""

    def __init__(self, things: Sequence[T], weights: Iterable[float]) -> None:
        self._things = things
        self._sums = list(accumulate(weights))

    def draw(self, dice: Random) -> T:
        """Return one of the things."""
        place = bisect(self._sums, dice.random() * self._sums[-1])
        return self._things[min(place, len(self._things) - 1)]


def zipf(count: int, skew: float) -> Weighted[int]:
    """Draw 0 … ``count`` - 1, the number ``n`` in proportion to ``1 / (n + 1) ** skew``; skew 0: all equally often."""
    return Weighted(range(count), ((n + 1) ** -skew for n in range(count)))
