"""Why a file is not read: the exception whose message is the reason in the report."""

from __future__ import annotations

__all__ = ["NotThisFormat"]


class NotThisFormat(Exception):
    """The file is not what its ending says, or it is damaged or too large. The message says how, in one line."""
