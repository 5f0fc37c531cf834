"""Run the application with uvicorn, on the loopback interface unless requests are authenticated."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from metastore.errors import InvalidArgument

__all__ = ["serve_application"]

_GRACE = 20
"""How long a server that is asked to stop goes on with the requests that it has (seconds)."""


def serve_application(
    application: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8181,
    authenticates: bool = False,
    listens: Callable[[int], object] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT; then answer what was accepted, for 20 seconds at most.

    Raises InvalidArgument for a host that others reach, unless the application ``authenticates``: any client could name
    any user there. Raises InvalidArgument too for a port that another program has. ``port`` 0 is a free one.
    ``listens`` gets the port as soon as clients can connect.
    """
    if not authenticates and not _is_loopback(host):
        raise InvalidArgument(
            f"{host} is reached from other machines, and nothing checks there who a client is; give a --token-file, or "
            "a --proxy-header that a proxy before the server sets, or serve on 127.0.0.1"
        )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("metastore.serve").setLevel(logging.INFO)  # the access log
    with _listening(host, port) as listener:
        listens(listener.getsockname()[1])
        config = uvicorn.Config(
            application, timeout_graceful_shutdown=_GRACE, access_log=False, log_level="warning", server_header=False
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        raise InvalidArgument(f"it cannot listen on {host}, port {port}: {error.strerror}; choose another") from None


def _is_loopback(host: str) -> bool:
    try:
        places = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        raise InvalidArgument(f"the host {host} is not known; write 127.0.0.1") from None
    return all(ipaddress.ip_address(place).is_loopback for place in places)
