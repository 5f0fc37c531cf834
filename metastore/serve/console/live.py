"""The stream of one page: server-sent events with live changes, as HTML that the page inserts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from metastore.serve.console.hub import Hub
from metastore.serve.console.listener import Listener, Wanted, event_of
from metastore.serve.console.render import HEADERS
from metastore.serve.console.workers import Busy
from metastore.serve.limits import YIELDS
from metastore.serve.principals import Principal

__all__ = ["stream"]

_RETRY: Final = 2000
"""After how many milliseconds a browser reconnects."""
_LONGEST: Final = 200


def stream(request: Request, hub: Hub, principal: Principal, check: Callable[[], Principal]) -> Response:
    """Return the stream that a page requests."""
    query = request.query_params
    request.scope[YIELDS] = True
    after = request.headers.get("last-event-id") or query.get("after") or ""
    wanted = Wanted(
        frozenset(query.get("kinds", "").replace(",", " ").split()),
        query.get("by") or None,
        query.get("did") or None,
        query.get("under") or None,
        gauges=query.get("watch") == "contention",
    )
    listener = Listener(principal, wanted, check, sent=after[:_LONGEST])
    try:
        hub.add(listener)
    except Busy:
        return Response(status_code=503, headers={**HEADERS, "Retry-After": "5"})
    return EventSourceResponse(_events(hub, listener), headers=dict(HEADERS), ping=20, send_timeout=60)


async def _events(hub: Hub, listener: Listener) -> AsyncIterator[bytes]:
    try:
        yield b"retry: %d\n" % _RETRY + event_of("hello", "hello")
        while True:
            await listener.woken.wait()
            listener.woken.clear()
            if events := _waiting(listener):
                yield b"".join(events)
            if listener.is_over:
                return
    finally:
        hub.remove(listener)


def _waiting(listener: Listener) -> list[bytes]:
    """Return the events that wait for the browser. Positions are ordered, so each change is sent once."""
    events: list[bytes] = []
    if listener.skipped or listener.more:
        events.append(event_of("skipped", f"{'more than ' * listener.more}{listener.skipped}"))
        listener.skipped, listener.more = 0, False
    while listener.waiting:
        item = listener.waiting.popleft()
        if item.position > listener.sent:
            listener.sent = item.position
            events.append(item.event)
    if listener.gauges is not None:
        events.append(listener.gauges)
        listener.gauges = None
    events += [event_of(notice, notice) for notice in listener.notices]
    listener.notices.clear()
    return events
