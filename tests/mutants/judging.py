"""Judge one mutant: which test fails with it, and passes without it."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from tests.faults.running import Ended, planted, run_tests
from tests.mutants.areas import Area
from tests.mutants.generate import Mutant
from tests.mutants.near import near

__all__ = ["Judge", "Verdict"]

_LONGEST_TEST: Final = 90
"""After how many seconds a test that hangs is stopped. Many mutants make one hang."""
_FAILURES: Final = 5
"""How many tests that fail without the mutant too are passed over."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant. ``test``: the one that found it, or the reason why none need."""

    mutant: Mutant
    area: Area
    said: Literal["found", "argued", "survived", "unclear"]
    test: str = ""
    seconds: float = 0.0


@dataclass
class Judge:
    """Judge mutants, and remember which tests pass without any."""

    argued: Mapping[str, str]
    near_only: bool = False
    """Run the nearest tests, and no others."""
    _sound: dict[tuple[str, ...], bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, item: tuple[Area, Mutant], copy: Path) -> Verdict:
        """Plant the mutant in the copy, and run the tests of its area until one fails that passes without it."""
        area, mutant = item
        if mutant.name in self.argued:
            return Verdict(mutant, area, "argued", self.argued[mutant.name])
        began = monotonic()
        said, test = self._found(mutant, area, copy)
        return Verdict(mutant, area, said, test, monotonic() - began)

    def _found(self, mutant: Mutant, area: Area, copy: Path) -> tuple[Literal["found", "survived", "unclear"], str]:
        for tests in (near(mutant.path), *([] if self.near_only else [area.then])):
            passed_over: list[str] = []
            for _ in range(_FAILURES):
                arguments = [*shlex.split(tests), "--timeout", str(_LONGEST_TEST), *passed_over]
                with planted(mutant.fault(tests), copy):
                    ended = run_tests(arguments, copy)
                if ended.code == 0:
                    break
                again = [ended.test] if ended.test else _short(arguments, ended)
                if self._passes(again, copy):
                    return "found", ended.test or ended.said.rpartition("\n")[2]
                if not ended.test:
                    return "unclear", ended.said.rpartition("\n")[2]
                passed_over += ["--deselect", ended.test]
            else:
                return "unclear", f"{_FAILURES} tests fail without it too, the last is {ended.test}"
        return "survived", ""

    def _passes(self, arguments: Sequence[str], copy: Path) -> bool:
        """Tell whether tests pass without a mutant."""
        key = tuple(arguments)
        with self._lock:
            known = self._sound.get(key)
        if known is None:
            known = run_tests(arguments, copy).code == 0
            with self._lock:
                self._sound[key] = known
        return known


def _short(arguments: list[str], ended: Ended) -> list[str]:
    """Return what to run where no test was named: a mutant that cannot be imported fails before any."""
    return arguments if ended.code is None else [*arguments, "--collect-only"]
