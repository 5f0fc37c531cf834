"""Every test of the past runs on each backend in turn: the memory model is one of them."""

from __future__ import annotations

from tests.contract.conftest import combined_url, memory_url, url

__all__ = ["combined_url", "memory_url", "url"]
