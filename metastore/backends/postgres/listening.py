"""A session that hears notifications, and whose wait other threads can end."""

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
    """Turn errors of the driver into ours."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # an unexpected error fences the cache, and the cache begins again
        if isinstance(error, psycopg.Error) and of_sqlstate(error.sqlstate) is not Consequence.OTHER:
            raise_read_error(error)


class Listening:
    """A wait on the socket of its connection, and on a pipe through which other threads end the wait."""

    listens = True

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._heard: list[str] = []
        connection.add_notify_handler(lambda notice: self._heard.append(notice.payload))
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._closing = threading.RLock()  # a signal's handler that closes the store may interrupt a call to wake()
        """Taken by the threads that write to the pipe or close it: its number may soon be that of another file."""
        self._selector = selectors.DefaultSelector()  # select() accepts no descriptor above 1,023
        for source in (connection.pgconn.socket, self._woken):
            self._selector.register(source, selectors.EVENT_READ)
        self._open = True

    def wait(self, seconds: float) -> None:
        """Wait until a notification arrives, or another thread calls :meth:`wake`, for this long at most."""
        self.heard(seconds)

    def heard(self, seconds: float) -> list[str]:
        """Wait as :meth:`wait` does; return the payloads of the notifications."""
        # A notification that came with another answer is in libpq's queue, not on the socket.
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
        """End a wait."""
        with self._closing, suppress(OSError):  # the pipe is full, so the waiter wakes already
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
