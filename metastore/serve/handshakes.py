"""Accept the connections of a server with TLS, and count those whose handshake is not finished, too.

asyncio gives a connection to its protocol only after the handshake. Without this count, clients that never begin a
handshake would take all open files of the process.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from metastore.clock import SYSTEM
from metastore.serve.limits import Limits, make_room

__all__ = ["Handshakes"]

_FAREWELL: Final = 1.0
"""How long the server, after it has closed a connection, waits for the client to close it too (seconds)."""
_PAUSE: Final = 1.0
"""How long the server accepts nothing after the process has run out of open files (seconds)."""


class Handshakes:
    """Accepts from one listener. uvicorn closes it like one of asyncio's servers.

    ``made`` makes the protocol of a connection; ``connections``: all that the server has.
    """

    def __init__(
        self,
        listener: socket.socket,
        made: Callable[[], Any],
        context: ssl.SSLContext,
        connections: set[Any],
        limits: Limits,
    ) -> None:
        listener.setblocking(False)
        self._made, self._context, self._connections, self._limits = made, context, connections, limits
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._accept(listener))

    def close(self) -> None:
        """Accept no more connections."""
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Return at once: the server waits for its connections itself."""

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listener)
            except ConnectionError:  # the client has gone
                continue
            except OSError:
                await asyncio.sleep(_PAUSE)
                continue
            begun = _Handshake(accepted, self._connections)
            begun.task = self._loop.create_task(self._greet(accepted, begun))
            self._connections.add(begun)
            if len(self._connections) > self._limits.connections:
                make_room(self._connections, begun)
            await asyncio.sleep(0)  # otherwise a long queue of clients would stop the loop

    async def _greet(self, accepted: socket.socket, begun: _Handshake) -> None:
        def connection() -> Any:
            protocol = self._made()
            protocol.begun = begun
            return protocol

        seconds = self._limits.header
        try:
            with suppress(OSError):
                await self._loop.connect_accepted_socket(
                    connection,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=_FAREWELL,
                )
        finally:
            self._connections.discard(begun)


class _Handshake:
    """A connection whose handshake is under way: it waits for its client."""

    task: asyncio.Task[None]

    def __init__(self, accepted: socket.socket, connections: set[Any]) -> None:
        self._accepted, self._connections, self._since = accepted, connections, SYSTEM.monotonic()

    def look(self, _: float) -> float:
        """Return the time since which the connection waits."""
        return self._since

    def is_over(self, _: float) -> bool:
        """Return False: asyncio itself ends a handshake that takes too long."""
        return False

    def cut(self) -> None:
        """Close the socket, so that the handshake fails. Cancelling its task too early would not end it in asyncio."""
        self._connections.discard(self)
        with suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)

    shutdown = cut

    def refuse(self, status: bytes) -> None:
        """Do nothing: the connection itself refuses its client after the handshake."""
