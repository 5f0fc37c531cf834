"""Mutants that no test can find, or need not: each with its reason.

A key is a mutant's name, which holds the changed text. ``make test`` checks that each is still made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["ARGUED"]

ARGUED: Final[Mapping[str, str]] = {}
