"""How often a lease waits for its server: Sync messages on the wire to PostgreSQL, requests to the S3 server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import metastore as ms
from tests.bench.core.round_trips import WARM, _Counter
from tests.bench.core.setting import COLUMNS, Setting, new_lake
from tests.bench.leases.locker import SCHEMA, Locker, Table
from tests.bench.leases.lockers import Lockers
from tests.bench.leases.places import Ground
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy
from tests.servers.s3 import S3Server

__all__ = ["measure"]

WAITED_FOR = "waited for"
PATIENCE = 30.0


def measure(setting: Setting, ground: Ground, peers: list[str]) -> None:
    """Count where nobody else is."""
    _on_postgres(setting)
    if ground.s3 is not None:
        _on_s3(setting, ground, ground.s3, [peer for peer in ("s3", "s3_fenced", "hudi") if peer in peers])


def _on_postgres(setting: Setting) -> None:
    url = new_lake(setting.nosync, SCHEMA.rpartition(".")[2])
    with (
        PostgresProxy("127.0.0.1", setting.nosync.port) as proxy,
        ms.open(proxy.url_for(url), principal="bench") as store,
    ):
        counter, leases = _Counter(setting, proxy), store.leases
        held: dict[int, Any] = {}
        calls: dict[str, Callable[[int], object]] = {
            "acquire_new_name": lambda n: held.update({n: leases.acquire(f"lease {n}")}),
            "release": lambda n: leases.release(held[n]),
            "acquire": lambda n: held.update({n: leases.acquire(f"lease {n}")}),
            "renew": lambda n: leases.renew(held[n]),
            "acquire_many": lambda n: leases.acquire_many([f"many {n} {m}" for m in range(5)]),
        }
        for name, call in calls.items():
            setting.figures.record(f"{name}_round_trips", counter.trips(call)[WARM:])
        with ms.open(url, principal="other") as other:
            counts = counter.trips(lambda _: _wait_for_it(other, store))[WARM:]
        setting.figures.record("waited_acquire_round_trips", counts)
        _fenced(setting, counter, store)


def _wait_for_it(other: ms.Store, store: ms.Store) -> None:
    """Let ``store`` wait for what ``other``, who is not counted, gives back as soon as somebody waits."""
    held = other.leases.acquire(WAITED_FOR)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.leases.acquire, WAITED_FOR, timeout=PATIENCE)
        wait_until(lambda: _waiters(other) > 0, PATIENCE)
        other.leases.release(held)
        waiting.result()
    other.leases.break_(WAITED_FOR)


def _waiters(store: ms.Store) -> int:
    holder = store.leases.holder(WAITED_FOR)
    return 0 if holder is None else holder.waiting


def _fenced(setting: Setting, counter: _Counter, store: ms.Store) -> None:
    store.tables.create(f"{SCHEMA}.t", columns=COLUMNS)
    table, lease = Table(store, "t"), store.leases.acquire("fence")
    unfenced = counter.trips(lambda _: table.alter())[WARM:]
    fenced = counter.trips(lambda _: table.alter(lease))[WARM:]
    setting.figures.record("fenced_commit_round_trips_extra", [count - median(unfenced) for count in fenced])


def _on_s3(setting: Setting, ground: Ground, server: S3Server, peers: list[str]) -> None:
    with Lockers(ground.places, peers, 0) as lockers:
        for peer in peers:
            counts = [_requests(server, lockers[peer]) for _ in range(1 + setting.runs)]
            setting.figures.record(f"{peer}_requests_pair", counts[1:])  # the first creates the object


def _requests(server: S3Server, locker: Locker) -> int:
    with server.requests() as found:
        locker.acquire("counted")
        locker.release()
    return len(found.made)
