"""Keep slow and silent clients from holding a server: how many connections it has, and how long each may wait.

uvicorn alone lets a client that sends a byte now and then keep its connection for ever. Here each connection has a
stage, and a clock that runs while the server waits for the client: for the header of a request, for its body, or until
the client takes the answer. The server cuts a connection that takes too long. At the limit of connections, it cuts the
one that has waited longest for its client, so idle connections keep no new one out. An answer without end, such as the
stream of an open page, may be cut then too, but no limit of time ends it.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import httptools

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument

__all__ = ["HEADER_BYTES", "YIELDS", "Limits", "make_room", "sweep", "watched"]

HEADER_BYTES: Final = 64 << 10
"""The largest header of a request (bytes)."""
_REST_BYTES: Final = 32 << 20
"""How much of a body may still arrive after its answer (bytes): some clients read the answer only after they sent
all."""
_QUEUED: Final = 16
"""How many requests of a connection may wait behind one that is not answered. One packet may hold 14,000."""
_OTHER_FILES: Final = 256
"""How many files a server has open besides its connections: the database's, those of tables, libraries."""
_LAST_BODY: Final = 2.0
"""How long the rest of a body may take once the server is asked to stop (seconds). Its request has not begun."""
_HEADER, _BODY, _WORK, _ANSWER, _IDLE, _STREAM = "header", "body", "work", "answer", "idle", "stream"
YIELDS: Final = "metastore.yields"
"""The key in a request's scope that marks an answer without end, whose client reconnects if it is cut."""
_FULL: Final = b"503 Service Unavailable\r\nretry-after: 1"
_LARGE: Final = b"431 Request Header Fields Too Large"


@dataclass(frozen=True)
class Limits:
    """The limits that a server sets its clients; times are in seconds.

    ``connections``: how many it has at once. ``header``, ``body``: how long these parts of a request may take to
    arrive. ``idle``: how long a connection stays open without a request, and how long a client may take nothing of an
    answer.
    """

    connections: int = 512
    header: float = 10.0
    body: float = 60.0
    idle: float = 60.0

    def check(self) -> None:
        """Raise InvalidArgument for a limit that no server can keep. Allow the process enough open files."""
        if self.connections < 1 or min(self.header, self.body, self.idle) <= 0:
            raise InvalidArgument("a server's limits are positive: connections, and seconds for header, body and idle")
        wanted = self.connections + _OTHER_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise InvalidArgument(
                f"this process may open {hard} files, too few for {self.connections} connections; allow fewer with "
                "--max-connections, or more files with ulimit -n"
            )
        if soft != resource.RLIM_INFINITY and wanted > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def of(self, stage: str) -> float:
        """Return how long a connection may be in a stage."""
        return {_HEADER: self.header, _BODY: self.body, _ANSWER: self.idle}.get(stage, float("inf"))


class _Parser(httptools.HttpRequestParser):
    """A parser that ignores an Upgrade, and reads the rest of the packet. uvicorn's own parser drops the rest."""

    def feed_data(self, data: Any) -> None:
        """Read the requests in ``data``."""
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            else:
                return


class _Watched(asyncio.Protocol):
    """One connection: its stage, how long it has waited, and how much of a header it has. The rest is uvicorn's."""

    limits: Limits
    loop: asyncio.AbstractEventLoop
    transport: Any
    parser: Any
    headers: Any
    flow: Any
    pipeline: Any
    cycle: Any
    scope: Any
    connections: set[Any]
    timeout_keep_alive_task: Any
    begun: Any = None
    """The TLS handshake of this connection, which was counted before it."""
    answered: Any = None
    """The request that is answered now, or was answered last. Those after it, up to uvicorn's ``cycle``, wait."""
    _seen: tuple[Any, ...] = ()
    _since = 0.0
    _header_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.parser = _Parser(self)
        self.connections.discard(self.begun)
        self.look(SYSTEM.monotonic())
        if len(self.connections) > self.limits.connections:
            make_room(self.connections, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost client to the request that is being answered.

        uvicorn reports it only to the newest request.
        """
        if self.answered is not None and not self.answered.response_complete:
            self.answered.disconnected = True
            self.answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        self.look(SYSTEM.monotonic())  # look now: for the next sweep, several requests would seem to begin together
        is_rest = self.cycle is not None and self.cycle.more_body and self.cycle.response_complete
        if self._header_bytes <= (_REST_BYTES if is_rest else HEADER_BYTES) or self.transport.is_closing():
            return
        if is_rest or self._is_answering():
            self.cut()
        else:
            self.refuse(_LARGE)

    def _is_answering(self) -> bool:
        """Whether an earlier request is not answered yet.

        The client would read a refusal as the answer to that request.
        """
        return bool(self.pipeline) or self._stage() not in (_HEADER, _BODY)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request."""
        if self._is_answering():
            self.cut()
        else:
            super().send_400_response(msg)  # type: ignore[misc]  # uvicorn's

    def on_header(self, name: bytes, value: bytes) -> None:
        """Accept a field of a header.

        A trailer (a field after the body) is ignored, because all checks are over then.
        """
        if self.cycle is None or self.cycle.scope is not self.scope:
            super().on_header(name, value)  # type: ignore[misc]  # uvicorn's

    def on_headers_complete(self) -> None:
        """Begin a request. An Upgrade with a body is refused: the parser would read the body as the next request.

        A body with another coding than ``chunked`` is refused too (RFC 9112, section 6.1): it would be read as plain
        bytes.
        """
        if self.parser.should_upgrade() and any(_brings_body(*pair) for pair in self.headers):
            raise ValueError("Upgrade with a body")
        if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self.headers):
            raise ValueError("a transfer coding besides chunked")
        if len(self.pipeline) >= _QUEUED:
            raise ValueError("too many requests that wait for others")
        super().on_headers_complete()  # type: ignore[misc]  # uvicorn's
        if not self.pipeline:
            self.answered = self.cycle

    def on_body(self, body: bytes) -> None:
        """Accept a part of a body, and count bytes from zero again, unless the request is answered already.

        So only bytes that bring no body reach the limit: the header, trailers, extensions of chunks.
        """
        if not self.cycle.response_complete:
            self._header_bytes = 0
        super().on_body(body)  # type: ignore[misc]  # uvicorn's

    def on_message_complete(self) -> None:
        """End a request, even one that was answered before its body had arrived: uvicorn would not end that one."""
        super().on_message_complete()  # type: ignore[misc]  # uvicorn's
        self.cycle.more_body, self._header_bytes = False, 0

    def on_response_complete(self) -> None:
        """Begin the next request that waits."""
        if self.pipeline:
            self.answered = self.pipeline[-1][0]
        super().on_response_complete()  # type: ignore[misc]  # uvicorn's

    def shutdown(self) -> None:
        """Close the connection once its request is answered; a request whose body does not come soon gets no answer."""
        super().shutdown()  # type: ignore[misc]  # uvicorn's
        self.loop.call_later(_LAST_BODY, self._end_body)

    def _end_body(self) -> None:
        if self._stage() == _BODY:
            self.cut()

    def refuse(self, status: bytes) -> None:
        """Write a short answer, and close the connection."""
        self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    def cut(self) -> None:
        """End the connection at once, without an answer: a client that takes nothing would not read it."""
        self.transport.abort()

    def look(self, now: float) -> float | None:
        """Return the time since which the connection waits for its client in this stage; None: the server must act."""
        stage = self._stage()
        unsent = self.transport.get_write_buffer_size() if stage == _ANSWER else 0
        begun = _WORK if stage == _STREAM else stage  # a stream's wait counts from its request
        state = (begun, self.answered, unsent)  # a change of any of these is progress
        if state != self._seen:
            self._seen, self._since = state, now
        return None if stage == _WORK else self._since

    def is_over(self, now: float) -> bool:
        """Whether the client took longer than the limit of this stage."""
        since = self.look(now)
        return since is not None and now - since > self.limits.of(self._seen[0])

    def _stage(self) -> str:
        if self.flow.write_paused or self.transport.is_closing():
            return _ANSWER
        if self.answered is not None and self.answered.more_body:
            return _BODY  # the rest of a body may still come after an early answer
        if self.answered is None or self.answered.response_complete:
            return _HEADER if self.timeout_keep_alive_task is None else _IDLE  # uvicorn closes idle connections
        return _STREAM if YIELDS in self.answered.scope else _WORK


def _brings_body(name: bytes, value: bytes) -> bool:
    return name == b"transfer-encoding" or (name == b"content-length" and value != b"0")


def watched(base: type[asyncio.Protocol], limits: Limits) -> Callable[..., asyncio.Protocol]:
    """Return uvicorn's class of connections, ``base``, with these limits."""
    return type("Watched", (_Watched, base), {"limits": limits})


def make_room(connections: Iterable[Any], new: Any) -> None:
    """Cut the connection that has waited longest for its client; if all have work, refuse the new one."""
    now = SYSTEM.monotonic()
    waiting = [(since, one) for one in connections if one is not new and (since := one.look(now)) is not None]
    if not waiting:
        new.refuse(_FULL)
        return
    min(waiting, key=lambda pair: pair[0])[1].cut()


def sweep(connections: Iterable[Any]) -> None:
    """Cut the connections whose clients took too long."""
    now = SYSTEM.monotonic()
    for one in list(connections):
        if one.is_over(now):
            with suppress(OSError):
                one.cut()
