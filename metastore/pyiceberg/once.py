"""Apply a request at most once under its idempotency key, whichever server gets the repeat.

The operation ids of attempts 0, 1, 2, … are derived from the key. So each server can look up the outcome of each
attempt in the database. If one attempt has committed, the request is done. A failed attempt cannot commit any more. An
open attempt may still commit, but then the next swap fails, because the pointer has moved.

Two notes are kept beside the attempts, as results of operations that write nothing. The first one names the request
that the key belongs to. The second one is the final answer of a request that was refused. It has the operation id of
the next attempt, so no attempt in flight can still commit.

A note of the same kind says that a request has used a folder which the server held for a user. **Users make at most one
table or view in such a folder, for ever.** Only the request in the note may make something there. It commits at most
once, because the operation ids of its attempts are derived from its key. Without a key they are derived from the
request's content. So a failed request can be repeated, and the repeat of a committed one is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError

from metastore.clock import SYSTEM
from metastore.errors import OperationIdReused, VersionConflict
from metastore.operation.keys import key
from metastore.operation.perform import perform
from metastore.operation.request import Call, Request

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Once", "Refused"]

T = TypeVar("T")
_MOST: Final = 10
"""How many times other calls may come first before the request fails. Each attempt reads the table again."""


class Refused(Exception):
    """The server refused the request for good before; ``answer`` is the answer that ``settle`` kept."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__("the request was refused before")
        self.answer = answer


class Once:
    """The attempts of one request.

    ``text``: its idempotency key, or None. ``whose``: the principal. ``call``: the method and path. ``store``: a store
    that sees all operations, and is not a user's: the user may have lost the right to something that an attempt wrote.
    """

    def __init__(self, store: Store, text: str | None = None, whose: str = "", call: str = "") -> None:
        self._store = store
        self._has_key = text is not None
        self._text = text
        """The text from which the operation ids are derived; None: the calls get no operation ids."""
        self._whose = whose
        self._call = call
        self._said: Any = str(SYSTEM.operation_id())
        self._over = 0
        """How many attempts, counted from the first one, have failed for good."""

    def claim(self, request: Any) -> None:
        """Raise OperationIdReused if the key belongs to another request.

        ``request``: the content of this request, as JSON.
        """
        if self._text is None:
            self._said = request
            return
        operation = key(self._text, scope=self._whose)
        try:
            self._note(operation, [self._call, request], None)
        except OperationIdReused:
            message = "the key belongs to another request, with another path, query or body; take a new key"
            raise OperationIdReused(operation, message) from None

    def take(self, *folders: str) -> dict[str, Any]:
        """Note that this request makes something in these folders; return the options of the call that makes it.

        Raises ForbiddenError if another request has noted one of the folders, or this one has made something there.
        """
        if self._text is None:
            self._text = "says " + hashlib.sha256(json.dumps(self._said, sort_keys=True).encode()).hexdigest()
        for folder in folders:
            try:
                self._note(_use_of(folder), [self._text, self._whose, self._call], None)
            except OperationIdReused:
                raise _used(folder) from None
        return self.begin() or {}

    def require_unused(self, folder: str) -> None:
        """Raise ForbiddenError if a request has noted a folder: the table there may belong to another user by now."""
        if self._store.outcome(_use_of(folder)).state != "unknown":
            raise _used(folder)

    def settle(self, answer: dict[str, Any]) -> bool:
        """Keep the answer to a refused request for its repeats.

        Return False if an attempt has committed, so that nothing was refused.

        Raises Refused if another answer is kept already.
        """
        while self._has_key:
            if (options := self.begin()) is None:
                return False
            try:
                self._note(options["operation_id"], answer, answer)
            except OperationIdReused:
                continue  # another call has used this attempt's id meanwhile: take the next one
            break
        return True

    def _note(self, operation: UUID, about: Any, value: T) -> T:
        """Write a result under an id, once. A repeat with the same ``about`` gets it; others get OperationIdReused."""
        request = Request[T](
            "note",
            lambda: "note the outcome of a request",
            attempt=lambda _: value,
            replay=lambda _: value,
            arguments=lambda: [about],
        )
        return perform(self._store._session, request, Call(operation_id=operation))  # noqa: SLF001  (the same package)

    def begin(self) -> dict[str, Any] | None:
        """Return the options of the next attempt's call; None: an attempt has committed.

        Read everything that the attempt depends on before you call this. Then no earlier attempt can commit unnoticed.
        Raises Refused if the request was refused for good, ForbiddenError if a request without a key has used its
        folders.
        """
        if self._text is None:
            return {}
        number = self._over
        while True:
            operation = self._id(number)
            outcome = self._store.outcome(operation)
            state = outcome.state
            if isinstance(outcome.result, dict):
                raise Refused(outcome.result)
            if state == "committed" and outcome.result is not False:  # False: a drop found nothing
                if not self._has_key:
                    raise _used("this folder")
                return None
            if state == "unknown":
                return {"operation_id": operation}
            if state == "failed" and number == self._over:
                self._over += 1
            number += 1

    def has_committed(self) -> bool:
        """Whether an attempt under the key has committed. False without a key, because then this is not known."""
        return self._has_key and self.begin() is None

    def run(self, attempt: Callable[[dict[str, Any]], T], answer: Callable[[], T]) -> T:
        """Return the result of ``attempt(options)``, or of ``answer()`` if an attempt has committed already."""

        def attempts() -> T:
            overtaken = 0
            while (options := self.begin()) is not None:
                try:
                    return attempt(options)
                except OperationIdReused:
                    continue  # another server has sent this attempt
                except VersionConflict as error:  # another call came first
                    overtaken += 1
                    if overtaken == _MOST:
                        raise CommitFailedException(f"others came first {_MOST} times; call again: {error}") from error
            return answer()

        return self.guard(attempts, answer)

    def guard(self, work: Callable[[], T], answer: Callable[[], T]) -> T:
        """Return the result of ``work()``.

        If it fails because an attempt has committed, return that of ``answer()``.
        """
        try:
            return work()
        except CommitStateUnknownException:
            raise
        except Exception:
            if not self.has_committed():
                raise
        return answer()

    def _id(self, number: int) -> UUID:
        return key(f"{self._text}/{number}", scope=f"{self._whose} {self._call}")


def _use_of(folder: str) -> UUID:
    """Return the id of the note that a folder was used."""
    return key(folder, scope="the folder of a new table")


def _used(folder: str) -> ForbiddenError:
    return ForbiddenError(
        f"a table or a view was made in {folder} before; leave the location out, or stage the table again"
    )
