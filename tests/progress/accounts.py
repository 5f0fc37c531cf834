"""What callers were told, beside what history says: each operation by a principal of its own.

A caller notes before a call what it is about to do, and after it what came of it (:class:`Ledger`).
The checker compares: acknowledged is applied once; raised with "not applied" is absent; killed in
the middle, or "outcome unknown", is applied once or not at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import metastore as ms
from tests.concurrency.raw import rows

__all__ = ["LOST", "Ledger", "compared", "written", "wrong"]

LOST = "ok, but applied 0 times"
"""What is said of a call that was acknowledged, and is not in history."""

UNKNOWN = (ms.OutcomeUnknown,)
LATE = 4.0
"""How much later than its deadline a call may return (seconds): 0.45 s by design, the rest for a busy machine."""


class Ledger:
    """A file with one line for each call begun and one for each call that came back; nothing is buffered."""

    def __init__(self, path: Path, name: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name, self._number = name, 0

    def call(self, function: Callable[..., object], deadline: float) -> bool:
        """Call it with a ``principal`` of its own; note what came of it. False: it raised an error of ours."""
        self._number += 1
        principal = f"{self._name}-{self._number}"
        self._note("begun", principal)
        began, said = time.monotonic(), "ok"
        try:
            function(principal=principal)
        except UNKNOWN:
            said = "unknown"
        except ms.MetastoreError as error:
            said = type(error).__name__
        late = time.monotonic() - began - deadline
        self._note(said, principal, *([f"late {late:.2f}"] if late > LATE else []))
        return said == "ok"

    def close(self) -> None:
        os.close(self._file)

    def _note(self, *words: str) -> None:
        os.write(self._file, (" ".join(words) + "\n").encode())


def wrong(
    url: str, ledgers: Iterable[Path], *, punctual: Callable[[str], bool] = lambda _: True
) -> tuple[list[str], dict[str, int]]:
    """Return what does not agree with history, and how many calls came back with what.

    ``punctual``: whether the process of a ledger of this name had to end its calls in time.
    """
    return compared(written(url), ledgers, punctual=punctual)


def compared(
    applied: Mapping[str, int], ledgers: Iterable[Path], *, punctual: Callable[[str], bool] = lambda _: True
) -> tuple[list[str], dict[str, int]]:
    """Do the same with how often each principal's call was applied (:func:`written`)."""
    said: dict[str, str] = {}
    found: list[str] = []
    for path in ledgers:
        for line in path.read_text().splitlines():
            word, principal, *late = line.split(" ", 2)
            said[principal] = word
            found += [f"{principal}: {late[0]} s"] if late and punctual(path.name) else []
    counts = dict(applied)
    for principal, word in said.items():
        times = counts.pop(principal, 0)
        fits = {"ok": (1,), "unknown": (0, 1), "begun": (0, 1)}.get(word, (0,))
        if times not in fits:
            found.append(f"{principal}: {word}, but applied {times} times")
    found += [f"{principal}: applied {times} times, and nobody asked for it" for principal, times in counts.items()]
    totals: dict[str, int] = {}
    for word in said.values():
        totals[word] = totals.get(word, 0) + 1
    return found, totals


def written(url: str) -> dict[str, int]:
    """Return how many operations each principal of a ledger has in history."""
    sql = """SELECT principal, count(*) FROM (SELECT DISTINCT principal, operation_id FROM operation
      WHERE seq IS NOT NULL AND principal LIKE 'p%-%') AS o GROUP BY principal"""
    return dict(rows(url, sql))
