"""Choose mutants: for each area its share, by numbers that come from the mutants' names.

So a change of the sources exchanges only mutants whose lines it changes. Kinds that are rare and hard to find, such as
a row lock that is missing, have more weight than those of which each function has several.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Final

from tests.mutants.areas import AREAS, Area
from tests.mutants.generate import Mutant, mutants_of

__all__ = ["chosen", "mutants_in"]

_WEIGHTS: Final = {
    "condition": 0.25,
    "opposite": 0.15,
    "swapped": 0.1,
    "statement": 0.6,
    "term": 0.5,
    "raise": 0.5,
    "boundary": 2.0,
    "sql condition": 1.5,
    "sql boundary": 2.0,
    "sql number": 2.0,
    "sql order": 2.0,
    "sql lock": 6.0,
}
_MOST_IN_A_FUNCTION: Final = 2


def mutants_in(tree: Path, area: Area) -> list[Mutant]:
    """Return all mutants of an area."""
    return [mutant for file in area.files(tree) for mutant in mutants_of(tree, file)]


def chosen(tree: Path, seed: int) -> list[tuple[Area, Mutant]]:
    """Return the chosen mutants of all areas; ``seed`` chooses others."""
    return [(area, mutant) for area in AREAS for mutant in _of_area(mutants_in(tree, area), area.share, seed)]


def _of_area(mutants: list[Mutant], share: int, seed: int) -> list[Mutant]:
    """Draw a weighted sample: the smallest keys (Efraimidis and Spirakis, 2006)."""
    functions: Counter[tuple[str, str]] = Counter()
    found: list[Mutant] = []
    for mutant in sorted(mutants, key=lambda one: _key(one, seed)):
        if len(found) == share:
            break
        if functions[mutant.path, mutant.function] < _MOST_IN_A_FUNCTION and mutant.differs():
            functions[mutant.path, mutant.function] += 1
            found.append(mutant)
    return found


def _key(mutant: Mutant, seed: int) -> float:
    digest = hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()
    uniform = (int.from_bytes(digest[:8], "big") + 1) / 2**64
    return -math.log(uniform) / _WEIGHTS.get(mutant.kind, 1.0)
