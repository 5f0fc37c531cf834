"""Check a request before any other part of the server sees it.

A browser on the operator's machine reaches a server on loopback, and runs the pages of strangers. A page may send some
requests (a form, an image) without a preflight, and DNS rebinding makes the server look like the page's own origin. So:

* if nothing checks who a client is, ``Host`` must be a loopback address, which a rebound name is not;
* an ``Origin``, which only browsers send, must be that of the server itself, or of its public URL (``web.py`` also
  requires JSON's content type for a body, for which a page of another origin needs a preflight);
* a header that decides something must not come twice, because two programs could each read another one of the two;
* the size of a header is limited, even if it arrives at once (``limits.py`` cuts one that is still arriving).
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metastore.serve import audit
from metastore.serve.limits import HEADER_BYTES

__all__ = ["Gate"]

_DECIDE: Final = frozenset({b"host", b"origin", b"authorization", b"content-type", b"content-length", b"cookie"})
_TYPES: Final = {400: "BadRequestException", 403: "ForbiddenException", 431: "BadRequestException"}


class Gate:
    """An ASGI application behind these checks. A request that fails them gets a short answer in JSON.

    ``authenticates``: each request proves who makes it, so any ``Host`` is allowed. ``header``: the header in which a
    proxy names the user. ``public``: where browsers reach the server (scheme and host), whatever ``Host`` a proxy
    before it sends.
    """

    def __init__(
        self, app: ASGIApp, *, authenticates: bool, header: str | None, public: tuple[str, str] | None = None
    ) -> None:
        self._app = app
        self._authenticates = authenticates
        self._public = public
        self._once = _DECIDE | ({header.lower().encode()} if header is not None else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a request its id, which each answer has; pass it on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = audit.id_of(scope)
        send = _with_id(send, id)
        if (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
        else:
            status, message = refusal
            audit.refused(None, f"{scope['method']} {quote(scope['path'])}", id, status, None)
            await _answer(send, status, message)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        target = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])  # a raw path is optional
        if target + sum(len(name) + len(value) for name, value in pairs) > HEADER_BYTES:
            return 431, f"the request's header has more than {HEADER_BYTES >> 10} KiB; send less"
        counts = Counter([name for name, _ in pairs if name in self._once])
        twice = next((name.decode() for name, count in counts.items() if count > 1), None)
        if twice is not None:
            return 400, f"the header {twice} comes twice; send it once"
        headers = {name: value.decode("latin-1") for name, value in pairs}
        host = headers.get(b"host", "")
        if not self._authenticates and not _is_loopback(host):
            return (
                403,
                "Host is not a loopback address; ask http://127.0.0.1, or let the server authenticate",
            )
        origin = headers.get(b"origin")
        if origin is not None and not _is_own(origin, scope["scheme"], host.lower(), self._public):
            return 403, "a page of another origin may not send requests to this server"
        return None


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_own(origin: str, scheme: str, host: str, public: tuple[str, str] | None) -> bool:
    """Return whether an origin is the server's own. A page that came without TLS is not a TLS server's own."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    its = parts.scheme, parts.netloc.lower()
    if public is not None and its[1] == public[1]:
        return its == public
    return its in {(scheme, host), ("https", host)}  # a proxy may add the TLS


def _with_id(send: Send, id: str) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (audit.ID_HEADER.encode(), id.encode())]
        await send(message)

    return sent


async def _answer(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": _TYPES[status], "code": status}}).encode()
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
