"""Find the users with a name in all metalakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from metastore.port.backend import Backend
from metastore.port.conditions import ROOT_ID
from metastore.port.records import Record
from metastore.port.search import Search

__all__ = ["users_named"]

_TOGETHER: Final = 64
"""How many users are read at once."""


def users_named(backend: Backend, name: str) -> Iterator[Record]:
    """Yield the live users with exactly this name."""
    search = Search(ROOT_ID, "user", name, name, -1, True, (name, -1), name + "\x01", _TOGETHER)
    while True:
        page = backend.find(search)
        yield from [record for record in page.records if record.chain[-1].name == name]
        if page.last is None:
            return
        search = replace(search, after=page.last)
