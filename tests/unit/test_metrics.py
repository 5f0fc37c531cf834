"""What a store counts of its own operations, and how Prometheus sees it."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from metastore.aio.surface import AsyncStore
from metastore.clock import Clock
from metastore.errors import InvalidArgument
from metastore.metrics import ATTEMPTS, HOT, INTENTS, SECONDS, Metrics, Snapshot
from metastore.prometheus import register, unregister


def some() -> Metrics:
    """Metrics of a store that has met everything."""
    metrics = Metrics()
    for _ in range(4):
        metrics.begun()
    metrics.operation("alter", 1, 0.0005, "self")
    metrics.ended()
    metrics.conflict("alter", "self", 7)
    metrics.conflict("alter", "self", 7)
    metrics.conflict("alter", "ancestor", 8)
    metrics.conflict("create", "name")
    metrics.overtaken(3)
    metrics.overtaken(61)
    metrics.operation("alter", 6, 0.3, "other")
    metrics.ended()
    metrics.operation("create", 60, 75.0, "error")
    metrics.ended()
    metrics.operation("drop", 0, 0.1, "value")
    metrics.announced()
    metrics.batch(3)
    metrics.batch(1000)
    metrics.pending(5, 1.5)
    metrics.ambiguous("applied")
    metrics.ambiguous("not_applied")
    metrics.ambiguous("not_applied")
    return metrics


def test_what_is_counted() -> None:
    seen = some().snapshot()
    assert seen.in_flight == 1
    assert seen.operations == {"alter": {"self": 1, "other": 1}, "create": {"error": 1}, "drop": {"value": 1}}
    attempts = seen.attempts["alter"]
    assert dict(zip(attempts.bounds, attempts.counts, strict=False)) == {**dict.fromkeys(ATTEMPTS, 0), 1: 1, 8: 1}
    assert (attempts.count, attempts.total) == (2, 7)
    assert seen.attempts["create"].counts[-1] == 1
    assert seen.attempts["drop"].count == 0
    seconds = seen.commit_seconds["alter"]
    assert seconds.counts[0] == 1, "a bound is inclusive"
    assert seconds.counts[seconds.bounds.index(0.512)] == 1
    assert seen.commit_seconds["create"].count == 0, "it was not committed"
    assert seen.conflicts == {"alter": {"self": 2, "ancestor": 1}, "create": {"name": 1}}
    assert [(h.entity_id, h.conflicts, h.overcount) for h in seen.hot_entities] == [(7, 2, 0), (8, 1, 0)]
    assert (seen.announced, seen.pending_intents, seen.pending_oldest_seconds) == (1, 5, 1.5)
    assert seen.batch_intents.counts == (0, 0, 1, *[0] * 6, 1)
    assert seen.ambiguous == {"applied": 1, "not_applied": 2}
    assert seen.overtaken_versions == 64
    assert 1.9 < seen.concurrent_committers < 2.0


def test_counters() -> None:
    # what somebody else applied for us is committed too; what found nothing to write, or failed, is not
    expected = {"attempts": 67, "commits": 2, "conflicts_self": 2, "conflicts_ancestor": 1, "conflicts_name": 1}
    assert some().counters() == Counter({**expected, "unknown": 3})
    assert Metrics().counters() == Counter()


def test_buckets() -> None:
    assert ATTEMPTS == (1, 2, 3, 4, 5, 8, 13, 21, 34, 55)
    assert (SECONDS[0], SECONDS[-1]) == (0.0005, 60.0)
    for bounds in (ATTEMPTS, SECONDS, INTENTS):
        assert list(bounds) == sorted(set(bounds))


def test_a_snapshot_is_a_plain_value() -> None:
    metrics = some()
    seen = metrics.snapshot()
    before = json.dumps(seen.as_json())
    metrics.operation("alter", 9, 1.0, "self")
    metrics.conflict("alter", "self", 9)
    assert json.dumps(seen.as_json()) == before
    assert json.loads(before) == seen.as_json()
    assert set(seen.as_json()) == {field.name for field in dataclasses.fields(Snapshot)}
    assert json.loads(before)["hot_entities"][0] == {"entity_id": 7, "conflicts": 2, "overcount": 0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen.in_flight = 2  # type: ignore[misc]


def test_nothing_seen() -> None:
    seen = Metrics().snapshot()
    assert (seen.operations, seen.pending_intents, seen.concurrent_committers) == ({}, None, 1.0)


# --- hot entities


def test_hot_entities_keep_the_promises_of_the_sketch() -> None:
    """No frequent one is missing, and each true count is between conflicts - overcount and conflicts."""
    chance = random.Random(4)
    stream = [int(chance.paretovariate(0.6)) % 5000 for _ in range(20_000)]
    metrics = Metrics()
    for entity_id in stream:
        metrics.conflict("alter", "self", entity_id)
    true, seen = Counter(stream), metrics.snapshot().hot_entities
    assert len(seen) == HOT
    assert sum(h.conflicts for h in seen) == len(stream)
    for hot in seen:
        assert hot.conflicts - hot.overcount <= true[hot.entity_id] <= hot.conflicts
    assert {i for i, n in true.items() if n > len(stream) / HOT} <= {h.entity_id for h in seen}
    assert [h.conflicts for h in seen] == sorted((h.conflicts for h in seen), reverse=True)


# --- the estimate of concurrent committers


@pytest.mark.one_in(3)
@pytest.mark.parametrize("competing", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_concurrent_committers_on_one_entity(competing: int, spread: float) -> None:
    """So many loops of read, work, compare-and-swap; the estimate is theirs, whatever the length of an attempt."""
    chance, metrics, version = random.Random(competing), Metrics(), 0
    attempts = {i: [chance.random(), 0, 1] for i in range(competing)}  # when it ends, what it read, its number
    estimates = []
    for _ in range(2000 * competing):
        i = min(attempts, key=lambda i: attempts[i][0])
        ends, read, number = attempts[i]
        if read == version:
            version += 1
            metrics.operation("alter", int(number), 0.1, "self")
            estimates.append(metrics.snapshot().concurrent_committers)
            number = 0
        else:
            metrics.overtaken(int(version - read))
        attempts[i] = [ends + 1 + spread * (chance.random() - 0.5), version, number + 1]
    late = estimates[len(estimates) // 2 :]
    assert sum(late) / len(late) == pytest.approx(competing, rel=0.1)


def test_the_estimate_falls_when_nobody_competes() -> None:
    metrics = Metrics()
    for _ in range(500):
        metrics.overtaken(9)
        metrics.operation("alter", 2, 0.1, "self")
    assert metrics.snapshot().concurrent_committers == pytest.approx(10, rel=0.01)
    metrics.operation("drop", 0, 0.1, "value")
    assert metrics.snapshot().concurrent_committers == pytest.approx(10, rel=0.01), "nothing was to be committed"
    for _ in range(500):
        metrics.operation("alter", 1, 0.1, "self")
    assert metrics.snapshot().concurrent_committers == pytest.approx(1, rel=0.01)


# --- threads, forks, cost


def test_threads_lose_nothing() -> None:
    metrics, interval = Metrics(), sys.getswitchinterval()

    def work() -> None:
        for n in range(2000):
            metrics.begun()
            metrics.conflict("alter", "self", n % 200)
            metrics.operation("alter", 2, 0.01, "self")
            metrics.ended()

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            metrics.snapshot()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    seen = metrics.snapshot()
    assert (seen.in_flight, seen.operations, seen.attempts["alter"].count) == (0, {"alter": {"self": 16_000}}, 16_000)
    assert sum(h.conflicts for h in seen.hot_entities) == 16_000


def test_a_forked_child_starts_from_zero() -> None:
    """Even if another thread of the parent held the lock."""
    metrics = some()
    with metrics._lock:
        child = os.fork()
        if child == 0:
            metrics.ended()
            os._exit(0 if metrics.snapshot() == Metrics().snapshot() else 1)
    deadline = time.monotonic() + 30
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done == (child, 0)
    assert metrics.snapshot().in_flight == 1


def test_an_operation_that_meets_nobody_costs_little() -> None:
    """About 1 µs; the bound is for slow and busy machines."""
    metrics, best = Metrics(), 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(1000):
            metrics.begun()
            metrics.operation("alter", 1, 0.003, "self")
            metrics.ended()
        best = min(best, (time.perf_counter() - began) / 1000)
    assert best < 10e-6


def test_a_read_costs_little() -> None:
    """About 1 µs; the bound is for slow and busy machines."""
    metrics, best = Metrics(), 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(1000):
            metrics.read("load", 0.0003)
        best = min(best, (time.perf_counter() - began) / 1000)
    assert best < 5e-6


# --- Prometheus


class Frozen(Clock):
    """A clock that stands still until it is set."""

    seconds = 1_000_000.0

    def micros(self) -> int:
        return round(self.seconds * 1_000_000)


class Store:
    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics.snapshot


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in parse(generate_latest(registry).decode()):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return samples(registry).get((f"metastore_{name}", tuple(sorted(labels.items()))))


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    found = CollectorRegistry(auto_describe=True)
    yield found
    strict: Any = generate_openmetrics
    read: Any = parse_openmetrics
    list(read(strict(found).decode()))  # the stricter format; raises


def test_prometheus_families(registry: CollectorRegistry) -> None:
    register(Store(some()), registry, database="prod")
    kinds = {f.name: f.type for f in parse(generate_latest(registry).decode())}
    assert kinds == {
        "metastore_operations": "counter",
        "metastore_operations_in_flight": "gauge",
        "metastore_attempts": "histogram",
        "metastore_commit_seconds": "histogram",
        "metastore_conflicts": "counter",
        "metastore_hot_entity_conflicts": "gauge",
        "metastore_announced": "counter",
        "metastore_batch_intents": "histogram",
        "metastore_pending_intents": "gauge",
        "metastore_pending_oldest_seconds": "gauge",
        "metastore_ambiguous": "counter",
        "metastore_overtaken_versions": "counter",
        "metastore_concurrent_committers": "gauge",
        "metastore_cache_reads": "counter",
        "metastore_cache_events": "counter",
        "metastore_cache_entries": "gauge",
        "metastore_cache_bytes": "gauge",
        "metastore_pool_size": "gauge",
        "metastore_pool_in_use": "gauge",
        "metastore_pool_waiting": "gauge",
        "metastore_read_seconds": "histogram",
        "metastore_feed_lag_seconds": "gauge",
        "metastore_gc_backlog_seconds": "gauge",
        "metastore_gc_deleted": "counter",
    }
    text = generate_latest(registry).decode()
    assert 'metastore_operations_total{database="prod",decided="other",operation="alter"} 1.0' in text
    assert all('database="prod"' in line for line in text.splitlines() if not line.startswith("#"))


def test_prometheus_values(registry: CollectorRegistry) -> None:
    register(Store(some()), registry)
    assert value(registry, "operations_in_flight") == 1
    assert value(registry, "conflicts_total", operation="alter", cause="self") == 2
    assert value(registry, "conflicts_total", operation="create", cause="name") == 1
    assert value(registry, "hot_entity_conflicts", entity_id="7") == 2
    assert value(registry, "announced_total") == 1
    assert value(registry, "ambiguous_total", resolution="not_applied") == 2
    assert value(registry, "overtaken_versions_total") == 64
    assert value(registry, "pending_intents") == 5
    assert value(registry, "pending_oldest_seconds") == 1.5


def test_prometheus_shows_reads_by_method_and_the_lag_of_readers(registry: CollectorRegistry) -> None:
    clock = Frozen()
    metrics = Metrics(clock)
    for seconds in (0.0001, 0.0002, 0.3):
        metrics.read("load", seconds)
    metrics.read("list", 70.0)
    metrics.feed_read("changes", clock.seconds - 12.5)
    metrics.feed_read("ahead", clock.seconds + 3.0)
    register(Store(metrics), registry)
    assert value(registry, "read_seconds_count", method="load") == 3
    assert value(registry, "read_seconds_sum", method="load") == pytest.approx(0.3003)
    assert value(registry, "read_seconds_bucket", method="load", le="0.000125") == 1
    assert value(registry, "read_seconds_bucket", method="load", le="0.00025") == 2
    assert value(registry, "read_seconds_bucket", method="list", le="60.0") == 0
    assert value(registry, "feed_lag_seconds", reader="changes") == 12.5
    assert value(registry, "feed_lag_seconds", reader="ahead") == 0, "the database's clock is ahead"
    clock.seconds += 5
    assert value(registry, "feed_lag_seconds", reader="changes") == 17.5, "it reads no more"


def test_prometheus_histograms_are_cumulative(registry: CollectorRegistry) -> None:
    register(Store(some()), registry)

    def buckets(name: str, **labels: str) -> dict[str, float]:
        return {
            dict(key[1])["le"]: count
            for key, count in samples(registry).items()
            if key[0] == f"metastore_{name}_bucket" and {k: v for k, v in key[1] if k != "le"} == labels
        }

    attempts = buckets("attempts", operation="alter")
    assert (attempts["1.0"], attempts["5.0"], attempts["8.0"], attempts["+Inf"]) == (1, 1, 2, 2)
    assert value(registry, "attempts_sum", operation="alter") == 7
    assert value(registry, "attempts_count", operation="alter") == 2
    seconds = buckets("commit_seconds", operation="alter")
    assert (seconds["0.0005"], seconds["0.256"], seconds["0.512"], seconds["60.0"]) == (1, 1, 2, 2)
    assert value(registry, "commit_seconds_sum", operation="alter") == pytest.approx(0.3005)
    assert buckets("attempts", operation="create")["55.0"] == 0
    assert buckets("attempts", operation="create")["+Inf"] == 1
    assert buckets("batch_intents")["+Inf"] == 2


def test_prometheus_of_a_store_that_did_nothing(registry: CollectorRegistry) -> None:
    register(Store(Metrics()), registry)
    assert value(registry, "concurrent_committers") == 1
    assert value(registry, "pending_intents") is None


def test_prometheus_shows_few_entities(registry: CollectorRegistry) -> None:
    metrics = Metrics()
    for n in range(1000):
        metrics.conflict("alter", "self", n)
    register(Store(metrics), registry, database="a")
    register(Store(metrics), registry, database="b", hot_entities=0)
    shown = [dict(labels)["database"] for name, labels in samples(registry) if name.endswith("entity_conflicts")]
    assert shown == ["a"] * 10


def test_prometheus_with_several_stores(registry: CollectorRegistry) -> None:
    one, other = Store(some()), Store(some())
    assert register(one, registry, database="a") is register(other, registry, database="b \"'\\\n")
    assert value(registry, "announced_total", database="a") == 1
    assert generate_latest(registry).decode().count("# TYPE metastore_announced_total") == 1
    refused: list[tuple[Store, dict[str, str], str]] = [
        (one, {"database": "c"}, "already"),
        (Store(some()), {"database": "a"}, "already"),
        (Store(some()), {"server": "a"}, "database"),
        (Store(some()), {}, "database"),
        (Store(some()), {"operation": "a"}, "operation"),
        (Store(some()), {"a-b": "a"}, "a-b"),
        (Store(some()), {"__a": "a"}, "__a"),
    ]
    for store, labels, word in refused:
        with pytest.raises(InvalidArgument, match=word):
            register(store, registry, hot_entities=10, **labels)
    for wrong in (5, object.__new__(AsyncStore)):  # a scrape cannot await the metrics of an async store
        with pytest.raises(InvalidArgument, match="the metrics of a store, not "):
            register(wrong, registry, database="c")  # type: ignore[arg-type]
    unregister(one, registry)
    assert value(registry, "announced_total", database="a") is None
    unregister(other, registry)
    unregister(other, registry)
    assert samples(registry) == {}
    register(one, registry)
    assert value(registry, "announced_total") == 1


@pytest.mark.parametrize("auto_describe", [False, True])
def test_prometheus_names_are_taken(auto_describe: bool) -> None:
    """And a registry that refuses us can be asked again."""
    registry = CollectorRegistry(auto_describe=auto_describe)
    other = Gauge("metastore_pending_intents", "somebody else's", registry=registry)
    with pytest.raises(ValueError, match="metastore_pending_intents"):
        register(Store(some()), registry)
    registry.unregister(other)
    register(Store(some()), registry)
    with pytest.raises(ValueError, match="metastore_attempts"):
        Gauge("metastore_attempts", "somebody else's", registry=registry)


def test_prometheus_default_registry() -> None:
    from prometheus_client import REGISTRY

    store = Store(some())
    register(store, server="test")
    try:
        assert value(REGISTRY, "announced_total", server="test") == 1
    finally:
        unregister(store)
    assert value(REGISTRY, "announced_total", server="test") is None


def test_prometheus_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: dict[str, Any] = {name: None for name in sys.modules if name.split(".")[0] == "prometheus_client"}
    for name, nothing in hidden.items():
        monkeypatch.setitem(sys.modules, name, nothing)
    with pytest.raises(InvalidArgument, match=r"versioned-metastore\[metrics\]"):
        register(Store(some()))
