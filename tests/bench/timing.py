"""Fair timings on a machine that does other things too: variants take turns, ratios are of one turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["interleaved", "ratios", "seconds"]


def seconds(work: Callable[[], object]) -> float:
    """Run ``work`` once, without Python's garbage collector; return how long it took."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    finally:
        gc.enable()


def interleaved(variants: Mapping[str, Callable[[], float]], runs: int) -> dict[str, list[float]]:
    """Run every variant ``runs`` times in turn, each time another one first; return what each gave.

    One turn before the first is thrown away.
    """
    names = list(variants)
    given: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1, runs):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            value = variants[name]()
            if turn >= 0:
                given[name].append(value)
    return given


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return above/below of each turn."""
    return [a / b for a, b in zip(above, below, strict=True)]
