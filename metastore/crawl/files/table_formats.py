"""Recognize folders that are tables in a table format: Delta, Iceberg, Hudi.

Beside their data files they have a log or metadata that says which files count: the other files are old versions, or
deletions. Read as plain Parquet, these tables have wrong rows, and their folders look like separate tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MARKERS", "format_beside", "why_not"]

MARKERS: Final = {
    "_delta_log": (re.compile(r"[0-9]{20}\.(json|checkpoint\..*parquet)|_last_checkpoint"), "Delta"),
    "metadata": (re.compile(r".+\.metadata\.json(\.gz)?|.+\.gz\.metadata\.json|version-hint\.text"), "Iceberg"),
    ".hoodie": (re.compile(r"hoodie\.properties"), "Hudi"),
}
"""For each folder by which a table is known: the files in it that prove the format, and the format."""


def format_beside(folder: str, names: Iterable[str]) -> str | None:
    """Return the format of the table that has a folder of this name with files of these names, or None."""
    known = MARKERS.get(folder)
    return None if known is None or not any(map(known[0].fullmatch, names)) else known[1]


def why_not(form: str) -> str:
    """Return why a table of this format is not registered."""
    return (
        f"is a table in the format {form}, whose metadata says which of its files count; the crawler does not read "
        f"that. Register it with a tool for {form}, or leave it out with --exclude"
    )
