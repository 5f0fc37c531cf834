"""The tool raises its error in the call under test, and nowhere else."""

from __future__ import annotations

import gc
import json
from functools import partial
from weakref import finalize

from tests.interrupts.raising import Raising


class _Ring:
    """Garbage that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


def _note(ended: list[str]) -> None:
    ended.append("ended")


def test_what_the_collector_ends_meanwhile_is_no_line_of_the_call() -> None:
    """A store of an earlier test closes its connections so, in the code under test."""
    ended: list[str] = []
    gc.collect()
    finalize(_Ring(), _note, ended)
    raising = Raising({__file__}, 1, MemoryError)
    raising.run(partial(json.loads, f"[{'[],' * 5_000}[]]"))  # more than the collector waits for
    assert raising.left == 1
    gc.collect()
    assert ended
