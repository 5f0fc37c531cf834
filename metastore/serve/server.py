"""Run the application with uvicorn, on the loopback interface unless requests are authenticated."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable
from threading import Timer
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from metastore.errors import InvalidArgument
from metastore.serve import audit
from metastore.serve.handshakes import Handshakes
from metastore.serve.limits import Limits, sweep, watched
from metastore.serve.tls import Tls

__all__ = ["Server", "serve_application"]

_GRACE: Final = 20
"""How long a server that is asked to stop continues with its requests (seconds)."""
_END: Final = 30
"""How long after the signal the process ends, even if its threads still wait (seconds)."""
_TICKS: Final = 5
"""How many ticks of uvicorn pass between two looks at the connections. A tick is a tenth of a second."""
_LOG = logging.getLogger("metastore.serve")


class Server(uvicorn.Server):
    """uvicorn's server, with limits for its clients, TLS whose files may be replaced, and a deadline for its end."""

    def __init__(self, application: ASGIApp, limits: Limits | None = None, tls: Tls | None = None) -> None:
        """Raises InvalidArgument for limits that the process cannot keep."""
        self._limits, self._tls = limits or Limits(), tls
        self._limits.check()
        super().__init__(
            uvicorn.Config(
                application,
                http="httptools",
                ws="none",
                timeout_keep_alive=self._limits.idle,  # type: ignore[arg-type]  # any number of seconds will do
                timeout_graceful_shutdown=_GRACE,
                access_log=False,
                log_level="warning",
                server_header=False,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and listen."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(uvicorn.config.STARTUP_FAILURE)
        made = watched(self.config.http_protocol_class, self._limits)
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            return made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop)

        backlog, state = self.config.backlog, self.server_state
        if self._tls is None:
            self.servers = [await loop.create_server(connection, sock=one, backlog=backlog) for one in sockets or ()]
        else:
            given = (connection, self._tls.context, state.connections, self._limits)
            self.servers = [Handshakes(one, *given) for one in sockets or ()]  # type: ignore[misc]  # closed alike
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Cut the connections of clients that took too long, and read replaced files of TLS."""
        if counter % _TICKS == 0:
            sweep(self.server_state.connections)
            if self._tls is not None:
                self._tls.refresh()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order. If that takes too long, end the process: a thread may wait for a file or a job for ever.

        That is as safe as a kill: the database decides what was committed, and jobs die with their server.
        """
        if not self.should_exit:
            timer = Timer(_END, _ended, (sig,))
            timer.daemon = True
            timer.start()
        super().handle_exit(sig, frame)


def _ended(sig: int) -> None:
    _LOG.error("the server's work did not end within %d s; the process ends now", _END)
    os._exit(128 + sig)


def serve_application(
    application: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8181,
    authenticates: bool = False,
    limits: Limits | None = None,
    tls: Tls | None = None,
    listens: Callable[[int], object] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT. Then answer the accepted requests for at most 20 seconds, and end within 30.

    Raises InvalidArgument for a host that other machines reach, unless the application ``authenticates``: any client
    could name any user there. Raises InvalidArgument too for a host or a port that it cannot listen on, and for limits
    that are too high. If ``port`` is 0, it takes a free one. ``listens`` gets the port once clients can connect.
    """
    if not authenticates and not is_loopback(host):
        raise InvalidArgument(
            f"other machines can reach {host}, and the server cannot check who a client is; give a --token-file, "
            "an --oidc-issuer, or a --proxy-header that a proxy before the server sets, or serve on 127.0.0.1"
        )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("metastore.serve").setLevel(logging.INFO)  # the access log
    audit.show()
    server = Server(application, limits, tls)
    with _listening(host, port) as listener:
        listens(listener.getsockname()[1])
        gc.collect()
        gc.freeze()  # otherwise a large body makes the collector traverse all modules, and every thread waits meanwhile
        try:
            server.run(sockets=[listener])
        finally:
            gc.unfreeze()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        why = os.strerror(error.errno)  # create_server appends the address to the error's own text
        raise InvalidArgument(f"the server cannot listen on {host}, port {port}: {why}; choose another") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on ``host``. Raises InvalidArgument."""
    try:
        places = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        raise InvalidArgument(f"the host {host} is not known; write 127.0.0.1") from None
    return all(ipaddress.ip_address(place).is_loopback for place in places)
