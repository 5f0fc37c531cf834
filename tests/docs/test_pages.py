"""The pages say each thing once: headings, the rows of tables, and the format of databases."""

from __future__ import annotations

import re
from collections import Counter
from inspect import signature
from pathlib import Path

import pytest

import metastore as ms
from metastore.leases.objects.leases import ObjectStoreLeases
from metastore.port.format import SCHEMA_FORMAT
from tests.docs.examples import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def lines_of(text: str) -> list[tuple[int, str]]:
    """Return the lines outside of code, each with its number."""
    found, in_code = list[tuple[int, str]](), False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            found.append((number, line))
    return found


def wrong_rows(text: str) -> list[int]:
    """Return the lines whose row has another number of cells than the head of its table."""
    wrong, cells, before = list[int](), 0, -1
    for number, line in lines_of(text):
        if not line.startswith("|"):
            continue
        here = len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line)))
        if number != before + 1:
            cells = here
        before = number
        wrong += [number] if here != cells else []
    return wrong


def repeated(text: str) -> list[str]:
    """Return the headings that a page has twice."""
    headings = Counter(line for _, line in lines_of(text) if re.match(r"#+ ", line))
    return [heading for heading, count in headings.items() if count > 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_row_is_glued_and_no_heading_comes_twice(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrong_rows(text) == []
    assert repeated(text) == []


def test_the_format_that_a_command_shows_is_that_of_today() -> None:
    for page in PAGES:
        shown = re.findall(r"^format +(\d+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(shown) <= {str(SCHEMA_FORMAT)}, page.name


DEFAULTS = {
    name: float(one.default)
    for call in (ms.open, ms.Cache, ObjectStoreLeases)
    for name, one in signature(call).parameters.items()
    if isinstance(one.default, int | float)
}


def other_defaults(text: str) -> list[str]:
    """Return the parameters of which a page tells another default than they have: ``name`` (figure)."""
    told = re.findall(r"`(\w+)` \(([\d.,]+)(?: seconds?)?\)", text)
    return [name for name, figure in told if name in DEFAULTS and float(figure.replace(",", "")) != DEFAULTS[name]]


def test_a_default_is_told_as_it_is() -> None:
    """A figure that two pages tell, or a page and the code, is one figure."""
    assert {page.name: other_defaults(page.read_text(encoding="utf-8")) for page in PAGES} == {
        p.name: [] for p in PAGES
    }


FIGURE = r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?= (?:ms|µs|s|MB|MiB|minutes|per second)\b))(?!\w)"


def quoted(text: str) -> set[tuple[str, str]]:
    """Return each figure of a paragraph that leads to another page, and that page's name."""
    prose = "\n".join(line for _, line in lines_of(text))
    return {
        (figure, page)
        for paragraph in re.split(r"\n\s*\n|\n(?=[-|])", prose)
        for page in re.findall(r"\]\((?:docs/)?([\w-]+\.md)", paragraph)
        for figure in re.findall(FIGURE, re.sub(r"\s+", " ", paragraph))
    }


def test_summaries_quote_the_figures_of_the_pages_that_they_lead_to() -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    told = quoted(texts["README.md"]) | quoted(texts["proposal.md"])
    assert told
    assert {(figure, page) for figure, page in told if figure not in texts[page]} == set()


def test_how_long_the_tests_take_is_told_alike() -> None:
    readme, table = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/correctness.md"))
    (told,) = re.findall(r"make test .*: (\d+) minutes", readme)
    assert re.findall(r"\| `make test` \|.*\| (\d+) minutes", table) == [told]


def test_what_is_wrong_is_found() -> None:
    """Negative control."""
    assert quoted("It does 1,200\n([x](docs/performance.md#y)), in 3 s.\n\nAnd 7 s, see [y](b.md)") == {
        ("1,200", "performance.md"),
        ("3", "performance.md"),
        ("7", "b.md"),
    }
    assert other_defaults("`pool_size` (10), `pool_size` (20), `max_drift` (2 seconds)") == ["pool_size", "max_drift"]
    assert wrong_rows("| a | b |\n|---|---|\n| 1 | 2 || 3 | 4 |\n| `a|b` | 2 |\n") == [3]
    assert repeated("# A\n```\n# A\n```\n## B\n## B\n") == ["## B"]
