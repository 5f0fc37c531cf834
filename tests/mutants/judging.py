"""Judge one mutant: which test fails with it, and passes without it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from tests.faults.running import Ended, planted, run_tests
from tests.mutants.areas import Area
from tests.mutants.generate import Mutant
from tests.mutants.near import Near

__all__ = ["Judge", "Verdict"]

_LONGEST_TEST: Final = 40
"""After how many seconds a test that hangs is stopped. Many mutants make one hang."""
_FAILURES: Final = 5
"""How many tests that fail without the mutant too are passed over."""
_ARGUMENTS: Final = ("--assert=plain", "--timeout", str(_LONGEST_TEST))


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
    tests: Near
    near_only: bool = False
    """Run the nearest tests, and no others."""
    _sound: dict[tuple[str, ...], bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, item: tuple[Area, Mutant], copy: Path) -> Verdict:
        """Plant the mutant in the copy, and run the tests that reach it until one fails that passes without it."""
        area, mutant = item
        if mutant.name in self.argued:
            return Verdict(mutant, area, "argued", self.argued[mutant.name])
        began = monotonic()
        said, test = self._found(mutant, copy)
        return Verdict(mutant, area, said, test, monotonic() - began)

    def _found(self, mutant: Mutant, copy: Path) -> tuple[Literal["found", "survived", "unclear"], str]:
        lots = self.tests.of(mutant.path, mutant.function)
        if not lots:
            return "survived", "no test calls it"
        for tests in lots[:1] if self.near_only else lots:
            passed_over: set[str] = set()
            for _ in range(_FAILURES):
                arguments = [*(test for test in tests if test not in passed_over), *_ARGUMENTS]
                with planted(mutant.fault(""), copy):
                    ended = run_tests(arguments, copy)
                if ended.code == 0:
                    break
                if self._passes(_again(arguments, ended), copy):
                    return "found", ended.test or ended.said.rpartition("\n")[2]
                if ended.test not in tests:
                    return "unclear", ended.said.rpartition("\n")[2]
                passed_over.add(ended.test)
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


def _again(arguments: list[str], ended: Ended) -> list[str]:
    """Return what to run without the mutant. One that cannot be imported fails before any test."""
    if "::" in ended.test:
        return [ended.test, *_ARGUMENTS]
    return arguments if ended.code is None else [*arguments, "--collect-only"]
