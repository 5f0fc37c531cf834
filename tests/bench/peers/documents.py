"""The figures as Markdown: build/bench/peers.md, and where docs/performance-peers.md has its place for them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from tests.bench.figures import FOLDER
from tests.bench.leases.documents import filled
from tests.bench.peers.measure import Run
from tests.bench.peers.results import markdown

__all__ = ["BEGIN", "DOCUMENT", "write"]

DOCUMENT = FOLDER.parents[1] / "docs" / "performance-peers.md"
BEGIN = "<!-- figures: written by make bench-peers ARGS=--docs -->"


def write(run: Run, *, docs: bool) -> Path:
    """Write the Markdown; with ``docs``, into the document too. Return where it is."""
    path = FOLDER / "peers.md"
    text = f"{_circumstances(run)}\n\n{markdown(run)}\n"
    path.write_text(text)
    if docs:
        DOCUMENT.write_text(filled(DOCUMENT.read_text(), text, BEGIN))
    return path


def _circumstances(run: Run) -> str:
    missing = "".join(f" `{name}` was left out: {why}." for name, why in run.ground.missing.items())
    lake = run.ground.lake
    return (
        f"{os.cpu_count()} processors, Python {platform.python_version()}; {lake.tables:,} tables in {lake.schemas} "
        f"schemas; {run.turns} turn(s), windows of {run.length:g} s.{missing}"
    )
