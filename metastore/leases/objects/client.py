"""Read objects, and create or replace them conditionally, with the library obstore.

Obstore's own retries are off: with them, a write that was applied, but whose answer was lost, is reported as a failed
condition. Here, each call sends one request, and reports what is known afterwards:

* ``put`` returns: the object has the new content;
* :class:`ConditionFailed`: the answer says that the condition does not hold. The cause may be a race (409), or this
  process's own write, which the network sent twice: read the object;
* :class:`Unsettled`: the outcome is unknown: read the object, again if that fails.

A permanent error (no permission, no such bucket) is Unsettled, too, with a ``final`` error: a proxy may give such an
answer once. No text contains the library's message, which may hold a signed URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

from metastore.errors import BackendUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ConditionFailed", "Found", "Objects", "ObstoreObjects", "Unsettled"]

_first_used_by: dict[str, int] = {}
_STATUS = re.compile(r"status code: (\d{3})")
"""The status in an error's text, for messages and for a LIST. All other decisions use the type of the error."""


class Found(NamedTuple):
    """An object, and the tag of its version."""

    data: bytes
    etag: str


class ConditionFailed(Exception):
    """The condition of a write does not hold."""


class Unsettled(Exception):
    """There was no answer, or one that leaves the outcome open.

    ``final``: the error to raise if the same answer comes again and again.
    """

    def __init__(self, what: str | None, final: BackendUnavailable | None = None) -> None:
        super().__init__(what)
        self.final = final


class Objects(Protocol):
    """Storage for lock files. Any thread may call any method."""

    def get(self, key: str) -> Found | None:
        """Return an object as it is now; None: it does not exist. Raises Unsettled."""

    def put(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Replace the version ``etag`` of an object, or create it (None); return its new tag, if that is known.

        Raises ConditionFailed and Unsettled.
        """

    def keys(self, folder: str = "") -> Iterator[str]:
        """Yield the keys of all objects, or of those in a folder. Raises Unsettled."""

    def delete(self, key: str) -> None:
        """Delete an object, if it exists. Raises Unsettled."""


class ObstoreObjects:
    """Objects in an obstore store: S3, Azure, Google, or the memory of this process."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        self._opened, self._place = store, place

    @property
    def _store(self) -> ObjectStore:
        """The obstore store. Raises BackendUnavailable after a fork: without its threads, obstore would hang."""
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
        except Exception as error:  # noqa: BLE001  (_explain classifies every error)
            self._explain(error)
        if etag is None:
            raise Unsettled("no ETag", BackendUnavailable(f"{self._place} returns no ETag; leases need one"))
        return Found(data, etag)

    def put(self, key: str, data: bytes, etag: str | None) -> str | None:
        try:
            if etag is None:
                return self._store.put(key, data, mode="create")["e_tag"]
            return self._store.put(key, data, mode={"e_tag": etag})["e_tag"]
        except FileNotFoundError:
            self._no_bucket()
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001
            self._explain(error, writing=True)

    def keys(self, folder: str = "") -> Iterator[str]:
        try:
            for batch in self._store.list(folder or None):
                for item in batch:
                    yield item["path"]
        except FileNotFoundError:
            self._no_bucket()
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001
            # for S3, the error is a GenericError, which has the status only in its text
            if (matched := _STATUS.search(str(error))) and matched[1] == "404":
                self._no_bucket()
            self._explain(error)

    def delete(self, key: str) -> None:
        try:
            self._store.delete(key)
        except FileNotFoundError:
            pass
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001
            self._explain(error)

    def _no_bucket(self) -> NoReturn:
        final = BackendUnavailable(f"{self._place}: there is no such bucket; create it, or correct the URL")
        raise Unsettled("HTTP 404", final) from None

    def _explain(self, error: Exception, *, writing: bool = False) -> NoReturn:
        from obstore import exceptions  # noqa: PLC0415  (a store is open, so it is loaded already)

        if writing and isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            raise ConditionFailed from None
        status = matched[1] if (matched := _STATUS.search(str(error))) else None
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            final = BackendUnavailable(
                f"{self._place} denies access ({status or 'no permission'}): leases need credentials that may get, "
                "put, list and delete objects there"
            )
            raise Unsettled(f"HTTP {status}", final) from None
        if isinstance(error, NotImplementedError | exceptions.NotSupportedError):
            raise BackendUnavailable(f"{self._place} has no conditional writes; leases need them") from None
        if isinstance(error, exceptions.BaseError | OSError):
            raise Unsettled(f"HTTP {status}" if status else "no answer") from None
        raise BackendUnavailable(f"{self._place} cannot be used: {type(error).__name__}") from None
