"""Show a store's metrics to OpenTelemetry: a reader observes ``store.metrics()``, which does not query the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from metastore.metrics import Snapshot
from metastore.telemetry.spans import api

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["HasMetrics", "observe"]

Values = Iterator[tuple[float, dict[str, str]]]


class HasMetrics(Protocol):
    """The part of a store that telemetry uses."""

    def metrics(self) -> Snapshot:
        """Return the counters and gauges of this process."""


def observe(store: HasMetrics, provider: MeterProvider | None = None, **attributes: str) -> None:
    """Show a store's counters and gauges with ``provider`` (None: the global one), with ``attributes`` on each value.

    The provider keeps the store for as long as it lives. Raises InvalidArgument without opentelemetry-api.
    """
    metrics = api("metrics")
    meter = metrics.get_meter("metastore", meter_provider=provider)

    def callback(values: Callable[[Snapshot], Values]) -> Any:
        def collect(_: Any) -> Iterator[Any]:
            for value, labels in values(store.metrics()):
                yield metrics.Observation(value, {**attributes, **labels})

        return collect

    for name, about, counted in _COUNTERS:
        meter.create_observable_counter(f"metastore.{name}", [callback(counted)], description=about)
    for name, about, seen in _GAUGES:
        meter.create_observable_gauge(f"metastore.{name}", [callback(seen)], description=about)


def _operations(seen: Snapshot) -> Values:
    for verb, by in seen.operations.items():
        for decided, count in by.items():
            yield count, {"operation": verb, "decided": decided}


def _conflicts(seen: Snapshot) -> Values:
    for verb, causes in seen.conflicts.items():
        for cause, count in causes.items():
            yield count, {"operation": verb, "cause": cause}


def _reads(seen: Snapshot) -> Values:
    for method, seconds in seen.read_seconds.items():
        yield seconds.count, {"method": method}


def _feed_lag(seen: Snapshot) -> Values:
    for reader, seconds in seen.feed_lag_seconds.items():
        yield seconds, {"reader": reader}


def _announced(seen: Snapshot) -> Values:
    yield seen.announced, {}


def _in_flight(seen: Snapshot) -> Values:
    yield seen.in_flight, {}


def _pool(seen: Snapshot) -> Values:
    if seen.pool is not None:
        yield seen.pool.size, {"state": "size"}
        yield seen.pool.in_use, {"state": "in_use"}
        yield seen.pool.waiting, {"state": "waiting"}


def _gc_backlog(seen: Snapshot) -> Values:
    if seen.gc_backlog_seconds is not None:
        yield seen.gc_backlog_seconds, {}


_COUNTERS = (
    ("operations", "Operations that ended, by how they were decided.", _operations),
    ("conflicts", "Attempts that lost, by cause.", _conflicts),
    ("reads", "Reads that ended. A listing that streams counts its pages.", _reads),
    ("announced", "Operations that were written down as intents.", _announced),
)
_GAUGES = (
    ("in_flight", "Operations that have begun and not ended.", _in_flight),
    ("feed_lag", "Seconds since the moment up to which a reader of the feed has read all changes.", _feed_lag),
    ("gc_backlog", "Seconds since the last complete gc of this process began.", _gc_backlog),
    ("pool", "Connections: the limit, those in use, and those that calls wait for.", _pool),
)
