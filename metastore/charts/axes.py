"""Choose the divisions of an axis."""

from __future__ import annotations

from math import floor, log10

__all__ = ["every", "steps"]


def steps(high: float, most: int = 5) -> list[float]:
    """Return at most ``most`` + 1 round numbers, from zero to the first one that is not below ``high``."""
    if high <= 0:
        return [0.0, 1.0]
    rough = high / most
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * place for place in range(most + 2) if step * (place - 1) < high * (1 - 1e-9)]


def every(count: int, most: int) -> int:
    """Return the least n for which every n-th of ``count`` labels gives at most ``most`` labels."""
    return max(1, -(-count // most))
