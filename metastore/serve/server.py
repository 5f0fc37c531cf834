"""Run the application with uvicorn, on the loopback interface unless requests are authenticated."""

from __future__ import annotations

import ipaddress
import logging
import socket

import uvicorn
from starlette.applications import Starlette

from metastore.errors import InvalidArgument

__all__ = ["serve_application"]

_GRACE = 20
"""How long a server that is asked to stop goes on with the requests that it has (seconds)."""


def serve_application(
    application: Starlette, *, host: str = "127.0.0.1", port: int = 8181, authenticates: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT; then answer what was accepted, for 20 seconds at most.

    Raises InvalidArgument for a host that others reach, unless the application ``authenticates``: any client could name
    any user there.
    """
    if not authenticates and not _is_loopback(host):
        raise InvalidArgument(
            f"{host} is reached from other machines, and nothing checks there who a client is; give a --token-file, or "
            "a --proxy-header that a proxy before the server sets, or serve on 127.0.0.1"
        )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("metastore.serve").setLevel(logging.INFO)  # the access log
    uvicorn.run(
        application, host=host, port=port, timeout_graceful_shutdown=_GRACE, access_log=False, log_level="warning"
    )


def _is_loopback(host: str) -> bool:
    try:
        places = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        raise InvalidArgument(f"the host {host} is not known; write 127.0.0.1") from None
    return all(ipaddress.ip_address(place).is_loopback for place in places)
