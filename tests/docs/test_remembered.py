"""docs/operations.md lists all that a process remembers, and what a fork does to it."""

from __future__ import annotations

import re

from tests.docs.examples import ROOT

REMEMBERS = re.compile(r"register_at_fork\(|begins_again\(|getpid\(\)|process_id\(\)|ForgetfulMap\(\)|WeakSet\[")


def listed() -> dict[str, set[str]]:
    """Return what the list has, and the files that remember it."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("## What a process remembers\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert all(len(row) == 5 for row in rows), "each row has what a fork, a close and lost commits do"
    return {row[0].removeprefix("| "): {*re.findall(r"`([\w/]+\.py)`", row[1])} for row in rows}


def test_what_knows_its_process_is_listed() -> None:
    package = ROOT / "metastore"
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    remembers = {name for name, path in files.items() if REMEMBERS.search(path.read_text(encoding="utf-8"))}
    named = set().union(*listed().values())
    assert remembers - named == set()
    assert named <= set(files)
