"""Which of many parameters each run tries: the rest is marked ``long``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

__all__ = ["long_unless"]

T = TypeVar("T")


def long_unless(values: Iterable[T], each_run: Callable[[T], bool]) -> list[Any]:
    """Return parameters: ``make test`` tries those of which ``each_run`` is true, ``make test-long`` the others.

    A tuple holds the values of several arguments.
    """
    return [value if each_run(value) else _long(value) for value in values]


def _long(value: object) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.long)
