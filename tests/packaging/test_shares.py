"""Ten shares of the long tests are all of them, and the night is long enough for its parts."""

from __future__ import annotations

import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests.long import in_share, share, thin_out
from tests.nightly import PARTS, Part, Result, row, run, verdict


def item(name: str, **marks: Any) -> Any:
    """Return what a share looks at: a test's id and its marks."""
    there = {mark: getattr(pytest.mark, mark)(*args).mark for mark, args in marks.items()}
    return SimpleNamespace(nodeid=name, get_closest_marker=there.get)


def test_each_long_test_is_in_one_share() -> None:
    tests = [item(f"tests/a.py::test[{n}]", **({"xdist_group": ("spark",)} if n % 2 else {})) for n in range(1000)]
    taken = [[one.nodeid for one in tests if in_share(one, n, 10)] for n in range(10)]
    assert Counter(name for names in taken for name in names) == Counter(one.nodeid for one in tests)
    assert all(50 < len(names) < 150 for names in taken)


def test_what_shares_a_module_s_fixtures_shares_a_run() -> None:
    """What is made for them takes longer than they do."""
    tests = [item(f"tests/a.py::test[{n}]", xdist_group=("tests/a.py",)) for n in range(50)]
    assert sorted(sum(in_share(one, n, 10) for one in tests) for n in range(10)) == [0] * 9 + [50]


def test_what_takes_minutes_is_in_no_share() -> None:
    assert not any(in_share(item("tests/a.py::test", nightly=()), n, 10) for n in range(10))


class _Case:
    """What ``thin_out`` looks at: a case of a test, its parameters, and the marks of the test or of its module."""

    def __init__(self, test: str, module: pytest.MarkDecorator | None = None, **params: str) -> None:
        self.nodeid = f"tests/a.py::{test}[{'-'.join(params.values())}]"
        self.callspec = SimpleNamespace(params=params)
        there: Any = SimpleNamespace(nodeid="tests/a.py")
        self.marks: list[tuple[Any, pytest.Mark]] = [(there, module.mark)] if module else []

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append((self, mark.mark))

    def iter_markers_with_node(self, name: str) -> list[tuple[Any, pytest.Mark]]:
        return [(node, mark) for node, mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for _, mark in self.iter_markers_with_node(name)), None)


def _kept(cases: list[Any]) -> list[str]:
    thin_out(cases)
    return [case.nodeid.partition("::")[2] for case in cases if case.get_closest_marker("long") is None]


def test_every_nth_case_on_a_backend_and_all_on_the_others() -> None:
    mark = pytest.mark.one_in(3, on="postgres")
    cases = [_Case(name, mark, url=url) for name in "abcd" for url in ("sqlite", "postgres")]
    assert _kept(cases) == ["a[sqlite]", "a[postgres]", "b[sqlite]", "c[sqlite]", "d[sqlite]", "d[postgres]"]


def test_each_value_of_each_parameter_is_in_a_case() -> None:
    cases = [_Case("t", x=x, y=y, url=url) for x in "ab" for y in "cde" for url in ("sqlite", "memory")]
    for case in cases:
        case.add_marker(pytest.mark.each_value)
    on_each = [(x, y) for x, y in ("ac", "ad", "ae", "bc")]
    assert _kept(cases) == [f"t[{x}-{y}-{url}]" for x, y in on_each for url in ("sqlite", "memory")]


@pytest.mark.parametrize("text", ["", "3", "3/", "/10", "10/10", "-1/10", "a/b", "3/10/2"])
def test_a_share_that_makes_no_sense(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="such as 3/10"):
        share(text)
    assert share("9/10") == (9, 10)


def test_the_night_has_ninety_minutes() -> None:
    assert sum(part.minutes for part in PARTS) <= 90
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.only_whole
def test_a_part_that_fails_or_does_not_end_is_the_verdict() -> None:
    good = run([sys.executable, "-c", "pass"], Part("good", (), 1))
    bad = run([sys.executable, "-c", "raise SystemExit(3)"], Part("bad", (), 1))
    # a child of the part would go on for ever, as a server that nobody stops
    forever = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    late = run([sys.executable, "-c", forever], Part("late", (), 1 / 60))
    assert [one.code for one in (good, bad, late)] == [0, 3, None]
    assert verdict([good]) == "nothing is wrong, 0 minutes"
    assert verdict([good, bad, late]) == "WRONG, 0 minutes: bad ended with 3; late did not end in its time"
    assert "(only good)" in row([good], "abc")
    assert row([Result(part, 0, 600.0) for part in PARTS], "abc").startswith("| `abc` | 20")
