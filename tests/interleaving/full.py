"""The larger programs, which take minutes: three processes with faults, several faults in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.interleaving.programs import PROGRAMS, Program, named

__all__ = ["FULL"]


def _larger() -> Iterator[Program]:
    for program in PROGRAMS:
        everybody = tuple(range(len(program.processes)))
        if program.full:
            continue
        if program.name != "three hot alters":
            yield replace(program, name=f"{program.name}; a call fails", crash=(), lose=(), fail=everybody)
        if len(everybody) == 2 and not program.jumps:
            yield replace(program, name=f"{program.name}; two faults", most_faults=2)
            yield replace(program, name=f"{program.name}; order of arrival", tick=1)
    for name in ("three alters", "two alters, rename", "two alters, rename of the parent", "transaction, two alters"):
        yield named(name, name=f"{name}; a crash", crash=(0, 1, 2))
        yield named(name, name=f"{name}; a lost answer", lose=(0, 1))


FULL: tuple[Program, ...] = tuple(_larger())
