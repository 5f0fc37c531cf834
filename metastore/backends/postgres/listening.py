"""A session that receives notifications. Other threads can end its wait."""

from __future__ import annotations

import os
import selectors
import threading
from contextlib import suppress
from typing import Any

import psycopg

from metastore.backends.postgres.read_errors import raise_read_error
from metastore.retry.classify import Consequence, of_sqlstate


class Translated:
    """Turn errors of the driver into errors of this library."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # an unexpected error fences the cache, which then begins again
        if isinstance(error, psycopg.Error) and of_sqlstate(error.sqlstate) is not Consequence.OTHER:
            raise_read_error(error)


class Listening:
    """A wait for the session's socket, and for a pipe through which other threads end the wait."""

    listens = True

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._heard: list[str] = []
        connection.add_notify_handler(lambda notice: self._heard.append(notice.payload))
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._closing = threading.RLock()  # a signal's handler that closes the store may interrupt a call to wake()
        """Held by threads that write to the pipe or close it: after a close, its number may belong to another file."""
        self._selector = selectors.DefaultSelector()  # select() accepts no descriptor above 1,023
        for source in (connection.pgconn.socket, self._woken):
            self._selector.register(source, selectors.EVENT_READ)
        self._open = True

    def wait(self, seconds: float) -> None:
        """Wait until a notification arrives, or another thread calls :meth:`wake`, for this long at most."""
        self.heard(seconds)

    def heard(self, seconds: float) -> list[str]:
        """Wait as :meth:`wait` does; return the payloads of the notifications."""
        # A notification that came with another answer is already in libpq's queue, not in the socket.
        connection = self.connection.pgconn
        if not self._drained():
            ready = {key.fd for key, _ in self._selector.select(seconds)}
            if self._woken in ready:
                os.read(self._woken, 4096)
            if connection.socket in ready:
                with Translated():
                    connection.consume_input()
                self._drained()
        heard, self._heard = self._heard, []
        return heard

    def _drained(self) -> bool:
        while (notice := self.connection.pgconn.notifies()) is not None:
            self._heard.append(notice.extra.decode("utf-8", "replace"))
        return bool(self._heard)

    def wake(self) -> None:
        """End the wait."""
        with self._closing, suppress(OSError):  # a full pipe wakes the waiter already
            if self._open:
                os.write(self._wakes, b"x")

    def close(self) -> None:
        """Close the session. Only the thread that waits calls this."""
        self.connection.close()
        with self._closing:
            if self._open:
                self._open = False
                self._selector.close()
                os.close(self._woken)
                os.close(self._wakes)
