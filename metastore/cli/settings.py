"""The options before the command: the database, and the principal."""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Settings", "os_user"]

_DAY: Final = 86_400.0
"""One day in seconds: the deadline of each step of a search."""


@dataclass
class Settings:
    """The options before the command."""

    url: str | None
    principal: str | None
    reason: str | None = field(default=None, init=False)
    """The reason of a command that writes, from its option ``--reason``."""

    @contextmanager
    def open(self, admins: Iterable[str] = (), *, makes: bool = False) -> Iterator[Store]:
        """Open the store; create a missing SQLite file only if the command ``makes`` databases.

        Log records are not shown, because warnings about the machine concern only programs that run for a long time.
        Raises BackendUnavailable for a missing file.
        """
        logging.getLogger("metastore").addHandler(logging.NullHandler())
        from metastore.store import open_store  # noqa: PLC0415  (--version and --help need no store)

        with open_store(self.url, principal=self.principal, admins=admins, must_exist=not makes) as store:
            yield store if self.reason is None else store.bind(reason=self.reason)

    @contextmanager
    def open_to_search(self) -> Iterator[Store]:
        """Open the store for a command that may read all entities before it finds one: people end it with Ctrl-C.

        Each step of an iterator is a call, which ends at the store's deadline.
        """
        with self.open() as store:
            yield store.bind(deadline=_DAY)


def os_user() -> str:
    """Return the name of the operating system's user; if it has none, its number."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
