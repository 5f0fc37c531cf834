"""Which tests ``make test`` leaves out, and which share of them a run takes.

``make test`` runs what is not marked ``long``, ``make test-long`` the rest. The marks ``one_in`` and ``each_value``
leave most cases of a test to the long ones, ``only_whole`` all, unless a run is told to be ``--whole``. What takes
minutes, or starts servers and clusters for minutes, is marked ``nightly``: it is long, and no share has it. ``--share
3/10`` takes the fourth tenth of the long tests. A test stays in its share whatever is added beside it, so ten shares
run all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from zlib import crc32

import pytest

__all__ = ["BACKENDS", "in_share", "leave_out", "long_unless", "named_in", "share", "thin_out"]

T = TypeVar("T")
BACKENDS = frozenset({"memory", "sqlite", "postgres", "combined"})
_FACES = frozenset({"sync", "async"})
"""The faces of the store in the contract."""


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


def thin_out(items: Sequence[pytest.Item]) -> None:
    """Mark as long what ``one_in``, ``each_value`` and ``only_whole`` leave out, on each backend and face of the store.

    ``one_in`` keeps the first case, and then every n-th one of the function or module that has the mark. ``each_value``
    keeps a case if one of its parameters has a value that no case before it had.
    """
    counted: Counter[tuple[str, frozenset[str]]] = Counter()
    tried: set[tuple[str, frozenset[str], str, str]] = set()
    for item in items:
        if item.get_closest_marker("long"):
            continue
        function, variant, kept = item.nodeid.partition("[")[0], named_in(item, BACKENDS | _FACES), True
        whole = item.get_closest_marker("only_whole")
        if whole is not None and whole.kwargs.get("on", "") in {"", *variant}:
            item.add_marker(pytest.mark.long)
            continue
        if item.get_closest_marker("each_value"):
            values = {(function, variant, name, repr(value)) for name, value in _params(item).items()}
            kept = not values <= tried
            tried |= values
        for node, marker in item.iter_markers_with_node("one_in"):
            if marker.kwargs.get("on", "") in {"", *variant}:
                key = (function if node is item else node.nodeid, variant)
                kept = kept and counted[key] % marker.args[0] == 0
                counted[key] += 1
                break
        if not kept:
            item.add_marker(pytest.mark.long)


def named_in(item: pytest.Item, names: frozenset[str]) -> frozenset[str]:
    """Return which of the names are values of the item's parameters."""
    return frozenset(one for one in _params(item).values() if isinstance(one, str)) & names


def _params(item: pytest.Item) -> Mapping[str, object]:
    """Return the parameters of an item by their names."""
    params: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return params
