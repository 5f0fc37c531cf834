"""The tokens of lock files as a store notes them, so that its commits can require them.

A lock file is known there as ``<id of its place>:<name>``. Each acquisition counts as a holder of its own. Two
of them may have one number, because the lock file was removed in between; they are two all the same.
"""

from __future__ import annotations

from metastore.clock import Clock
from metastore.errors import InvalidArgument
from metastore.leases.objects.client import Objects
from metastore.leases.objects.format import Format
from metastore.leases.objects.lock_file import Holding
from metastore.leases.objects.place import ID, NOBODY, Notebook, Places
from metastore.leases.objects.urls import Address
from metastore.names import MAX_NAME
from metastore.port.conditions import LeaseToken

__all__ = ["Notebook", "Notes"]


class Notes:
    """Notes the tokens of one place."""

    def __init__(
        self, notebook: Notebook, objects: Objects, form: Format, url: str, address: Address, clock: Clock
    ) -> None:
        self._notebook, self._form, self._url, self._clock = notebook, form, url, clock
        self._places = Places(objects, form, url, address, notebook, clock)

    def check(self, name: str) -> None:
        """Raise InvalidArgument if the store cannot have this name."""
        length = ID + 1 + len(self._form.within(name))
        if length > MAX_NAME:
            raise InvalidArgument(
                f"the store would know the lease {name[:60]!r}… by a name of {length} code points, of which {ID + 1} "
                f"are the id of its place; at most {MAX_NAME} are allowed; take a shorter name"
            )

    def place(self, name: str, ends: float) -> str:
        """Return the id of the place of a lease."""
        return self._places.id_of(name, ends)

    def name(self, name: str, ends: float) -> str:
        """Return what the store calls a lease."""
        return f"{self.place(name, ends)}:{self._form.within(name)}"

    def note(self, name: str, token: int, held: Holding, ends: float) -> LeaseToken | None:
        """Note the token of an acquisition. None: one that is not smaller is noted for another one."""
        who = f"{held.incarnation} {held.id}"
        return self._notebook.mirror(self.name(name, ends), token, held.owner or NOBODY, who)

    def noted(self, name: str, ends: float) -> int:
        """Return the token that is noted."""
        return self._notebook.noted(self.name(name, ends))

    def end(self, name: str, token: int, ends: float) -> None:
        """Note a token that nobody has: those before it are worth nothing now."""
        self._notebook.mirror(self.name(name, ends), token, NOBODY, self._clock.operation_id().hex)

    def end_all(self, name: str, ends: float) -> None:
        """Let every token that is noted be worth nothing."""
        self._notebook.mirror(self.name(name, ends), None, NOBODY, self._clock.operation_id().hex)

    def end_older(self, name: str) -> None:
        """Let every token be worth nothing that an older program noted, which knew the lease by the URL."""
        older = f"{self._url}/{name}"
        if len(older) <= MAX_NAME and self._notebook.noted(older):
            self._notebook.mirror(older, None, NOBODY, self._clock.operation_id().hex)
