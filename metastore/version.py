"""The version of this program. Its second number is the format of databases that the program creates."""

from __future__ import annotations

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.12.0"
