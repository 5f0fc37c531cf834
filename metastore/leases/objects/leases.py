"""Leases in object storage, with the methods of ``store.leases``, but without a database."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

from metastore.arguments import positive_seconds, shown
from metastore.clock import SYSTEM, Clock
from metastore.errors import InvalidArgument
from metastore.leases.book import LeaseEvent
from metastore.leases.hold import Staging
from metastore.leases.leases import Leases, clean_lease
from metastore.leases.objects.book import ObjectBook
from metastore.leases.objects.format import FORMATS
from metastore.leases.objects.notes import Notes
from metastore.leases.objects.place import Notebook
from metastore.leases.objects.urls import address_of, open_objects
from metastore.port.unreadable import Unreadable

__all__ = ["FencedStore", "ObjectStoreLeases"]


class StoreLeases(Notebook, Protocol):
    """The part of ``store.leases`` that object leases use."""

    @property
    def staging(self) -> Staging:
        """Stage and publish work in the store."""


class FencedStore(Protocol):
    """A store whose commits object leases fence: any ``ms.Store``."""

    @property
    def leases(self) -> StoreLeases:
        """The leases of the store, where the tokens are noted."""


class ObjectStoreLeases(Leases):
    """Leases as objects with conditional writes: ``ms.ObjectStoreLeases("s3://bucket/locks")``.

    ``url``: ``s3://bucket/prefix``, ``az://container/prefix`` (also ``abfs``, ``abfss``), ``gs://bucket/prefix``,
    ``memory://name`` (this process only), or a local folder. Credentials come from the environment, or from
    ``options``: the options of obstore (``endpoint``, ``region``, ``access_key_id`` …).

    ``store``: the store whose commits these leases fence; it notes each acquisition. Without it, a lease excludes other
    holders, but no commit can require it. ``format="hudi"``: the lock files of Apache Hudi; a lease's name is the base
    path of a table below the URL. ``max_drift``: how much clocks may differ. ``request_timeout``: how long one request
    may take; a call may exceed its deadline by that much. Both are in seconds.

    Raises InvalidArgument; BackendUnavailable if obstore is not installed. No request is sent before the first call.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        store: FencedStore | None = None,
        format: str = "metastore",
        max_drift: float = 1.0,
        request_timeout: float = 5.0,
        clock: Clock = SYSTEM,
        **options: Any,
    ) -> None:
        form = FORMATS.get(format) if isinstance(format, str) else None
        if form is None:
            raise InvalidArgument(f"the formats of lock files are {', '.join(FORMATS)}, not {shown(format)}")
        max_drift = positive_seconds(max_drift, "max_drift")
        request_timeout = positive_seconds(request_timeout, "request_timeout")
        notebook = None if store is None else _notebook(store)
        objects, place = open_objects(url, request_timeout, options, clock)
        self._place, address = place, address_of(place, options)
        self._notes = None if notebook is None else Notes(notebook, objects, form, place, address, clock)
        book = ObjectBook(objects, form, place, clock, max_drift, self._notes)
        super().__init__(book, clock, staging=None if notebook is None else notebook.staging)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def audit(self, name: str, *, unreadable: Unreadable | None = None) -> Iterator[LeaseEvent]:
        """Yield the last 32 events of a lease, oldest first. ``unreadable`` is never called: one object holds them all.

        The commits under the lease are in the audit of the store that it fences. Raises InvalidArgument for Hudi's
        files.
        """
        return super().audit(name, unreadable=unreadable)

    def name_in_store(self, name: str) -> str:
        """Return the name of a lease in the store: ``store.leases.audit(leases.name_in_store("compaction"))``.

        Raises InvalidArgument without a store, BackendUnavailable and DeadlineExceeded.
        """
        if self._notes is None:
            raise InvalidArgument("these leases are not noted in a store; open them with store=")
        return self._notes.name(clean_lease(name), self._clock.monotonic() + self._deadline)

    def __repr__(self) -> str:
        return f"ObjectStoreLeases({self._place!r})"


def _notebook(store: FencedStore) -> StoreLeases:
    """Return the object that notes tokens in the store. Raises InvalidArgument for an async store."""
    notebook = getattr(store, "leases", None)
    mirror = getattr(notebook, "mirror", None)
    if not callable(mirror) or iscoroutinefunction(mirror):
        raise InvalidArgument(
            f"store= must be a store that ms.open returned, not {shown(store)}: these leases cannot use an async store"
        )
    return cast(StoreLeases, notebook)
