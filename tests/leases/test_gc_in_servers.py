"""Of several servers, one runs gc. One that is killed in the middle leaves nothing; one that stops does not wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import serve
from metastore.cli.app import run as cli
from metastore.serve.gc import LEASE, Collector
from tests.servers.process import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
NOW = timedelta(0)
TTL = 2.0
_SERVE = ["serve", "--no-iceberg", "--gc-retention", "0s"]


def filled(url: str, tables: int) -> ms.Store:
    store = ms.open(url)
    store.metalakes.create("lake", if_exists="return")
    store.catalogs.create("lake.cat", type="relational", if_exists="return")
    store.schemas.create("lake.cat.s")
    store.tables.create_many("lake.cat.s", [{"name": f"t{n}"} for n in range(tables)])
    store.schemas.drop("lake.cat.s", cascade=True)
    return store


def test_gc_under_a_lease_that_is_lost_ends_with_its_batch(url: str) -> None:
    with filled(url, 3) as store, store.leases.acquire("gc") as lease:
        store.leases.break_("gc")
        with pytest.raises(ms.LeaseLost):  # the commit finds the token gone, although the holder does not know yet
            store.gc(retention=NOW, lease=lease)
        assert store.schemas.restore("lake.cat.s").path == "lake.cat.s"
        with pytest.raises(ms.LeaseLost):  # now it knows: no batch is begun, although none would need a commit
            store.gc(retention=NOW, lease=lease)
        store.schemas.drop("lake.cat.s", cascade=True)
        with pytest.raises(ms.InvalidArgument, match=r"acquire"):
            store.gc(lease="gc")  # type: ignore[arg-type]
        assert store.metrics().gc_deleted == {}
        behind = store.metrics().gc_backlog_seconds
        assert behind is not None
        assert wait_until(lambda: (store.metrics().gc_backlog_seconds or 0) > behind, 10), "no gc was completed"
        with store.leases.acquire("gc") as again:
            assert store.gc(retention=NOW, lease=again).entities == 4
        assert store.metrics().gc_deleted["entities"] == 4
        assert (store.metrics().gc_backlog_seconds or 0) < behind + 10


def test_two_servers_take_turns(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins when the first one stops, and not before."""
    with filled(url, 3) as one, ms.open(url) as two:
        with Collector(one, NOW, ttl=60):
            assert wait_until(lambda: one.metrics().gc_deleted.get("entities") == 4, 20)
            tries, acquire = list[str](), two.leases.acquire

            def tried(name: str, **options: Any) -> ms.Lease:
                tries.append(name)
                return acquire(name, **options)

            monkeypatch.setattr(two.leases, "acquire", tried)
            with Collector(two, NOW, every=0.01, ttl=0.2):
                assert wait_until(lambda: len(tries) >= 3, 20)
            assert two.metrics().gc_backlog_seconds is None, "it has not begun one"
        with Collector(two, NOW, every=0.01, ttl=0.2):
            assert wait_until(lambda: two.metrics().gc_backlog_seconds is not None, 20)
        assert one.leases.holder(LEASE) is None


@pytest.mark.parametrize(
    ("options", "retention"),
    [([], timedelta(days=7)), (["--gc-retention", "2d"], timedelta(days=2)), (["--no-gc"], None)],
)
def test_it_can_be_turned_off(options: list[str], retention: timedelta | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(serve, "application", lambda _, **given: made.update(given))
    monkeypatch.setattr(serve, "serve_application", lambda *_, **__: None)
    assert cli(["--url", "memory://", "serve", *options]) == 0
    assert made["gc_retention"] == retention


def test_it_keeps_what_repeats_of_icebergs_clients_need() -> None:
    with ms.open("memory://") as store:
        with pytest.raises(ms.InvalidArgument, match="1d or more"):
            serve.application(store, gc_retention=timedelta(hours=23))
        serve.application(store, gc_retention=timedelta(days=1))
        serve.application(store, iceberg=False, gc_retention=NOW)


@pytest.mark.long
def test_a_server_is_killed_or_stopped_in_the_middle_of_gc(postgres_url: str, tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("one", "two")]
    words = [sys.executable, "-m", "tests.leases.gc_program", postgres_url, str(TTL)]
    command = [sys.executable, "-m", "metastore", "--url", postgres_url, *_SERVE, "--port"]
    waits = """SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND query LIKE '%DELETE FROM entity%' AND datname = current_database()"""
    left = "SELECT count(*) FROM guard WHERE state <> 0 OR key LIKE 't%'"

    def said(log: Path) -> list[str]:
        return log.read_text().split() if log.exists() else []

    dsn = postgres_url.replace("+psycopg", "")
    with (
        filled(postgres_url, 700) as store,
        psycopg.connect(dsn) as locker,
        psycopg.connect(dsn, autocommit=True) as looker,
    ):

        def blocked() -> bool:
            looker.execute("SELECT pg_stat_clear_snapshot()")
            return looker.execute(waits).fetchone() != (0,)

        ((child,),) = looker.execute("SELECT id FROM guard WHERE key = 't3'").fetchall()
        locker.execute("SELECT id FROM entity WHERE id = %s FOR UPDATE", [child])
        one = subprocess.Popen([*words, logs[0]], cwd=ROOT)
        two = None
        try:
            assert wait_until(blocked, 30)
            two = subprocess.Popen([*words, logs[1]], cwd=ROOT)
            first = store.leases.holder(LEASE)
            assert first is not None

            def renewed() -> bool:
                held = store.leases.holder(LEASE)
                return held is not None and held.expires_at - first.expires_at > timedelta(seconds=2 * TTL)

            assert wait_until(renewed, 30)
            assert said(logs[0]) == ["begin"]
            assert said(logs[1]) == [], "one at a time, also while the other one waits"
            one.kill()
            one.wait()
            assert wait_until(lambda: bool(said(logs[1])), 30)
            locker.rollback()
            assert wait_until(lambda: looker.execute(left).fetchone() == (0,), 30)
            two.send_signal(signal.SIGTERM)
            assert two.wait(20) == 0
            assert store.gc(retention=NOW).entities == 0
            assert store.verify() == []

            last = store.tables.create("lake.cat.last.t", parents=True)
            store.schemas.drop("lake.cat.last", cascade=True)
            locker.execute("SELECT id FROM entity WHERE id = %s FOR UPDATE", [last.id])
            one = subprocess.Popen([*command, str(free_port())], cwd=ROOT)
            assert wait_until(blocked, 60)
            begun = time.monotonic()
            one.send_signal(signal.SIGTERM)
            assert one.wait(60) in (0, -signal.SIGTERM)
            assert time.monotonic() - begun < 15, "gc that waits for a lock does not delay the end"
            locker.rollback()
            assert store.gc(retention=NOW).entities <= 2
            assert store.verify() == []
        finally:
            for process in (one, two):
                if process is not None:
                    process.kill()
                    process.wait()
