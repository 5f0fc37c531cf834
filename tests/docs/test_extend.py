"""docs/extend.md names every file that one touches: those that name the example."""

from __future__ import annotations

import re

import pytest

from tests.docs.examples import ROOT

PARTS = re.split(r"^## ", (ROOT / "docs" / "extend.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "metastore").rglob("*.py*"))
    if path.suffix in (".py", ".pyi")
}


@pytest.mark.parametrize("part", PARTS, ids=[part.partition("\n")[0] for part in PARTS])
def test_each_file_that_names_the_example_is_listed(part: str) -> None:
    (words,) = re.findall(r"<!-- names: (.+) -->", part)
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(metastore/[\w/.]+)`", row)}
    assert listed == {path for path, text in SOURCES.items() if re.search(words, text)}


def test_each_part_has_its_example() -> None:
    assert len(PARTS) == 6
