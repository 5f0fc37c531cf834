"""A proxy for HTTP that gives wrong answers on demand, with or without passing the request on.

::

    with HttpFaults(server.port) as proxy:
        proxy.answer(Fault(503, applied=True), method="PUT")   # the next PUT is applied, and answered 503
        proxy.answer(Fault(None, applied=False), method="GET") # the next GET is dropped, and never passed on
        proxy.answer(Fault(None, late=True), method="PUT")     # dropped; passed on by proxy.deliver()

Requests pass one at a time. What was asked is in ``seen``, as (method, path, status of the answer or None).
"""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

__all__ = ["Fault", "HttpFaults"]

_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


@dataclass(frozen=True)
class Fault:
    """A wrong answer: its status (None: the connection is cut). ``applied``: the server has worked the request off."""

    status: int | None
    applied: bool = False
    late: bool = False
    """The request is kept until :meth:`HttpFaults.deliver`."""
    body: bytes = b"<Error><Code>Injected</Code></Error>"


@dataclass
class _Plan:
    fault: Fault
    method: str
    skip: int
    times: float


@dataclass
class _Kept:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HttpFaults:
    """See the module."""

    server_port: int
    seen: list[tuple[str, str, int | None]] = field(default_factory=list)
    _plans: list[_Plan] = field(default_factory=list)
    _kept: list[_Kept] = field(default_factory=list)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer is one segment: a second one would wait for the first one's acknowledgement
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def pass_on(self) -> None:
                proxy.serve(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, fault: Fault, *, method: str, skip: int = 0, times: float = 1) -> None:
        """Let requests with this method, after ``skip`` of them, have this answer, ``times`` times."""
        self._plans.append(_Plan(fault, method, skip, times))

    def heal(self) -> None:
        """Answer rightly from now on."""
        self._plans.clear()

    @property
    def met(self) -> bool:
        """Whether every wrong answer was given."""
        return all(plan.times <= 0 for plan in self._plans)

    def deliver(self) -> list[int]:
        """Pass on what was kept; return how the server answered."""
        kept, self._kept = self._kept, []
        with self._one:
            return [self._asked(request)[0] for request in kept]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Serve one request."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {key: value for key, value in handler.headers.items() if key.lower() not in _HOP}
        request = _Kept(handler.command, handler.path, headers, body)
        with self._one:
            fault = self._fault(handler.command)
            if fault is not None and fault.late:
                self._kept.append(request)
            answer = None if fault is not None and not fault.applied else self._asked(request)
        status = answer[0] if fault is None and answer is not None else fault.status if fault is not None else None
        self.seen.append((request.method, request.path, status))
        if status is None:
            handler.close_connection = True
            return
        if fault is not None or answer is None:
            body = Fault(status).body if fault is None else fault.body
            answer = (status, {"Content-Type": "application/xml"}, body)
        self._send(handler, *answer)

    def _fault(self, method: str) -> Fault | None:
        for plan in self._plans:
            if plan.method != method:
                continue
            if plan.skip:
                plan.skip -= 1
            elif plan.times > 0:
                plan.times -= 1
                return plan.fault
        return None

    def _asked(self, request: _Kept) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=10)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        handler.send_response_only(status)
        for key, value in headers.items():
            if key.lower() not in _HOP:
                handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
