"""The options before the command: which database, and who acts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The options before the command."""

    url: str | None
    principal: str | None

    @contextmanager
    def open(self, admins: Iterable[str] = ()) -> Iterator[Store]:
        """Open the store. Log records are not shown: warnings about the machine concern programs that run for long."""
        logging.getLogger("metastore").addHandler(logging.NullHandler())
        from metastore.store import open_store  # noqa: PLC0415  (--version and --help need no store)

        with open_store(self.url, principal=self.principal, admins=admins) as store:
            yield store
