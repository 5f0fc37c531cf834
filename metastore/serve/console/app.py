"""The console's routes: pages, files, and the stream of live changes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from metastore.clock import SYSTEM
from metastore.errors import MetastoreError
from metastore.serve.actors import Actors
from metastore.serve.console import render
from metastore.serve.console.asked import Asked, url
from metastore.serve.console.failures import failure, told
from metastore.serve.console.hub import Hub
from metastore.serve.console.live import stream
from metastore.serve.console.pages import PAGES, PageOf
from metastore.serve.console.session import COOKIE, Sessions
from metastore.serve.console.signin import SignIn, away, busy, forget, note_refused, noted
from metastore.serve.console.snapshots import Snapshots
from metastore.serve.console.workers import Busy, Workers
from metastore.serve.iceberg.warehouses import Warehouses
from metastore.serve.principals import IssuerAway, NotAuthenticated, Principal

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Console"]

_LOG = logging.getLogger("metastore.serve")
_DEADLINE: Final = 10.0
"""How long each call of a page may take (seconds)."""


class Console:
    """The console of one store."""

    def __init__(self, store: Store, actors: Actors, warehouses: Warehouses, reports: Path | None = None) -> None:
        self._store = store
        self._actors = actors
        self._sessions = Sessions(actors.principals)
        self._sign_in = SignIn(self._sessions)
        self._workers = Workers()
        self._files = Snapshots(warehouses)
        self._reports = reports
        self._hub = Hub(store, self._watched, self._workers)

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes: the console below ``/console/``, and ``/``, which leads there."""
        pages = [Route(f"/{'' if name == 'place' else name}", self._page(name, of)) for name, of in PAGES.items()]
        inner: list[BaseRoute] = [
            *pages,
            Route("/stream", self._stream),
            *self._sign_in.routes(),
            Route("/{rest:path}", self._other),
        ]
        return [
            Route("/", _to_console, include_in_schema=False),
            Route("/console", _to_console, include_in_schema=False),
            Mount("/console", routes=inner),
        ]

    def close(self) -> None:
        """End all streams, and start no more pages."""
        self._hub.close()
        self._workers.close()
        self._sign_in.close()
        self._files.close()

    def _view(self, principal: Principal) -> Store:
        return self._actors.of(principal).bind(deadline=_DEADLINE)

    def _watched(self, principal: Principal) -> Store:
        """Return the view of an open stream.

        The token's groups are left out, because they were applied when the stream began.
        """
        return self._view(replace(principal, groups=None))

    def _principal(self, request: Request) -> Principal:
        """Return the principal of a request, without waiting. Raises NotAuthenticated, IssuerAway, ValueError."""
        return self._sessions.principal(request.headers, request.cookies.get(COOKIE))

    async def _identified(self, request: Request) -> Principal:
        """Return the principal of a request. Raises NotAuthenticated, IssuerAway, ValueError."""
        await self._sessions.ready(request.headers, request.cookies.get(COOKIE))
        return noted(request, self._principal(request))

    def _page(self, name: str, of: PageOf) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            started = SYSTEM.monotonic()
            answered = await self._answered(request, name, of)
            took = (SYSTEM.monotonic() - started) * 1000
            _LOG.info(
                "%s /console/%s %d %.1f ms", request.method, "" if name == "place" else name, answered.status_code, took
            )
            return answered

        return answer

    async def _answered(self, request: Request, name: str, of: PageOf) -> Response:
        try:
            principal = await self._identified(request)
        except (NotAuthenticated, ValueError) as error:
            return self._not_signed_in(request, error)
        except IssuerAway as error:
            return away(error)
        try:
            return await self._workers.run(partial(self._made, request, name, of, principal))
        except Busy:
            return busy()

    def _made(self, request: Request, name: str, of: PageOf, principal: Principal) -> Response:
        asked: Asked | None = None
        try:
            view = self._view(principal)
            query = dict(request.query_params)
            gauges, files = self._hub.gauges, self._files
            has_form, reports = self._sessions.has_form, self._reports
            asked = Asked(name, query, principal, view, self._store, gauges, files, reports, has_form)
            shown = of(asked)
            return render.html(render.page(asked, shown), shown.status)
        except Exception as error:  # noqa: BLE001  (a page says what went wrong; an unexpected error is logged)
            shown = told(asked, error)
            if shown.status == 403:
                note_refused(request, 403, principal.name, error)
            headers = {"Retry-After": "5"} if shown.status == 503 else {}
            return render.html(render.page(asked, shown), shown.status, headers)

    def _not_signed_in(self, request: Request, error: Exception) -> Response:
        if not self._sessions.has_form:
            note_refused(request, 401, error=error)
            shown = failure("Not signed in", str(error), 401)
            return render.html(render.page(None, shown), 401)
        page = request.url.path.rpartition("/")[2] or "place"
        following = url(page, **dict(request.query_params)) if page in PAGES else ""
        answer = RedirectResponse(url("signin", next=following), 303, render.HEADERS)
        if COOKIE in request.cookies:
            forget(answer, COOKIE)
        return answer

    async def _stream(self, request: Request) -> Response:
        try:
            principal = await self._identified(request)
            await self._workers.run(partial(self._view, principal))
        except (NotAuthenticated, ValueError) as error:
            note_refused(request, 401, error=error)
            return Response(status_code=401, headers=dict(render.HEADERS))
        except MetastoreError as error:  # no user can have the name, or the database is away
            return Response(status_code=error.http_status, headers=dict(render.HEADERS))
        except (IssuerAway, Busy):
            return Response(status_code=503, headers={**render.HEADERS, "Retry-After": "5"})
        return stream(request, self._hub, principal, partial(self._principal, request))

    async def _other(self, request: Request) -> Response:
        name = request.path_params["rest"]
        if (known := render.file_answer(name, request.query_params.get("v"))) is not None:
            return known
        if "/" in name:  # a page at a deeper path would have wrong relative addresses
            return Response("There is no such page.", 404, render.HEADERS, "text/plain")
        shown = failure("There is no such page", "Start at the catalog.", 404)
        return render.html(render.page(None, shown), 404)


async def _to_console(_: Request) -> Response:
    return RedirectResponse("console/", 307, render.HEADERS)
