"""A server of the Iceberg REST protocol in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from starlette.types import ASGIApp

import metastore as ms
from metastore.serve import Limits, Principals, Tls, Vendor, application
from metastore.serve.server import Server
from tests.servers.process import wait_until

__all__ = ["running", "served"]


@contextmanager
def running(app: ASGIApp, limits: Limits | None = None, tls: Tls | None = None) -> Iterator[tuple[Server, int]]:
    """Run an application in a thread; give the server and its port."""
    server = Server(app, limits, tls)
    server.config.timeout_graceful_shutdown = 5
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert wait_until(lambda: server.started, 30.0)
        yield server, listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def served(
    url: str,
    warehouse: Path | str,
    principals: Principals | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | Vendor | None = None,
    admins: Iterable[str] | None = None,
    allowed: Sequence[str] = (),
) -> Iterator[str]:
    """Serve the catalog ``lake.ice`` of a store; give the address. With ``admins`` each request is checked."""
    store = ms.open(url, admins=admins or ())
    try:
        app = application(
            store,
            warehouses={"lake.ice": warehouse if isinstance(warehouse, str) else f"file://{warehouse}"},
            properties=properties,
            principals=principals,
            credentials=None if credentials is None else {"lake.ice": credentials},
            authorization=admins is not None,
            allowed_locations=allowed,
        )
    except BaseException:
        store.close()
        raise
    with running(app) as (_, port):
        yield f"http://127.0.0.1:{port}/iceberg"
