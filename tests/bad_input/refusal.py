"""What every refusal has in common: its type, its one line, and that nothing was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import metastore as ms
from tests.contract.ground import dump

__all__ = ["PASSWORD", "refused", "unchanged"]

PASSWORD = "s3cr3t-geheim"
"""The password of every test here: no message may show it."""


def refused(kind: type[ms.MetastoreError], call: Callable[[], Any], *words: str) -> ms.MetastoreError:
    """Call it, to the end if it yields; return its error, which is exactly of ``kind`` and in one line.

    An error that is not a MetastoreError passes through and fails the test with its traceback.
    """
    with pytest.raises(ms.MetastoreError) as caught:  # noqa: PT012  (an iterator raises when it is read)
        result = call()
        if isinstance(result, Iterator):
            list(result)
    error = caught.value
    message = str(error)
    assert type(error) is kind, f"{type(error).__name__}: {message}"
    assert message.strip() == message != ""
    assert len(message.splitlines()) == 1, message
    assert PASSWORD not in message + repr(error) + repr(error.args)
    for word in words:
        assert word in message
    return error


@contextmanager
def unchanged(store: ms.Store) -> Iterator[None]:
    """Assert that the block leaves every row of every table as it was, and the feed too."""
    backend = store._session.backend
    before, last = dump(backend), [change.position for change in store.changes()]
    yield
    assert dump(backend) == before
    assert [change.position for change in store.changes()] == last
