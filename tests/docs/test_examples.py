"""Every example of the README and of docs/ runs; see :mod:`tests.docs.examples` for how."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.kinds import handlers
from tests.docs.examples import ROOT, blocks, failures

FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
Report = Callable[..., list[str]]


def crawled(store: ms.Store) -> None:
    """Make what the crawl in docs/cli.md makes, without Spark."""
    store.metalakes.create("lake")
    store.catalogs.create("lake.sales", type="relational")
    store.schemas.create("lake.sales.shop")
    columns = [ms.Column("id", "long"), ms.Column("amount", "double"), ms.Column("day", "int")]
    table = store.tables.create("lake.sales.shop.orders", columns=columns, partitioning=["day"], format="csv")
    for day in ("1", "2"):
        store.partitions.create(table, f"day={day}", values={"day": day})
    store.tables.alter(table, ms.AddColumn("note", "string", after="amount"))


PREPARED: dict[str, Callable[[ms.Store], None]] = {"cli.md": crawled}
"""What is in the store before a file's first example."""


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Run the examples of a text in a fresh folder, with a fresh SQLite store open; return what is wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("METASTORE_URL", raising=False)
    monkeypatch.setattr(handlers, "_HANDLERS", {})  # other tests of this process know no handler of an example

    def run(text: str, name: str = "example.md") -> list[str]:
        with ms.open() as store:
            if name in PREPARED:
                PREPARED[name](store)
            namespace: dict[str, Any] = {"__name__": "__example__", "ms": ms, "store": store}
            return list(failures(text, name, tmp_path, namespace))

    return run


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_examples(file: Path, report: Report) -> None:
    """Each one does what it says; the file's own folder is not touched."""
    found = report(file.read_text(encoding="utf-8"), file.name)
    assert not found, "\n".join(found)


def test_the_examples_of_async_run_twice_in_one_folder(report: Report) -> None:
    """A reader who tries them again, with a change, meets what the first time left."""
    text = (ROOT / "docs" / "async.md").read_text(encoding="utf-8")
    for _ in range(2):
        found = report(text, "async.md")
        assert not found, "\n".join(found)


_LOADED_BY_NAME = "iceberg.md"
"""PyIceberg loads the catalog by its name, so that a type checker does not know its class."""
_LOOSE = ("--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls", "--allow-redefinition")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_type_checker_takes_the_examples(tmp_path: Path) -> None:
    """As ``mypy --strict`` reads them, but for functions without annotations, and names that are used again."""
    files = list[str]()
    for page in FILES:
        found = [block.text for block in blocks(page.read_text(encoding="utf-8")) if block.language == "python"]
        if found and page.name != _LOADED_BY_NAME:
            file = tmp_path / f"of_{page.stem.replace('-', '_')}.py"
            file.write_text("\n".join(["import metastore as ms", "store: ms.Store = ms.open()", *found, ""]))
            files.append(str(file))
    options = ["--strict", *_LOOSE, "--ignore-missing-imports", "--disable-error-code", "no-redef"]
    command = [sys.executable, "-m", "mypy", "--config-file=", *options, "--cache-dir", str(tmp_path / "cache"), *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = [line for line in done.stdout.splitlines() if line.startswith((str(tmp_path), "of_"))]
    assert not wrong, "\n".join(wrong)
    assert len(files) > 15


GOOD = """
```python
import metastore as ms

lake = store.metalakes.create("lake")
```
Then, in a list:

  ```python
  assert lake.version == 1
  store.metalakes.create("lake")  # raises: EntityAlreadyExists
  ```
```console
$ pip install something-that-does-not-exist
$ metastore ls --json | jq .
[]
$ metastore show \\
    no.such.thing  # exit 1
$ metastore show no.such.thing
metastore: no.such.thing does not exist
```
```text
this is not run
```
"""


def test_good_examples_pass(report: Report) -> None:
    assert report(GOOD) == []


def test_blocks_know_their_line() -> None:
    found = blocks(GOOD)
    assert [(b.language, b.line) for b in found] == [("python", 3), ("python", 10), ("console", 14)]
    assert [GOOD.splitlines()[b.line - 1].strip() for b in found] == [b.text.splitlines()[0] for b in found]


BROKEN = {
    "an error": ("```python\n1 / 0\n```", "ZeroDivisionError"),
    "a syntax error": ("```python\ndef\n```", "SyntaxError"),
    "a failed assertion": ("\n\n```python\nassert store is None\n```", "line 4"),
    "a name of another file": ("```python\nlake\n```", "NameError"),
    "another error than promised": ("```python\n1 / 0  # raises: EntityNotFound\n```", "ZeroDivisionError"),
    "no error as promised": ("```python\nx = 1  # raises: EntityNotFound\n```", "nothing was raised"),
    "an error not on the last line": ("```python\n1 / 0  # raises: ZeroDivisionError\nx = 1\n```", "ZeroDivisionError"),
    "a command that fails": ("```console\n$ metastore show no.such.thing\n```", "exit 1"),
    "a command that does not fail": ("```console\n$ metastore ls  # exit 1\n```", "exit 0"),
    "no such command": ("```console\n$ metastore frobnicate\n```", "exit 1"),
}


@pytest.mark.parametrize(("text", "word"), BROKEN.values(), ids=BROKEN)
def test_broken_examples_are_reported(report: Report, text: str, word: str) -> None:
    """Negative control."""
    (found,) = report(text)
    assert found.startswith("example.md, line ")
    assert word in found


def test_one_broken_example_does_not_hide_the_next(report: Report) -> None:
    assert len(report("```python\n1 / 0\n```\n```python\nmissing\n```")) == 2
