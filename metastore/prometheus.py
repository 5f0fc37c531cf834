"""Export a store's metrics to Prometheus. Needs prometheus-client, the extra ``[metrics]``.

:func:`register` makes a registry call ``store.metrics()`` at each collection. It keeps no counts of its own, and never
asks the database. Several stores may be registered, with the same label *names* and different values.

**The number of series** is limited: operations and causes are words of this program. Entities are shown by id, not by
path, because a rename does not change an id, and an id reveals no name. Of the 64 counted entities, only the ten with
the most conflicts are shown; ``hot_entities=`` sets another number, 0 for none. These ten change over time, so
Prometheus sees more ids over the weeks. This metric is a gauge that shows where the conflicts are; it is not made for
``rate()``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import iscoroutinefunction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from metastore.arguments import positive_integer, shown
from metastore.errors import InvalidArgument
from metastore.metrics import Distribution, Snapshot
from metastore.port.stats import CacheStats

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

__all__ = ["HasMetrics", "StoreCollector", "register", "unregister"]

_OURS: Final = frozenset(
    ("operation", "cause", "decided", "resolution", "entity_id", "method", "reader", "result", "event", "what", "le")
)
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


class HasMetrics(Protocol):
    """A store, or another object with metrics."""

    def metrics(self) -> Snapshot:
        """Return the metrics of the process."""


def register(
    store: HasMetrics, registry: CollectorRegistry | None = None, *, hot_entities: int = 10, **labels: str
) -> StoreCollector:
    """Show a store's metrics in ``registry`` (None: the default one), with ``labels`` on each series.

    The registry keeps a reference to the store until :func:`unregister`. Raises InvalidArgument without
    prometheus-client, for an async store, and for labels that do not fit those of the other stores.
    """
    core, registry = _client(registry)
    metrics = getattr(store, "metrics", None)
    if not callable(metrics) or iscoroutinefunction(metrics):  # such a store would break each later scrape
        raise InvalidArgument(f"a registry shows the metrics of a store, not {shown(store)}")
    positive_integer(hot_entities, "hot_entities", least=0)
    for name in labels:
        if not _LABEL.fullmatch(name) or name in _OURS:
            raise InvalidArgument(f"{name!r} cannot be a label here; choose another name")
    labels = {name: str(value) for name, value in sorted(labels.items())}
    with _LOCK:
        collector = _COLLECTORS.get(registry)
        if collector is not None:
            collector.add(store, labels, hot_entities)
            return collector
        collector = StoreCollector(core)
        collector.add(store, labels, hot_entities)
        registry.register(collector)
        _COLLECTORS[registry] = collector
        return collector


def unregister(store: HasMetrics, registry: CollectorRegistry | None = None) -> None:
    """Stop showing a store's metrics, if the registry shows them."""
    _, registry = _client(registry)
    with _LOCK:
        collector = _COLLECTORS.get(registry)
        if collector is not None and not collector.remove(store):
            del _COLLECTORS[registry]
            registry.unregister(collector)


_LOCK = threading.Lock()
_COLLECTORS: WeakKeyDictionary[CollectorRegistry, StoreCollector] = WeakKeyDictionary()


def _client(registry: CollectorRegistry | None) -> tuple[Any, CollectorRegistry]:
    """Return the module of metric families of prometheus-client, and the registry to use."""
    try:
        core = import_module("prometheus_client.core")
    except ImportError:
        raise InvalidArgument(
            "metrics for Prometheus need prometheus-client: pip install 'versioned-metastore[metrics]'"
        ) from None
    return core, core.REGISTRY if registry is None else registry


class StoreCollector:
    """The stores registered in one registry, as families of metrics (a ``Collector`` of prometheus-client)."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._stores: list[tuple[HasMetrics, dict[str, str], int]] = []

    def add(self, store: HasMetrics, labels: dict[str, str], hot: int) -> None:
        """Show one more store. Raises InvalidArgument if the store or the labels are registered already."""
        for other, theirs, _ in self._stores:
            if other is store or theirs == labels:
                raise InvalidArgument(
                    "this store, or one with the same labels, is already registered; give each store different labels"
                )
            if list(theirs) != list(labels):
                raise InvalidArgument(
                    f"all stores of a registry must have the same label names: {', '.join(theirs) or 'none'}, "
                    f"not {', '.join(labels) or 'none'}"
                )
        self._stores = [*self._stores, (store, labels, hot)]

    def remove(self, store: HasMetrics) -> bool:
        """Stop showing a store; return whether other stores are left."""
        self._stores = [kept for kept in self._stores if kept[0] is not store]
        return bool(self._stores)

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples, so that the registry reserves their names."""
        yield from _Families(self._core, []).all

    def collect(self) -> Iterator[Metric]:
        """Yield each family, with the samples of all stores."""
        stores = self._stores
        families = _Families(self._core, list(stores[0][1]) if stores else [])
        for store, labels, hot in stores:
            families.add(store.metrics(), list(labels.values()), hot)
        yield from families.all


class _Families:
    """The families of metrics, which ``add`` fills with samples."""

    def __init__(self, core: Any, labels: list[str]) -> None:
        self.all: list[Any] = []

        def family(kind: str, name: str, help_text: str, *more: str) -> Any:
            made = getattr(core, f"{kind}MetricFamily")(f"metastore_{name}", help_text, labels=[*labels, *more])
            self.all.append(made)
            return made

        self.operations = family(
            "Counter",
            "operations",
            "Operations that ended, by what decided them: self, other (helped), value (nothing to commit), error.",
            "operation",
            "decided",
        )
        self.in_flight = family("Gauge", "operations_in_flight", "Operations that have begun and not ended.")
        self.attempts = family("Histogram", "attempts", "Attempts per operation that made at least one.", "operation")
        self.seconds = family(
            "Histogram", "commit_seconds", "From the call to the commit, of operations that committed.", "operation"
        )
        self.conflicts = family("Counter", "conflicts", "Attempts that lost, by cause.", "operation", "cause")
        self.hot = family(
            "Gauge",
            "hot_entity_conflicts",
            "Conflicts on the entities that had most of them, since the store was opened; never too small.",
            "entity_id",
        )
        self.announced = family("Counter", "announced", "Operations that wrote down an intent.")
        self.batches = family("Histogram", "batch_intents", "Intents that one helping commit resolved.")
        self.pending = family("Gauge", "pending_intents", "Intents on the entity that was last looked at.")
        self.oldest = family("Gauge", "pending_oldest_seconds", "Age of the oldest of them when they were looked at.")
        self.ambiguous = family(
            "Counter", "ambiguous", "Commits whose answer was lost, by what became of them.", "resolution"
        )
        self.overtaken = family(
            "Counter",
            "overtaken_versions",
            "Versions that others committed while an attempt was under way that failed.",
        )
        self.reads = family(
            "Histogram", "read_seconds", "Time of one read; of a listing that streams, of one page.", "method"
        )
        self.feed_lag = family(
            "Gauge",
            "feed_lag_seconds",
            "Time since the moment up to which a reader of the feed has read all changes.",
            "reader",
        )
        self.gc_backlog = family(
            "Gauge",
            "gc_backlog_seconds",
            "How long what gc may delete has waited: the time since this process's last complete gc began.",
        )
        self.gc_deleted = family(
            "Counter", "gc_deleted", "What gc deleted: entities, versions of others, other operations.", "what"
        )
        self.pool_size = family("Gauge", "pool_size", "Connections that the process may have.")
        self.pool_in_use = family("Gauge", "pool_in_use", "Connections that calls have at this moment.")
        self.pool_waiting = family("Gauge", "pool_waiting", "Calls that wait for a connection.")
        self.cache_reads = family("Counter", "cache_reads", "Reads of a store with a cache: hit, miss.", "result")
        self.cache_events = family(
            "Counter",
            "cache_events",
            "Entries evicted, reads that joined another's query (wait), fences, and when all was forgotten (clear).",
            "event",
        )
        self.cache_entries = family("Gauge", "cache_entries", "What the cache keeps at this moment.")
        self.cache_bytes = family("Gauge", "cache_bytes", "An estimate of its memory.")
        self.committers = family(
            "Gauge", "concurrent_committers", "Estimate of how many operations compete for the entity of one."
        )

    def add(self, seen: Snapshot, labels: list[str], hot: int) -> None:
        """Add the samples of one store."""
        _add_counts(self.operations, labels, seen.operations)
        _add_counts(self.conflicts, labels, seen.conflicts)
        for family, by_verb in (
            (self.attempts, seen.attempts),
            (self.seconds, seen.commit_seconds),
            (self.reads, seen.read_seconds),
        ):
            for verb, values in by_verb.items():
                _add_distribution(family, [*labels, verb], values)
        _add_distribution(self.batches, labels, seen.batch_intents)
        for entity in seen.hot_entities[:hot]:
            self.hot.add_metric([*labels, str(entity.entity_id)], entity.conflicts)
        for reader, lag in seen.feed_lag_seconds.items():
            self.feed_lag.add_metric([*labels, reader], lag)
        for resolution, count in seen.ambiguous.items():
            self.ambiguous.add_metric([*labels, resolution], count)
        for what, count in seen.gc_deleted.items():
            self.gc_deleted.add_metric([*labels, what], count)
        if seen.cache is not None:
            self._add_cache(labels, seen.cache)
        for family, value in (
            (self.in_flight, seen.in_flight),
            (self.announced, seen.announced),
            (self.pending, seen.pending_intents),
            (self.oldest, seen.pending_oldest_seconds),
            (self.overtaken, seen.overtaken_versions),
            (self.committers, seen.concurrent_committers),
            (self.gc_backlog, seen.gc_backlog_seconds),
            (self.pool_size, seen.pool and seen.pool.size),
            (self.pool_in_use, seen.pool and seen.pool.in_use),
            (self.pool_waiting, seen.pool and seen.pool.waiting),
            (self.cache_entries, seen.cache and seen.cache.entries),
            (self.cache_bytes, seen.cache and seen.cache.bytes),
        ):
            if value is not None:
                family.add_metric(labels, value)

    def _add_cache(self, labels: list[str], seen: CacheStats) -> None:
        for result, count in (("hit", seen.hits), ("miss", seen.misses)):
            self.cache_reads.add_metric([*labels, result], count)
        events = {"eviction": seen.evictions, "wait": seen.waits, "fence": seen.fences, "clear": seen.clears}
        for event, count in events.items():
            self.cache_events.add_metric([*labels, event], count)


def _add_counts(family: Any, labels: list[str], counts: Mapping[str, Mapping[str, int]]) -> None:
    for verb, by_word in counts.items():
        for word, count in by_word.items():
            family.add_metric([*labels, verb, word], count)


def _add_distribution(family: Any, labels: list[str], values: Distribution) -> None:
    bounds = [*(str(float(bound)) for bound in values.bounds), "+Inf"]
    family.add_metric(labels, list(zip(bounds, accumulate(values.counts), strict=True)), values.total)
