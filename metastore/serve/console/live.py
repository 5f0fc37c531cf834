"""The stream of one page: server-sent events with what happens, as HTML that the page adds to itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from metastore.errors import DeadlineExceeded, HistoryGone, InvalidArgument, MetastoreError
from metastore.serve.console.hub import Hub, Listener, Wanted, event_of
from metastore.serve.console.render import HEADERS
from metastore.serve.console.workers import Busy
from metastore.serve.limits import YIELDS

__all__ = ["stream"]

_CAUGHT_UP: Final = 300
"""How many changes a page that comes back gets; if there are more, it is told to reload."""
_RETRY: Final = 2000
"""After how many milliseconds a browser comes back."""
_LONGEST: Final = 200


def stream(request: Request, hub: Hub, principal: str, check: Callable[[], str]) -> Response:
    """Return the stream that a page asks for."""
    query = request.query_params
    request.scope[YIELDS] = True
    after = request.headers.get("last-event-id") or query.get("after") or ""
    wanted = Wanted(
        frozenset(query.get("kinds", "").replace(",", " ").split()),
        query.get("by") or None,
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
        async for event in _missed(hub, listener):
            yield event
        while True:
            await listener.woken.wait()
            listener.woken.clear()
            if events := _waiting(listener):
                yield b"".join(events)
            if listener.is_over:
                return
    finally:
        hub.remove(listener)


async def _missed(hub: Hub, listener: Listener) -> AsyncIterator[bytes]:
    """Yield what happened between the position that the page has, and the first look."""
    if not listener.sent or listener.wanted.gauges:
        return
    try:
        items = await hub.caught_up(listener.principal, listener.sent, _CAUGHT_UP)
    except (HistoryGone, InvalidArgument):
        yield event_of("gone", "gone")
        return
    except DeadlineExceeded:  # too far back: the page is to be loaded again, and goes on from now
        yield event_of("skipped", "some")
        return
    except MetastoreError:
        listener.end("away")  # the browser comes back with the position that it has
        return
    if len(items) > _CAUGHT_UP:
        yield event_of("skipped", f"more than {_CAUGHT_UP}")
        items = items[-1:]
    for item in items:
        listener.sent = max(listener.sent, item.position)
        if listener.wanted.has(item):
            yield item.event


def _waiting(listener: Listener) -> list[bytes]:
    """Return what waits for the browser. A position is sent once: positions are ordered."""
    events: list[bytes] = []
    if listener.skipped:
        events.append(event_of("skipped", str(listener.skipped)))
        listener.skipped = 0
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
