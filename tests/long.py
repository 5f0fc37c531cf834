"""Which tests ``make test`` leaves out, and which share of them a run takes.

``make test`` runs what is not marked ``long``, ``make test-long`` the rest. What takes minutes, or starts servers and
clusters for minutes, is marked ``nightly``: it is long, and no share has it. ``--share 3/10`` takes the fourth tenth of
the long tests. A test stays in its share whatever is added beside it, so ten shares run all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from zlib import crc32

import pytest

__all__ = ["in_share", "leave_out", "long_unless", "share"]

T = TypeVar("T")


def long_unless(values: Iterable[T], each_run: Callable[[T], bool]) -> list[Any]:
    """Return parameters: ``make test`` tries those of which ``each_run`` is true, ``make test-long`` the others.

    A tuple holds the values of several arguments.
    """
    return [value if each_run(value) else _long(value) for value in values]


def _long(value: object) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.long)


def leave_out(config: pytest.Config, items: list[pytest.Item], which: Callable[[pytest.Item], bool]) -> None:
    """Take tests out of those that are chosen, and count them as deselected."""
    left = {item for item in items if which(item)}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=[*left])


def share(text: str) -> tuple[int, int]:
    """Return the number of a share, from 0, and how many there are, from a text such as ``3/10``."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise pytest.UsageError(f"--share takes a number from 0 and how many there are, such as 3/10; not {text!r}")
    return int(found[1]), int(found[2])


def in_share(item: pytest.Item, number: int, of: int) -> bool:
    """Return whether a long test is in a share. Tests that have something made for them together stay together."""
    group = item.get_closest_marker("xdist_group")
    together = group is not None and group.args[0] != "spark"  # all tests of Spark have one JVM: they are too many
    key = group.args[0] if together and group is not None else item.nodeid
    return item.get_closest_marker("nightly") is None and crc32(key.encode()) % of == number
