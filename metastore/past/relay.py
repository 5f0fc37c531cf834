"""Relay the feed to other systems as CloudEvents 1.0, at least once and in order: to a stream, a file, or a webhook.

A consumer keeps the position, which moves only after the events were delivered. If the process dies in between, its
successor delivers the events again, and a receiver recognizes a repeat by the event's id, the position without the
server's timeline, because another server may have taken over before the repeat. If a webhook does not answer with 2xx,
it gets the same event again, after longer and longer pauses; no event is skipped (``webhook.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from metastore.arguments import shown
from metastore.clock import SYSTEM, Clock
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Change
from metastore.past.consumers import Consumer
from metastore.past.lineage import dataset
from metastore.past.webhook import Webhook
from metastore.port.feed import database_of
from metastore.port.unreadable import Unreadable

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent

    Deliver = Callable[[list[CloudEvent]], None]

__all__ = ["cloud_event", "lines_in", "lines_to", "post_to", "relay"]

_BATCH: Final = 100
_CONTENT: Final = "application/cloudevents+json; charset=UTF-8"
_FIRST, _LONGEST = 0.1, 30.0
"""The first and the longest pause before an event is posted again (seconds)."""
_IDLE: Final = 0.5
"""The pause between two looks at the feed if nothing has changed (seconds)."""


def cloud_event(change: Change, source: str) -> CloudEvent:
    """Return a change as a CloudEvent. ``source`` names the database, as a URI reference.

    The event's data is the change. For a table, it also has ``openlineage``, the dataset with its facets. Raises
    InvalidArgument without the package ``cloudevents``.
    """
    try:
        from cloudevents.core.v1.event import CloudEvent  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InvalidArgument("a relay needs cloudevents: pip install 'versioned-metastore[relay]'") from None
    epoch, _, number = change.position.rpartition("-")
    attributes = {
        "id": f"{database_of(epoch)}-{number}",
        "source": source,
        "type": f"metastore.{change.kind}.{change.action}",
        "subject": change.path_after or change.path_before or str(change.entity_id),
        "time": change.time,
        "datacontenttype": "application/json",
    }
    table = dataset(change, source)
    return CloudEvent(attributes, change.to_dict() | ({} if table is None else {"openlineage": table}))


def _in_json(event: CloudEvent) -> bytes:
    from cloudevents.core.formats.json import JSONFormat  # noqa: PLC0415

    return JSONFormat().write(event)


def relay(
    consumer: Consumer,
    deliver: Deliver,
    *,
    source: str,
    once: bool = False,
    unreadable: Unreadable | None = None,
    clock: Clock = SYSTEM,
) -> Iterator[int]:
    """Deliver the feed from the consumer's position on; yield the number of events of each batch.

    ``once``: end when there is nothing new. ``unreadable``: see ``Consumer.read``. Raises VersionConflict if another
    process relays for the same consumer, HistoryGone, and the errors of ``deliver``.
    """
    while True:
        batch = consumer.read(_BATCH, unreadable)
        if batch:
            deliver([cloud_event(change, source) for change in batch])
            consumer.commit(batch[-1].position)
            yield len(batch)
        elif once:
            return
        else:
            clock.sleep(_IDLE)


@contextmanager
def lines_in(path: str) -> Iterator[Deliver]:
    """Yield a function that appends events to a file, one per line, and flushes them to the disk before it returns.

    If an earlier process left an unfinished line, end that line first. Raises InvalidArgument for a URL.
    """
    if "://" in path:
        raise InvalidArgument(f"a relay leads to stdout, a file, or a URL that begins with http, not to {shown(path)}")
    with Path(path).open("a+b") as file:
        if file.tell() and _last_byte(file) != b"\n":
            file.write(b"\n")
        text = TextIOWrapper(file, encoding="utf-8", newline="\n")

        def write(events: list[CloudEvent]) -> None:
            lines_to(text)(events)
            os.fsync(text.fileno())

        yield write


def _last_byte(file: IO[bytes]) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def lines_to(stream: IO[str]) -> Deliver:
    """Return a function that writes events to a stream, one per line, and flushes it."""

    def write(events: list[CloudEvent]) -> None:
        stream.write("".join(f"{_in_json(event).decode()}\n" for event in events))
        stream.flush()

    return write


def post_to(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    environment_proxies: bool = False,
    clock: Clock = SYSTEM,
    told: Callable[[str], None] | None = None,
) -> Deliver:
    """Return a function that posts events to a webhook one by one, each until the webhook answers with 2xx.

    ``headers`` go with each request, such as a token. ``environment_proxies``: use the proxies that the environment
    names. ``told`` is called with a message on each failure. Raises InvalidArgument for a wrong URL.
    """
    webhook = Webhook(url, headers, environment_proxies=environment_proxies)

    def post(events: list[CloudEvent]) -> None:
        for event in events:
            pause = _FIRST
            while (failure := webhook.post(_in_json(event), _CONTENT)) is not None:
                wait = max(pause, failure.retry_after)
                if told is not None:
                    told(f"the webhook did not take {event.get_id()}: {failure.why}; again in {wait:.1f} s")
                clock.sleep(wait)
                pause = min(_LONGEST, 2 * pause)

    return post
