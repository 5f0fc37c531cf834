"""The processes that replay a trace together."""

from tests.concurrency.conftest import team

__all__ = ["team"]
