"""A server of the Iceberg REST protocol in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

import metastore as ms
from metastore.serve import Principals, Vendor, application
from tests.servers.process import wait_until

__all__ = ["served"]


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
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert wait_until(lambda: server.started, 30.0)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/iceberg"
    finally:
        server.should_exit = True
        thread.join()
