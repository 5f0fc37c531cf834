"""Paths in the form that Spark expects: the characters of patterns are escaped."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["readable"]


def readable(path: Path) -> str:
    """Return ``path`` with each character escaped that Spark would interpret as a pattern."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", str(path))
