"""Requests and answers: route a request, read its JSON body, call a handler in a thread, answer in JSON.

Names in a path may have any character, even an encoded slash. So paths are cut before they are decoded.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from metastore.clock import SYSTEM
from metastore.errors import MetastoreError, for_clients
from metastore.plain.bodies import LARGE, Crowded, read_json, read_large_json, write_json
from metastore.serve import audit
from metastore.serve.principals import Principal, Principals

__all__ = ["Answer", "BadRequest", "Busy", "Call", "Encoded", "Protocol", "Route", "TooLarge", "route", "told"]

_LARGEST: Final = 16 << 20
"""The largest body of a request (bytes)."""
_IN_FLIGHT: Final = 64 << 20
"""How many bytes of bodies a protocol holds before it refuses larger ones. The parsed values take several times as
much. Small bodies always pass, because the number of connections bounds them."""
_SLICE: Final = 256 << 10
"""How much of an answer is sent at once (bytes)."""
_UNSENT: Final = 256 << 20
"""How many bytes of large answers the clients together may leave untaken."""
_STALLED: Final = 1.0
"""How long a client must have taken nothing of its answer before the server breaks the answer off (seconds)."""
_READERS, _WRITERS = 24, 24
"""How many reads, and how many writes, run at once. They have separate threads: waiting writes delay no read."""
_JSON: Final = ("application/json", "application/vnd.gravitino.v1+json")
_READS: Final = ("GET", "HEAD")
_LOG = logging.getLogger("metastore.serve")
_USER: Final = "metastore.user"
"""The key of the user in a request's scope."""


class BadRequest(ValueError):
    """The request cannot be read: wrong JSON, or a missing or wrong field."""


class TooLarge(BadRequest):
    """The body of the request is larger than any that a catalog needs."""


class Encoded(BadRequest):
    """The body is compressed, which no client of a catalog does."""


class Busy(Exception):
    """The server holds as many large bodies as it can; the client tries again."""


def told(error: Exception) -> Exception:
    """Return the error that a client is told.

    An error of the database names its host, user or file, so only the log has it.

    The same is true of another library's error that has such an error as its cause, with the same text.
    """
    for one in (error, error.__cause__):
        if isinstance(one, MetastoreError) and one.names_place and str(one) == str(error):
            _LOG.warning("the database is away: %s", one)
            return type(error)(for_clients(one))
    return error


@dataclass(frozen=True)
class Call:
    """One request: the decoded parameters of its path, its query, headers and JSON body, and its principal."""

    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    principal: Principal
    operation: str
    """Its method and path."""
    said: Any = None
    """A value that differs for different bodies: the body itself, or the SHA-256 of a large one."""
    id: str = ""
    """The id of the request, for the audit log."""

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self.operation.startswith(_READS)


@dataclass(frozen=True)
class Answer:
    """A handler's answer: a JSON value (None: no body), or a tuple with the parts of a text that is JSON already."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Exception | None = None
    """The error that it reports, if there is one."""

    def response(self, media_type: str) -> Response:
        """Return the answer as Starlette sends it."""
        if self.body is None:
            return Response(status_code=204 if self.status == 200 else self.status, headers=dict(self.headers))
        parts, headers = self.parts, dict(self.headers)
        if sum(map(len, parts)) > _SLICE:
            return _Sliced(parts, self.status, headers, media_type)
        return Response(b"".join(parts), self.status, headers, media_type)

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The parts of the body as JSON."""
        return self.body if isinstance(self.body, tuple) else (write_json(self.body),)


class _Sliced(Response):
    """A large answer that is sent in slices: the next one follows when the client has taken the one before.

    Answers that wait may share parts, such as the metadata of one table. If all parts together are too large, the
    server breaks off the answer whose client has taken nothing for longest, provided that this is a second or more.
    """

    _waiting: ClassVar[dict[_Sliced, tuple[float, asyncio.Task[Any]]]] = {}
    """The answers under way, each with the time since which its client takes nothing. The longest wait is first."""
    _looks_at: ClassVar[float] = 0.0
    """When a timer looks again for room. One timer is enough for all answers."""

    def __init__(self, parts: tuple[bytes, ...], status: int, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(None, status, headers, media_type)
        self.headers["content-length"] = str(sum(map(len, parts)))
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. If it is broken off, this returns, so that the server closes the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[self] = SYSTEM.monotonic(), task
        try:
            self._make_room()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for part in self._parts:
                for begin in range(0, len(part), _SLICE):
                    body = part[begin : begin + _SLICE]
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    if self._waiting.pop(self, None):
                        self._waiting[self] = SYSTEM.monotonic(), task
            await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            _LOG.warning("an answer was broken off: its client did not take it")
        finally:
            self._waiting.pop(self, None)

    @classmethod  # a timer calls it: with a method of an instance, the timer would keep an answer in memory
    def _make_room(cls) -> None:
        while len(cls._waiting) > 1 and _size_together(cls._waiting) > _UNSENT:
            first, (since, task) = next(iter(cls._waiting.items()))
            now = SYSTEM.monotonic()
            left = since + _STALLED - now
            if left > 0:  # a client that takes slices has time left; look again when it is over
                if cls._looks_at <= now:
                    cls._looks_at = now + left
                    task.get_loop().call_later(left, cls._look_again)
                break
            del cls._waiting[first]
            task.cancel()

    @classmethod
    def _look_again(cls) -> None:
        cls._looks_at = 0.0
        cls._make_room()


def _size_together(answers: Iterable[_Sliced]) -> int:
    """Return the size of the parts of answers; those that several share count once."""
    return sum({id(part): len(part) for one in answers for part in one._parts}.values())  # noqa: SLF001


Handler = Callable[[Call], Answer]


@dataclass(frozen=True)
class Route:
    """A method and the segments of a path; a segment in braces is a parameter."""

    method: str
    segments: tuple[str, ...]
    handler: Handler

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """Return the parameters of a path of the same length, decoded once; None if the path is a different one."""
        names = {}
        for wanted, segment in zip(self.segments, segments, strict=True):
            if wanted.startswith("{"):
                names[wanted[1:-1]] = unquote(segment, errors="strict")
            elif wanted != segment:
                return None
        return names


def route(method: str, path: str, handler: Handler) -> Route:
    """Return the route of ``path``, such as ``/v1/{prefix}/namespaces``."""
    return Route(method, tuple(path.strip("/").split("/")), handler)


class _Threads:
    """Threads for one group of requests, separate for reads and writes."""

    def __init__(self) -> None:
        # not anyio's threads: a switch to one of them takes as long as parsing a request's HTTP
        self.readers = ThreadPoolExecutor(_READERS, "metastore-read")
        self.writers = ThreadPoolExecutor(_WRITERS, "metastore-write")


class Protocol:
    """The routes of one protocol, as an ASGI application below a prefix such as ``/iceberg``.

    ``body_timeout``: how long a body may take to arrive (seconds). ``warehouses``: prefixes in paths. The requests of
    each prefix have separate threads: if the files of one warehouse do not answer, the other warehouses still work.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        failed: Callable[[Exception], Answer],
        unknown: Callable[[str, str, bool], Answer],
        principals: Principals,
        media_type: str = "application/json",
        *,
        body_timeout: float = 60.0,
        warehouses: Iterable[str] = (),
    ) -> None:
        self._routes: dict[int, list[Route]] = {}
        for one in routes:  # grouped by length of path, so that a request is compared with few routes
            self._routes.setdefault(len(one.segments), []).append(one)
        self._media_type = media_type
        self._failed = failed
        self._unknown = unknown
        self._principals = principals
        self._body_timeout = body_timeout
        self._in_flight = 0
        self._threads = _Threads()
        self._threads_of = {name: _Threads() for name in warehouses}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and log it."""
        request = Request(scope, receive)
        started = SYSTEM.monotonic()
        id = audit.id_of(scope)
        answer = await self._answer(request, id)
        took = (SYSTEM.monotonic() - started) * 1000
        _LOG.info("%.2000s %d %.1f ms", f"{request.method} {_raw_path(scope)}", answer.status, took)
        if answer.status in (401, 403):
            user = scope.get(_USER)
            audit.refused(user, f"{request.method} {_raw_path(scope)}", id, answer.status, answer.error)
        response = answer.response(self._media_type)
        if request.method == "HEAD":  # the headers stay those of the whole answer, with its length
            response = Response(status_code=answer.status, headers=response.headers)
        await response(scope, receive, send)

    async def _answer(self, request: Request, id: str) -> Answer:
        try:
            segments = _segments(request.scope)
            endpoint = self._find(request.method, segments)
            if isinstance(endpoint, Answer):
                return endpoint
            handler, names = endpoint
            operation = f"{request.method} {_raw_path(request.scope)}"
            await self._principals.ready(request.headers)  # authenticated before the body is read
            principal = self._principals.principal(request.headers)
            request.scope[_USER] = principal.name
            if principal.signs_in:
                audit.signed_in(principal, operation, id)
            threads = self._threads_of.get(names.get("prefix", ""), self._threads)
            workers = threads.readers if request.method in _READS else threads.writers
            async with self._json(request) as (body, said):
                call = Call(names, request.query_params, request.headers, body, principal, operation, said, id)
                return await asyncio.get_running_loop().run_in_executor(workers, _answered, handler, call)
        except ClientDisconnect:  # no client reads this answer; the status is for the log
            return Answer(status=499)
        except Exception as error:  # noqa: BLE001  (the protocol knows each error; the rest is a defect, and logged)
            return replace(self._failed(error), error=error)

    @asynccontextmanager
    async def _json(self, request: Request) -> AsyncIterator[tuple[Any, Any]]:
        """Give the request's body as a JSON value (None: no body), and a value that distinguishes it from other bodies.

        Its size counts until the call is done.
        """
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise Encoded(f"a body must have no Content-Encoding, not {encoding[:40]!r}")
        parts: list[bytes] = []
        counted = 0
        try:
            try:
                async with asyncio.timeout(self._body_timeout):
                    async for part in request.stream():
                        parts.append(part)
                        counted += len(part)
                        self._in_flight += len(part)
                        self._check(counted)
            except TimeoutError:
                raise BadRequest(f"the body did not arrive within {self._body_timeout:g} s; send it again") from None
            yield await _value(parts, counted, request.headers.get("content-type", ""))
        finally:
            self._in_flight -= counted

    def _check(self, size: int) -> None:
        """Raise TooLarge, or Busy, for a body that has ``size`` bytes so far."""
        if size > _LARGEST:
            raise TooLarge(f"the body is larger than {_LARGEST} bytes; a catalog needs no such request")
        if size > LARGE and self._in_flight > _IN_FLIGHT:
            raise Busy("the server has too many large requests now; send it again")

    def _find(self, method: str, segments: Sequence[str]) -> tuple[Handler, dict[str, str]] | Answer:
        other_method = False
        for one in self._routes.get(len(segments), ()):
            names = one.match(segments)
            if names is not None and one.method == method:
                return one.handler, names
            other_method = other_method or names is not None
        return self._unknown(method, "/" + "/".join(segments), other_method)


def _answered(handler: Handler, call: Call) -> Answer:
    """Return the answer with its text: a long list is written here, in a thread, not on the event loop."""
    answer = handler(call)
    return answer if answer.body is None else replace(answer, body=answer.parts)


def _segments(scope: Scope) -> list[str]:
    """Return the segments of the path below the protocol's prefix, still encoded."""
    root = scope.get("root_path", "")
    return _raw_path(scope)[len(root) :].strip("/").split("/")


def _raw_path(scope: Scope) -> str:
    """Return the path as the client sent it: encoded, so that it breaks no line of a log."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.split(b"?")[0].decode("ascii", "backslashreplace")


async def _value(parts: list[bytes], size: int, content_type: str) -> tuple[Any, Any]:
    """Return the value of a body, and a value that differs for other bodies. A large body is parsed in a thread."""
    if not size:
        return None, None
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in _JSON:  # such as a form, which a page of another origin can make a browser send
        raise BadRequest(f"a body is JSON, with the content type application/json, not {kind[:60]!r}")
    if size > LARGE:
        return await asyncio.get_running_loop().run_in_executor(None, _parsed_apart, parts)
    try:
        value = read_json(b"".join(parts))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return value, value


def _parsed_apart(parts: list[bytes]) -> tuple[Any, Any]:
    text = b"".join(parts)
    try:
        return read_large_json(text), {"sha256": hashlib.sha256(text).hexdigest()}
    except Crowded as error:
        raise TooLarge(str(error)) from None
    except ValueError as error:
        raise BadRequest(str(error)) from None
