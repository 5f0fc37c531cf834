"""The ASGI application: the protocols that a server speaks, its console, its health, and its metrics."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from metastore.errors import InvalidArgument, MetastoreError
from metastore.jobs import WorkerPool
from metastore.serve.actors import Actors
from metastore.serve.console import Console
from metastore.serve.gate import Gate
from metastore.serve.gc import Collector
from metastore.serve.gravitino.health import health_routes
from metastore.serve.gravitino.protocol import gravitino_protocol
from metastore.serve.iceberg.credentials import Vendor
from metastore.serve.iceberg.protocol import iceberg_protocol
from metastore.serve.iceberg.warehouses import Warehouses
from metastore.serve.principals import Principals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from metastore.store import Store

__all__ = ["application"]

_LOG = logging.getLogger("metastore.serve")
_KEEPS: Final = timedelta(days=1)
"""How long repeated requests of Iceberg's clients, and the folders that users have used, stay known."""


def application(
    store: Store,
    *,
    warehouses: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    principals: Principals | None = None,
    job_workers: int = 0,
    take_over_jobs: bool = False,
    reveals: Sequence[str] = (),
    credentials: Mapping[str, Mapping[str, str] | Vendor] | None = None,
    authorization: bool = False,
    allowed_locations: Sequence[str] = (),
    iceberg: bool = True,
    gravitino: bool = True,
    body_timeout: float = 60.0,
    console: bool = True,
    gc_retention: timedelta | None = None,
    reports: Path | None = None,
) -> ASGIApp:
    """Return the application of an open store. It closes the store when the server stops.

    * ``warehouses``: from ``metalake.catalog`` to the folder or bucket of its tables. A missing metalake or catalog is
      created.
    * ``properties``: the properties of PyIceberg's file systems.
    * ``principals``: tells who a client is. Without it nothing is checked.
    * ``job_workers``: how many jobs this server runs at once, with its own rights.
    * ``take_over_jobs``: run the jobs too that were submitted to another database, of which this one is a copy.
    * ``reveals``: prefixes of the references to secrets that clients may get as credentials, such as ``env:LAKE_``.
    * ``credentials``: from ``metalake.catalog`` to the credentials of its files, for its Iceberg clients. They are
      properties of file systems, which this server uses too, with references such as ``secret:env:NAME``. Or a
      ``Vendor`` makes them: ``Sts``, ``AzureSas`` and ``GcsTokens`` make short-lived keys of S3, Azure and Google.
    * ``authorization``: a request has the rights of the client's user, as with ``store.as_user``. ``principals`` must
      authenticate.

    * ``allowed_locations``: folders or buckets in which files of Iceberg tables may lie besides their warehouse's.

    * ``iceberg``, ``gravitino``: the protocols that it speaks; ``console``: web pages, below ``/console/``.

    * ``body_timeout``: how long the body of a request may take to arrive (seconds).

    * ``gc_retention``: run gc with this retention, on one server of the database at a time; None: never. With
      ``iceberg`` it must be a day or more.

    * ``reports``: a folder with ``verify.json`` and the folders of load tests, which the console shows.

    Raises InvalidArgument for an argument that is wrong, before it serves anything.
    """
    if iceberg and gc_retention is not None and gc_retention < _KEEPS:
        message = f"Iceberg's clients repeat requests for a day: the retention of gc is 1d or more, not {gc_retention}"
        raise InvalidArgument(f"{message}; or leave Iceberg's protocol out")
    asked_by = principals or Principals()
    actors = Actors(store, asked_by, authorization=authorization)
    catalogs = Warehouses(store, actors, warehouses or {}, properties or {}, credentials, allowed_locations)

    pages = Console(store, actors, catalogs, reports) if console else None

    async def health(_: Request) -> Response:
        try:
            await run_in_threadpool(store.ping)
        except MetastoreError as error:
            _LOG.warning("the database is away: %s", error)
            # strangers must not learn the database's host
            return JSONResponse({"status": "unavailable"}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def metrics(_: Request) -> Response:
        return await run_in_threadpool(_metrics, store)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with _working(store, job_workers, take_over_jobs, gc_retention):
            yield
        if pages is not None:
            pages.close()
        await run_in_threadpool(store.close)

    routes: list[BaseRoute] = [Route("/healthz", health), Route("/metrics", metrics)]
    if iceberg:
        routes.append(Mount("/iceberg", iceberg_protocol(catalogs, asked_by, body_timeout)))
    if gravitino:
        routes += health_routes(store)
        routes.append(Mount("/api", gravitino_protocol(actors, reveals, body_timeout)))
    if pages is not None:
        routes += pages.routes()
    whole = list(map(_whole, routes))
    app = Starlette(lifespan=lifespan, routes=whole, exception_handlers={404: _unknown, 405: _unknown})
    flow = None if asked_by.issuer is None else asked_by.issuer.code_flow
    public = None if flow is None else flow.client.origin
    return Gate(app, authenticates=asked_by.authenticates, header=asked_by.header, public=public)


async def _unknown(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path or method, in the same form as the server's other errors."""
    assert isinstance(error, HTTPException)
    path, code = request.url.path, error.status_code
    message = f"{path} has no method {request.method}" if code == 405 else f"there is nothing at {path}"
    kind = "BadRequestException" if code == 405 else "NotFoundException"
    body = {"error": {"message": message, "type": kind, "code": code}}
    return JSONResponse(body, code, error.headers)


def _whole(route: Any) -> Any:
    """Make a route match whole paths only. Starlette ignores a line break (%0A) at the end, and matches none inside."""
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    for inner in getattr(route, "routes", ()):  # the routes below a mount
        _whole(inner)
    return route


@contextmanager
def _working(store: Store, jobs: int, take_over: bool, gc_retention: timedelta | None) -> Iterator[None]:
    """Do a server's work in the background: run ``jobs`` jobs at once, and gc."""
    with ExitStack() as work:
        if jobs:
            work.enter_context(WorkerPool(store, workers=jobs, take_over=take_over))
        if gc_retention is not None:
            work.enter_context(Collector(store, gc_retention))
        yield


def _metrics(store: Store) -> Response:
    """Return the store's metrics in Prometheus' text format; 501 without prometheus-client."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        return PlainTextResponse("metrics need prometheus-client: pip install 'versioned-metastore[metrics]'", 501)
    from metastore.prometheus import register  # noqa: PLC0415

    registry: Any = CollectorRegistry()
    register(store, registry)
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")
