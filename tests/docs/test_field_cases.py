"""docs/field-cases.md lists what the tests show: some test names each case, and each case that a test names is listed.

A test names cases in one way: ``field case 12``, ``field cases 4, 5``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.examples import ROOT

LIST = ROOT / "docs" / "field-cases.md"
_MENTION = re.compile(r"\bfield\s+case(s?)\s+(\d+(?:,\s+\d+)*)(?!\s*(?:,|-|–|and|or|to|until)\s*\d)\b", re.IGNORECASE)
_ANY = re.compile(r"\bfield\s+cases?\s+\d", re.IGNORECASE)


def listed(text: str) -> list[int]:
    """Return the numbers of the rows, in their order."""
    return [int(number) for number in re.findall(r"^\| *(\d+) *\|", text, re.MULTILINE)]


def named(text: str) -> list[int]:
    """Return the numbers of the cases that a text names."""
    return [int(number) for mention in _MENTION.finditer(text) for number in mention[2].split(",")]


def odd(text: str) -> list[str]:
    """Return the mentions that are written in another way."""
    good = {mention.start() for mention in _MENTION.finditer(text) if bool(mention[1]) == ("," in mention[2])}
    return [text[at : at + 30] for at in (mention.start() for mention in _ANY.finditer(text)) if at not in good]


def _files() -> Iterator[tuple[Path, str]]:
    """Give each file of tests but this one."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path != Path(__file__):
            yield path, path.read_text(encoding="utf-8")


def test_a_mention_is_read() -> None:
    assert named("Field case 12: x. As (field cases 4, 5) do; field\n    case 7.") == [12, 4, 5, 7]
    assert odd("Field case 12: x. As (field cases 4, 5) do; field\n    case 7.") == []
    for text in ("field cases 4 to 9", "field cases 4, 5 and 6", "field cases 4-9", "field case 4, 5", "field cases 4"):
        assert odd(text) == [text], text
    assert listed("| case | x |\n|---:|---|\n| 1 | a (#8759) |\n| 2 | b |\n") == [1, 2]


def test_the_list_counts_from_1() -> None:
    numbers = listed(LIST.read_text(encoding="utf-8"))
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 67


def test_each_case_is_named_by_a_test_and_none_besides() -> None:
    found = {number for _, text in _files() for number in named(text)}
    assert found == set(listed(LIST.read_text(encoding="utf-8")))


def test_cases_are_named_in_one_way() -> None:
    wrong = [f"{path.relative_to(ROOT)}: {one}" for path, text in _files() for one in odd(text)]
    assert wrong == [], "write 'field case 12', or 'field cases 4, 5'"
