"""A planted fault, and the program that must find it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain

from metastore.backends.memory.backend import MemoryBackend
from metastore.clock import Clock
from tests.interleaving.callers import CALLERS, HANDED, MET
from tests.interleaving.chained import CHAINED
from tests.interleaving.process import Wrap
from tests.interleaving.programs import PROGRAMS, Program
from tests.interleaving.together import TOGETHER

__all__ = ["Mutant"]


@dataclass(frozen=True)
class Mutant:
    """One fault, the program that finds it, and what it says then."""

    name: str
    program: str
    says: str
    make: Callable[[Clock], MemoryBackend] = MemoryBackend
    wrap: Wrap | None = None
    slow: bool = False
    broken: Callable[[], AbstractContextManager[object]] = nullcontext
    forgets: tuple[str, ...] = ()
    most_faults: int = 1

    def planted(self) -> Program:
        programs = (*PROGRAMS, *TOGETHER, *CHAINED, *HANDED, *CALLERS, *chain(*MET.values()))
        (found,) = [p for p in programs if p.name == self.program]
        return replace(
            found,
            make=self.make,
            wrap=self.wrap,
            broken=self.broken,
            forgets=self.forgets,
            most_faults=self.most_faults,
        )
