"""The console's routes: pages, the sign-in form, files, and the stream of what happens now."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from metastore.clock import SYSTEM
from metastore.errors import MetastoreError
from metastore.serve import audit
from metastore.serve.actors import Actors
from metastore.serve.console import render
from metastore.serve.console.asked import Asked, Shown, url
from metastore.serve.console.failures import failure, told
from metastore.serve.console.hub import Hub
from metastore.serve.console.live import stream
from metastore.serve.console.pages import PAGES, PageOf
from metastore.serve.console.session import COOKIE, LIFE, Sessions
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
_LARGEST: Final = 16_384
"""How many bytes the sign-in form may have."""


class Console:
    """The console of one store."""

    def __init__(self, store: Store, actors: Actors, warehouses: Warehouses, reports: Path | None = None) -> None:
        self._store = store
        self._actors = actors
        self._sessions = Sessions(actors.principals)
        self._workers = Workers()
        self._files = Snapshots(warehouses)
        self._reports = reports
        self._hub = Hub(store, self._view, self._workers)

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes: the console below ``/console/``, and ``/``, which leads there."""
        pages = [Route(f"/{'' if name == 'place' else name}", self._page(name, of)) for name, of in PAGES.items()]
        inner: list[BaseRoute] = [
            *pages,
            Route("/stream", self._stream),
            Route("/signin", self._form, methods=["GET"]),
            Route("/signin", self._sign_in, methods=["POST"]),
            Route("/signout", self._sign_out, methods=["POST"]),
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
        self._files.close()

    def _view(self, principal: Principal) -> Store:
        return self._actors.of(principal).bind(deadline=_DEADLINE)

    def _principal(self, request: Request) -> Principal:
        """Return who asks, without waiting. Raises NotAuthenticated, IssuerAway, ValueError."""
        return self._sessions.principal(request.headers, request.cookies.get(COOKIE))

    async def _identified(self, request: Request) -> Principal:
        """Return who asks. Raises NotAuthenticated, IssuerAway, ValueError."""
        await self._sessions.ready(request.headers, request.cookies.get(COOKIE))
        return _noted(request, self._principal(request))

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
            return _away(error)
        try:
            return await self._workers.run(partial(self._made, request, name, of, principal))
        except Busy:
            shown = failure("The console is busy", "Many pages are being made; try again in a moment.", 503, again=2)
            return render.html(render.page(None, shown), 503, {"Retry-After": "2"})

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
        except Exception as error:  # noqa: BLE001  (a page says what went wrong; what nobody expects is logged)
            shown = told(asked, error)
            if shown.status == 403:
                _note_refused(request, 403, principal.name, error)
            headers = {"Retry-After": "5"} if shown.status == 503 else {}
            return render.html(render.page(asked, shown), shown.status, headers)

    def _not_signed_in(self, request: Request, error: Exception) -> Response:
        if not self._sessions.has_form:
            _note_refused(request, 401, error=error)
            shown = failure("Not signed in", str(error), 401)
            return render.html(render.page(None, shown), 401)
        page = request.url.path.rpartition("/")[2] or "place"
        following = url(page, **dict(request.query_params)) if page in PAGES else ""
        answer = RedirectResponse(url("signin", next=following), 303, render.HEADERS)
        if COOKIE in request.cookies:
            _forget(answer)
        return answer

    # --- signing in and out

    async def _form(self, request: Request) -> Response:
        if not self._sessions.has_form:
            return RedirectResponse("./", 303, render.HEADERS)
        return self._shown_form(request.query_params.get("next", ""), None)

    def _shown_form(self, following: str, problem: str | None) -> Response:
        shown = Shown("signin.html", "Sign in", {"next": following, "problem": problem})
        return render.html(render.page(None, shown), 401 if problem else 200)

    async def _sign_in(self, request: Request) -> Response:
        if not _is_of_this_page(request):
            return _refused(request)
        given = await _form_of(request)
        following = given.get("next", "")
        try:
            token = given.get("token", "").strip()
            await self._sessions.ready({"authorization": f"Bearer {token}"}, None)
            principal, cookie = self._sessions.sign_in(token)
            _noted(request, principal)
        except IssuerAway as error:
            return _away(error)
        except (NotAuthenticated, ValueError) as error:
            _note_refused(request, 401, error=error)
            return self._shown_form(following, "This token is not valid here.")
        answer = RedirectResponse(_own_page(following), 303, render.HEADERS)
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=LIFE,
            path=None,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _sign_out(self, request: Request) -> Response:
        if not _is_of_this_page(request):
            return _refused(request)
        answer = RedirectResponse("signin", 303, render.HEADERS)
        _forget(answer)
        return answer

    # --- the rest

    async def _stream(self, request: Request) -> Response:
        try:
            principal = await self._identified(request)
            await self._workers.run(partial(self._view, principal))
        except (NotAuthenticated, ValueError) as error:
            _note_refused(request, 401, error=error)
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
        if "/" in name:  # relative addresses in a page would be wrong
            return Response("There is no such page.", 404, render.HEADERS, "text/plain")
        shown = failure("There is no such page", "Start at the catalog.", 404)
        return render.html(render.page(None, shown), 404)


async def _to_console(_: Request) -> Response:
    return RedirectResponse("console/", 307, render.HEADERS)


def _note_refused(request: Request, status: int, user: str | None = None, error: Exception | None = None) -> None:
    asked = f"{request.method} {request.url.path}"
    audit.refused(user, asked, audit.request_id(request.headers), status, error)


def _noted(request: Request, principal: Principal) -> Principal:
    if principal.signs_in:
        audit.signed_in(principal, f"{request.method} {request.url.path}", audit.request_id(request.headers))
    return principal


def _away(error: IssuerAway) -> Response:
    shown = failure("Signing in does not work now", str(error), 503, again=5)
    return render.html(render.page(None, shown), 503, {"Retry-After": "5"})


def _refused(request: Request) -> Response:
    _note_refused(request, 403)
    return render.html(render.page(None, failure("Refused", "A page of another origin sent this form.", 403)), 403)


def _forget(answer: Response) -> None:
    answer.set_cookie(COOKIE, "", max_age=0, path=None, httponly=True, samesite="strict")


def _is_of_this_page(request: Request) -> bool:
    """Whether a page of this server sent a form: browsers say so in a header that pages cannot set."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()


async def _form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; none if it is too large, or has too many."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST:
                return {}
    except ClientDisconnect:
        return {}
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10)
    except ValueError:  # too many fields
        return {}
    return {key: values[0] for key, values in fields.items()}


def _own_page(following: str) -> str:
    """Return where to go after the sign-in: a page of the console, whatever the form says."""
    parts = urlsplit(following)
    name = parts.path.removeprefix("./")
    if parts.scheme or parts.netloc or name not in ("", *PAGES) or "\\" in following:
        return "./"
    return url(name or "place", **dict(parse_qsl(parts.query)))
