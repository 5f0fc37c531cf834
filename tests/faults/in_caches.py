"""Faults of the caches."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_CACHES"]

IN_CACHES: tuple[Fault, ...] = (
    Fault(
        "Cache: positions are noted before what they change is evicted",
        "metastore/cache/validated.py",
        "            self._evict(answer)\n            if not positions.apply(answer, after):\n",
        "            noted = positions.apply(answer, after)\n            self._evict(answer)\n            if not noted:\n",
        "tests/cache/test_interrupts.py",
    ),
)
