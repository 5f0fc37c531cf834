"""The figures as Markdown: build/bench/leases.md, and where docs/performance-leases.md has its place for them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from tests.bench.figures import FOLDER
from tests.bench.leases.measure import Run
from tests.bench.leases.results import markdown

__all__ = ["DOCUMENT", "filled", "write"]

DOCUMENT = FOLDER.parents[1] / "docs" / "performance-leases.md"
BEGIN, END = "<!-- figures: written by make bench-leases ARGS=--docs -->", "<!-- end of figures -->"


def write(run: Run, *, docs: bool) -> Path:
    """Write the Markdown; with ``docs``, into the document too. Return where it is."""
    path = FOLDER / "leases.md"
    text = f"{_circumstances(run)}\n\n{markdown(run)}\n"
    path.write_text(text)
    if docs:
        DOCUMENT.write_text(filled(DOCUMENT.read_text(), text))
    return path


def filled(document: str, figures: str, begin: str = BEGIN) -> str:
    """Return the document with these figures between its two marks. Raises ValueError if they are not there."""
    before, _, rest = document.partition(begin)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"there is no place for figures: {begin} … {END}")
    return f"{before}{begin}\n{figures}{END}{after}"


def _circumstances(run: Run) -> str:
    missing = "".join(f" `{peer}` was left out: {why}." for peer, why in run.ground.missing.items())
    return (
        f"{os.cpu_count()} processors, Python {platform.python_version()}; {run.turns} turn(s), windows of "
        f"{run.length:g} s.{missing}"
    )
