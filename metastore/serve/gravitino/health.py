"""Gravitino's probes: ``/api/health/live``, ``/api/health/ready``, ``/api/health``.

As in Gravitino, they need no token.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from metastore.errors import MetastoreError
from metastore.serve.gravitino.protocol import MEDIA_TYPE

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["health_routes"]

_LOG = logging.getLogger("metastore.serve")
_SERVER: Final = {"name": "httpServer", "status": "UP", "details": {}}


def health_routes(store: Store) -> list[Route]:
    """Return the routes of the probes. A failed probe answers 503, and tells strangers only that it failed."""

    async def live(_: Request) -> Response:
        return _answer([_SERVER])

    async def ready(_: Request) -> Response:
        return _answer([await run_in_threadpool(_database, store)])

    async def both(_: Request) -> Response:
        return _answer([_SERVER, await run_in_threadpool(_database, store)])

    return [Route("/api/health", both), Route("/api/health/live", live), Route("/api/health/ready", ready)]


def _database(store: Store) -> dict[str, Any]:
    try:
        store.ping()
    except MetastoreError as error:
        _LOG.warning("the database is away: %s", error)
        return {"name": "entityStore", "status": "DOWN", "details": {"reason": type(error).__name__}}
    return {"name": "entityStore", "status": "UP", "details": {}}


def _answer(checks: Sequence[dict[str, Any]]) -> Response:
    is_up = all(check["status"] == "UP" for check in checks)
    body = {"code": 0, "status": "UP" if is_up else "DOWN", "checks": list(checks)}
    return JSONResponse(body, status_code=200 if is_up else 503, media_type=MEDIA_TYPE)
