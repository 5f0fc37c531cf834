"""The team of processes is that of tests/concurrency."""

from __future__ import annotations

from tests.concurrency.conftest import team

__all__ = ["team"]
