"""Objects that are read, created and replaced on a condition: what leases need of a bucket, on the library obstore.

Its own retries are off: with them, a write that was applied and whose answer was lost comes back as a failed
condition. Here each call sends one request, and says what is known afterwards:

* ``put`` returns: the object is what was sent;
* :class:`Refused`: a condition does not hold, as far as the answer goes. It may be our own write of a moment ago, sent
  twice on the way, and a server answers a race with the same (409): look at what is there;
* :class:`Unsettled`: nothing is known: look at what is there, and again later.

What no repetition changes (no permission, no such bucket) is a BackendUnavailable at once. Its text never shows what
the library says: that may hold a signed URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

from metastore.errors import BackendUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Found", "Objects", "ObstoreObjects", "Refused", "Unsettled"]

_first_used_by: dict[str, int] = {}
_STATUS = re.compile(r"status code: (\d{3})")
"""For the message only: decisions rest on the type of the error."""


class Found(NamedTuple):
    """An object, and the tag of this version of it."""

    data: bytes
    etag: str


class Refused(Exception):
    """The condition of a write does not hold."""


class Unsettled(Exception):
    """No answer, or one that says nothing."""


class Objects(Protocol):
    """What keeps lock files. All of it may be called by any thread."""

    def get(self, key: str) -> Found | None:
        """Return an object as it is now; None: there is none. Raises Unsettled."""
        ...

    def put(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Replace the version ``etag`` of an object, or (None) create it; return its new tag, if that is known.

        Raises Refused and Unsettled.
        """
        ...

    def keys(self) -> Iterator[str]:
        """Yield the keys of all objects. Raises Unsettled."""
        ...


class ObstoreObjects:
    """Objects of a store of obstore: S3, Azure, Google, or this process's memory."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        self._opened, self._place = store, place

    @property
    def _store(self) -> ObjectStore:
        """The store, unless it would wait for ever: obstore's threads do not come along when a process forks."""
        if _first_used_by.setdefault("pid", os.getpid()) != os.getpid():
            raise BackendUnavailable(
                f"{self._place} cannot be used in this process, which was forked from one that had used obstore; start "
                "processes by spawn, or acquire leases only after the fork"
            )
        return self._opened

    def get(self, key: str) -> Found | None:
        try:
            result = self._store.get(key)
            data, etag = bytes(result.bytes()), result.meta["e_tag"]
        except FileNotFoundError:
            return None
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is classified)
            self._explain(error)
        if etag is None:
            raise BackendUnavailable(f"{self._place} gives its objects no ETag, which leases need")
        return Found(data, etag)

    def put(self, key: str, data: bytes, etag: str | None) -> str | None:
        try:
            if etag is None:
                return self._store.put(key, data, mode="create")["e_tag"]
            return self._store.put(key, data, mode={"e_tag": etag})["e_tag"]
        except FileNotFoundError:
            raise BackendUnavailable(f"{self._place}: there is no such bucket; create it, or correct the URL") from None
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001
            self._explain(error, writing=True)

    def keys(self) -> Iterator[str]:
        try:
            for batch in self._store.list():
                for item in batch:
                    yield item["path"]
        except FileNotFoundError:
            raise BackendUnavailable(f"{self._place}: there is no such bucket; create it, or correct the URL") from None
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001
            self._explain(error)

    def _explain(self, error: Exception, *, writing: bool = False) -> NoReturn:
        from obstore import exceptions  # noqa: PLC0415  (it is loaded by now)

        if writing and isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            raise Refused from None
        status = found[1] if (found := _STATUS.search(str(error))) else None
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            raise BackendUnavailable(
                f"{self._place} refuses us ({status or 'no permission'}): leases need valid credentials which may get, "
                "put and list objects there"
            ) from None
        if isinstance(error, NotImplementedError | exceptions.NotSupportedError):
            raise BackendUnavailable(f"{self._place} knows no conditional writes, which leases need") from None
        if isinstance(error, exceptions.BaseError | OSError):
            raise Unsettled(f"HTTP {status}" if status else "no answer") from None
        raise BackendUnavailable(f"{self._place} cannot be used: {type(error).__name__}") from None
