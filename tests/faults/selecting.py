"""Which faults name no test: a plugin of pytest that asks each fault's ``-k`` and ``-m`` of the tests it collected.

Start it with ``-m ""``, so that pytest leaves none out.
"""

from __future__ import annotations

import argparse
import shlex

import pytest
from _pytest.mark import KeywordMatcher, MarkMatcher  # pytest has no public names for what -k and -m ask
from _pytest.mark.expression import Expression

from tests.faults.fault import Fault
from tests.faults.faults import FAULTS

__all__ = ["NOTHING", "paths_of"]

NOTHING = "selects nothing: "
"""How a line about such a fault begins."""


def _parsed(fault: Fault) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+")
    parser.add_argument("-k", dest="named", default="not nowhere")
    parser.add_argument("-m", dest="marked", default="not long")
    parser.add_argument("--timeout")
    return parser.parse_intermixed_args(shlex.split(fault.tests))


def paths_of(fault: Fault) -> list[str]:
    """Return the files, folders and tests that a fault names."""
    return list(_parsed(fault).paths)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print a line for each fault that selects none of the tests."""
    for fault in FAULTS:
        asked = _parsed(fault)
        named, marked = Expression.compile(asked.named), Expression.compile(asked.marked)
        there = [item for item in session.items if item.nodeid.startswith(tuple(asked.paths))]
        if not any(named.evaluate(KeywordMatcher.from_item(one)) and marked.evaluate(_marks(one)) for one in there):
            print(f"\n{NOTHING}{fault.name} ({fault.tests})")


def _marks(item: pytest.Item) -> MarkMatcher:
    return MarkMatcher.from_markers(item.iter_markers())
