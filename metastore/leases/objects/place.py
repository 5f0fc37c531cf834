"""The id of a place, which lies beside its lock files: one place has one name, whichever URL leads to it.

``s3://b/m`` and ``s3a://b/m``, a folder and a link to it, ``q r`` and ``q%20r`` are URLs of one place. Two endpoints
may have one URL. A store that fences commits needs one name for one lock file, and never one for two. So the first
process that notes a token writes a random id beside the lock files, on the condition that there is none, and nobody
ever replaces it. Each lock file holds the id too: so a new id in place of a lost one is noticed.
"""

from __future__ import annotations

import json

from metastore.clock import Clock
from metastore.errors import BackendUnavailable
from metastore.leases.objects.client import ConditionFailed, Objects, Unsettled
from metastore.leases.objects.effort import Effort
from metastore.leases.objects.format import Format

__all__ = ["ID", "Places", "another_place"]

ID = 32
"""How many characters an id has."""
_FORMAT = "metastore-place/1"


class Places:
    """The ids that this process knows. Our lock files have one place for a URL, Hudi's one for each table."""

    def __init__(self, objects: Objects, form: Format, url: str, clock: Clock) -> None:
        self._objects, self._form, self._url, self._clock = objects, form, url, clock
        self._ids: dict[str, str] = {}

    def id_of(self, name: str, ends: float) -> str:
        """Return the id beside the lock file of a lease, and write one if there is none."""
        key = self._form.place(name)
        if key not in self._ids:
            self._ids[key] = self._settled(key, Effort(self._clock, self._url, ends))
        return self._ids[key]

    def _settled(self, key: str, effort: Effort) -> str:
        new = self._clock.operation_id().hex
        while True:
            effort.check()
            try:
                found = self._objects.get(key)
                if found is not None:
                    return self._read(found.data, key)
                self._objects.put(key, json.dumps({"format": _FORMAT, "id": new}).encode(), None)
            except ConditionFailed:
                effort.pause()
            except Unsettled as trouble:  # read again: it may be there, by this write or another one
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
            raise BackendUnavailable(
                f"{self._url}/{key} does not hold the id of this place: put it back from a copy, or from the field "
                '"place" of a lock file beside it'
            )
        return found


def another_place(where: str, theirs: str, ours: str) -> BackendUnavailable:
    """Return the error for a lock file that was fenced under another id."""
    return BackendUnavailable(
        f"{where} was fenced as a part of the place {theirs}, but the place's id is {ours} now: the id was replaced, "
        "or the file was copied; put the id back, or remove the file if no holder is active"
    )
