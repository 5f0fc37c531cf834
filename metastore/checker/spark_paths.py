"""Paths as Spark takes them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["readable"]


def readable(path: Path) -> str:
    """Return ``path`` as Spark reads it: what it takes for a pattern stands for itself."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", str(path))
