"""The notes of lock files' tokens in a store, so that its commits can require them.

The store's name of a lock file is ``<id of its place>:<name>``. Each acquisition counts as a different holder, even if
two have the same token, because the lock file was removed in between.
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
    """Notes the tokens of one place's lock files."""

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
                f"the lease {name[:60]!r}… would have a name of {length} code points in the store, {ID + 1} of them "
                f"for the id of its place; at most {MAX_NAME} are allowed; take a shorter name"
            )

    def place(self, name: str, ends: float) -> str:
        """Return the id of the place of a lease."""
        return self._places.id_of(name, ends)

    def name(self, name: str, ends: float) -> str:
        """Return the name of a lease in the store."""
        return f"{self.place(name, ends)}:{self._form.within(name)}"

    def note(self, name: str, token: int, held: Holding, ends: float) -> LeaseToken | None:
        """Note the token of an acquisition. Return None if this or a greater one is noted for another acquisition."""
        who = f"{held.incarnation} {held.id}"
        return self._notebook.mirror(self.name(name, ends), token, held.owner or NOBODY, who)

    def noted(self, name: str, ends: float) -> int:
        """Return the noted token of a lease; 0: no token is noted."""
        return self._notebook.noted(self.name(name, ends))

    def end(self, name: str, token: int, ends: float) -> None:
        """Note a token that nobody has, so that all earlier tokens become invalid."""
        self._notebook.mirror(self.name(name, ends), token, NOBODY, self._clock.operation_id().hex)

    def end_all(self, name: str, ends: float) -> None:
        """Make every noted token of a lease invalid."""
        self._notebook.mirror(self.name(name, ends), None, NOBODY, self._clock.operation_id().hex)

    def end_older(self, name: str) -> None:
        """Make every token invalid that an older program noted, under the URL instead of the id of the place."""
        older = f"{self._url}/{name}"
        if len(older) <= MAX_NAME and self._notebook.noted(older):
            self._notebook.mirror(older, None, NOBODY, self._clock.operation_id().hex)
