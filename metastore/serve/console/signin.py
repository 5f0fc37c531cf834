"""Sign browsers in, by a form that takes a token, or at the issuer; and sign them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from metastore.serve import audit
from metastore.serve.console import render
from metastore.serve.console.asked import Shown, url
from metastore.serve.console.failures import failure
from metastore.serve.console.pages import PAGES
from metastore.serve.console.session import COOKIE, LIFE, Sessions, TooLong
from metastore.serve.console.workers import Busy, Workers
from metastore.serve.principals import IssuerAway, NotAuthenticated, Principal

if TYPE_CHECKING:
    from metastore.serve.oidc.code import CodeFlow

    Handler = Callable[[CodeFlow, Request], Awaitable[Response]]

__all__ = ["BEGUN", "SignIn", "away", "busy", "forget", "note_refused", "noted"]

BEGUN: Final = "metastore_signin"
"""The cookie of a sign-in that is under way at the issuer."""
_LARGEST: Final = 16_384
"""The largest sign-in form (bytes)."""


class SignIn:
    """The pages on which a session begins and ends."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        issuer = sessions.principals.issuer
        self._flow = None if issuer is None else issuer.code_flow
        self._workers = Workers()  # threads of its own: an issuer that is slow delays no page

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes; those to the issuer and back only if the issuer knows the console."""
        routes = [
            Route("/signin", self._form, methods=["GET"]),
            Route("/signin", self._sign_in, methods=["POST"]),
            Route("/signout", self._sign_out, methods=["POST"]),
        ]
        if (flow := self._flow) is not None:
            routes += [
                Route("/login", partial(self._asked, self._to_issuer, flow), methods=["GET"]),
                Route("/callback", partial(self._asked, self._from_issuer, flow), methods=["GET"]),
                Route("/leave", partial(self._asked, self._leave, flow), methods=["GET"]),
            ]
        return routes

    def close(self) -> None:
        """Start no more requests to the issuer."""
        self._workers.close()

    # --- with a token

    async def _form(self, request: Request) -> Response:
        if not self._sessions.has_form:
            return RedirectResponse("./", 303, render.HEADERS)
        return self._shown_form(request.query_params.get("next", ""), None)

    def _shown_form(self, following: str, problem: str | None) -> Response:
        at_issuer = None if self._flow is None else (url("login", next=following), self._flow.host)
        shown = Shown("signin.html", "Sign in", {"next": following, "problem": problem, "at_issuer": at_issuer})
        return render.html(render.page(None, shown), 401 if problem else 200)

    async def _sign_in(self, request: Request) -> Response:
        if not _is_of_this_page(request):
            return _refused(request)
        given = await _form_of(request)
        following = given.get("next", "")
        try:
            cookie = await self._session(request, given.get("token", "").strip())
        except IssuerAway as error:
            return away(error)
        except (NotAuthenticated, ValueError) as error:
            note_refused(request, 401, error=error)
            problem = _sentence(error) if isinstance(error, TooLong) else "This token is not valid here."
            return self._shown_form(following, problem)
        answer = RedirectResponse(_own_page(following), 303, render.HEADERS)
        # behind a proxy that ends TLS, perhaps only the browser's Origin shows that there is TLS
        secure = "https" in (request.url.scheme, urlsplit(request.headers.get("origin", "")).scheme)
        _keep(answer, COOKIE, cookie, LIFE, secure=secure, strict=True)
        return answer

    async def _session(self, request: Request, token: str) -> str:
        """Return the cookie of a new session. Raises NotAuthenticated, IssuerAway."""
        bearing = {"authorization": f"Bearer {token}"}
        await self._sessions.ready(bearing, None)
        noted(request, self._sessions.principal(bearing, None))
        return self._sessions.cookie(token)

    async def _sign_out(self, request: Request) -> Response:
        if not _is_of_this_page(request):
            return _refused(request)
        if self._flow is None:
            answer: Response = RedirectResponse("signin", 303, render.HEADERS)
        else:  # the issuer's session continues, so the next sign-in there may need no password
            answer = render.html(render.page(None, Shown("signedout.html", "Signed out")), 200)
        forget(answer, COOKIE)
        return answer

    # --- at the issuer

    async def _asked(self, of: Handler, flow: CodeFlow, request: Request) -> Response:
        """Answer a request of a sign-in or sign-out. The handler may call the issuer, so it runs in a thread."""
        try:
            return await of(flow, request)
        except IssuerAway as error:
            return away(error)
        except Busy:
            return busy()

    async def _to_issuer(self, flow: CodeFlow, request: Request) -> Response:
        place, cookie = await self._workers.run(partial(flow.begin, _own_page(request.query_params.get("next", ""))))
        answer = RedirectResponse(place, 303, render.HEADERS)
        _keep(answer, BEGUN, cookie, flow.life, secure=flow.is_secure, strict=False)
        return answer

    async def _from_issuer(self, flow: CodeFlow, request: Request) -> Response:
        """End a sign-in.

        The cookie of the sign-in stays if the answer belongs to another sign-in, or if the issuer does not answer: the
        sign-in may still succeed.
        """
        given = dict(request.query_params)
        if len(given) < len(request.query_params.multi_items()):
            given = {}  # RFC 6749, section 3.1: no parameter comes twice
        try:
            begun = flow.begun(given, request.cookies.get(BEGUN, ""))
        except NotAuthenticated as error:
            return _not_in(request, error)
        try:
            cookie = await self._session(request, await self._workers.run(partial(flow.end, given, begun)))
        except (NotAuthenticated, ValueError) as error:
            answer = _not_in(request, error)
        else:
            # this page loads the next one itself: after a redirect from another origin, browsers would not send the
            # session's cookie, because it is strict
            shown = Shown("arrived.html", "Signed in", {"onward": _own_page(begun.following)})
            answer = render.html(render.page(None, shown), 200)
            _keep(answer, COOKIE, cookie, LIFE, secure=flow.is_secure, strict=True)
        forget(answer, BEGUN)
        return answer

    async def _leave(self, flow: CodeFlow, _: Request) -> Response:
        place = await self._workers.run(flow.leave)
        return RedirectResponse(place or "signin", 303, render.HEADERS)


def note_refused(request: Request, status: int, user: str | None = None, error: Exception | None = None) -> None:
    """Write the line of the audit log for a request that is refused."""
    asked = f"{request.method} {request.url.path}"
    audit.refused(user, asked, audit.id_of(request.scope), status, error)


def noted(request: Request, principal: Principal) -> Principal:
    """Return the principal; if its token is new here, write a line of the audit log first."""
    if principal.signs_in:
        audit.signed_in(principal, f"{request.method} {request.url.path}", audit.id_of(request.scope))
    return principal


def away(error: IssuerAway) -> Response:
    """Return the page about an issuer that does not answer; it loads itself again."""
    shown = failure("Signing in does not work now", str(error), 503, again=5)
    return render.html(render.page(None, shown), 503, {"Retry-After": "5"})


def busy() -> Response:
    """Return the page of a server whose threads have too much to do."""
    shown = failure("The console is busy", "Many pages are being made; try again in a moment.", 503, again=2)
    return render.html(render.page(None, shown), 503, {"Retry-After": "2"})


def forget(answer: Response, name: str) -> None:
    """Delete a cookie in the browser."""
    answer.set_cookie(name, "", max_age=0, path=None, httponly=True, samesite="strict")


def _keep(answer: Response, name: str, value: str, life: int, *, secure: bool, strict: bool) -> None:
    """Give the browser a cookie. A cookie that is not strict is also sent when another origin leads here."""
    answer.set_cookie(
        name,
        value,
        max_age=life,
        path=None,
        secure=secure,
        httponly=True,
        samesite="strict" if strict else "lax",
    )


def _not_in(request: Request, error: Exception) -> Response:
    note_refused(request, 401, error=error)
    return render.html(render.page(None, failure("Not signed in", _sentence(error), 401)), 401)


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _refused(request: Request) -> Response:
    note_refused(request, 403)
    return render.html(render.page(None, failure("Refused", "A page of another origin sent this form.", 403)), 403)


def _is_of_this_page(request: Request) -> bool:
    """Whether a page of this server sent a form: browsers say so in headers that pages cannot set."""
    if "origin" in request.headers:
        return True  # the gate has refused each request with the origin of another server
    return request.headers.get("sec-fetch-site") == "same-origin"


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
    """Return the address to go to after the sign-in: a page of the console, whatever the form says."""
    try:
        parts = urlsplit(following)
    except ValueError:
        return "./"
    name = parts.path.removeprefix("./")
    if parts.scheme or parts.netloc or name not in ("", *PAGES) or "\\" in following:
        return "./"
    return url(name or "place", **dict(parse_qsl(parts.query)))
