"""The id of a place, stored beside its lock files: one place has one name, whichever URL leads to it.

``s3://b/m`` and ``s3a://b/m``, a folder and a link to it, ``q r`` and ``q%20r`` are URLs of one place. Two endpoints
may have one URL. A store that fences commits needs exactly one name for each lock file, and never the same name for
two. So the first process that notes a token writes a random id beside the lock files, on the condition that no id is
there. No process ever replaces it. Each lock file holds the id, too, so that a new id in place of a lost one is
noticed.

The lock files may be lost together with the id. Under a new id, the tokens of earlier holders would stay valid forever.
So the store also notes the id under the address of the place, and a place that lost its id gets it again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Protocol

from metastore.clock import Clock
from metastore.errors import BackendUnavailable
from metastore.leases.objects.client import ConditionFailed, Objects, Unsettled
from metastore.leases.objects.effort import Effort
from metastore.leases.objects.format import Format
from metastore.leases.objects.urls import Address
from metastore.port.conditions import LeaseToken

__all__ = ["ID", "NOBODY", "Notebook", "Places", "another_place"]

ID = 32
"""The length of an id, in characters."""
NOBODY = "nobody"
"""The owner of a noted token that nobody holds."""
_FORMAT = "metastore-place/1"


class Notebook(Protocol):
    """The notes of a store, where tokens are noted: ``store.leases``."""

    def mirror(self, name: str, token: int | None, owner: str, incarnation: str) -> LeaseToken | None:
        """Note a token. Returns None if another holder has the same or a greater one. ``token`` None: the next one."""

    def noted(self, name: str) -> int:
        """Return the noted token; 0: no token is noted."""

    def noted_for(self, name: str) -> str | None:
        """Return the incarnation for which that token was noted."""


class Places:
    """The ids that this process knows. Our lock files have one place for a URL, Hudi's have one for each table."""

    def __init__(
        self, objects: Objects, form: Format, url: str, address: Address, notebook: Notebook, clock: Clock
    ) -> None:
        self._objects, self._form, self._url, self._clock = objects, form, url, clock
        self._address, self._notebook = address, notebook
        self._ids: dict[str, str] = {}

    def id_of(self, name: str, ends: float) -> str:
        """Return the id beside the lock file of a lease.

        If there is none, write the id that the store noted, or a new one.

        Raises BackendUnavailable if the store noted another id.
        """
        key = self._form.place(name)
        if key not in self._ids:
            note = None if self._address is None else _note(self._address, key)
            noted = None if note is None else self._notebook.noted_for(note)
            found = self._settled(key, noted or self._clock.operation_id().hex, Effort(self._clock, self._url, ends))
            if noted is None and note is not None and self._notebook.mirror(note, 1, NOBODY, found) is None:
                noted = self._notebook.noted_for(note)  # another process wrote its id first
            if noted not in (None, found):
                raise BackendUnavailable(
                    f"{self._url}/{key} has the id {found}, and the store knows this place by the id {noted}: the id "
                    f"was replaced; put {noted} back. If this is another place, open it by another URL"
                )
            self._ids[key] = found
        return self._ids[key]

    def _settled(self, key: str, new: str, effort: Effort) -> str:
        """Return the stored id; if there is none, store ``new``."""
        while True:
            effort.check()
            try:
                found = self._objects.get(key)
                if found is not None:
                    return self._read(found.data, key)
                self._objects.put(key, json.dumps({"format": _FORMAT, "id": new}).encode(), None)
            except ConditionFailed:
                effort.pause()
            except Unsettled as trouble:  # read again: this write, or that of another process, may have created the id
                effort.pause(trouble)
            else:
                return new

    def _read(self, data: bytes, key: str) -> str:
        try:
            document = json.loads(data)
            form, found = document["format"], document["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            form, found = None, None
        if form != _FORMAT or not isinstance(found, str) or len(found) != ID:
            final = BackendUnavailable(
                f"{self._url}/{key} does not hold the id of this place: put it back from a copy, or from the field "
                '"place" of a lock file beside it'
            )
            raise Unsettled("not the id of a place", final)
        return found


def _note(address: tuple[str, ...], key: str) -> str:
    """Return the name under which a store notes a place's id: a hash, because an address may exceed a name's length."""
    *server, path = address
    return f"place:{sha256(json.dumps([*server, f'{path}/{key}']).encode()).hexdigest()}"


def another_place(where: str, theirs: str, ours: str) -> BackendUnavailable:
    """Return the error for a lock file that was fenced under another id."""
    return BackendUnavailable(
        f"{where} was fenced as a part of the place {theirs}, but the place's id is {ours} now: the id was replaced, "
        "or the file was copied; put the id back, or remove the file if no holder is active"
    )
