"""Paths as Spark takes them: characters of patterns are escaped."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["readable"]


def readable(path: Path) -> str:
    """Return ``path`` with each character that Spark takes for a pattern escaped."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", str(path))
