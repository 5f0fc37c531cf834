"""Faults of the caches."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_CACHES"]

IN_CACHES: tuple[Fault, ...] = (
    Fault(
        "Cache: positions are noted before what they change is evicted",
        "metastore/cache/validated.py",
        "        for change in answer.rows:\n            self.entries.evict(change)\n",
        "        positions.apply(answer, after)\n"
        "        for change in answer.rows:\n            self.entries.evict(change)\n",
        "tests/cache/test_interrupts.py",
    ),
)
