"""Drops in steps beside members of the cache that are away: they are given up once, and serve nothing afterwards."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import psycopg
import pytest

import metastore as ms
from metastore.urls import parse_url
from tests.cache.kept import LONG, keep, lake
from tests.concurrency.raw import dsn
from tests.concurrency.workers import FORKSERVER
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

T, TTL = "lake.c.s.t", 1.5
LEASE = ms.Cache("lease", ttl=TTL)


def _member(url: str, pipe: Connection) -> None:
    with ms.open(url, cache=LEASE) as store:
        keep(store, lambda: store.tables.load(T))
        pipe.send(os.getpid())
        signal.pause()


@contextmanager
def _process(url: str) -> Iterator[int]:
    """Give the id of a process that caches."""
    mine, other = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_member, args=(url, other), daemon=True)
    process.start()
    assert mine.poll(LONG)
    yield mine.recv()
    process.kill()
    process.join(LONG)


@contextmanager
def _role(url: str) -> Iterator[str]:
    """Give the name of a role of its own; :func:`_as` connects with it."""
    role = f"cache_{secrets.token_hex(4)}"
    with psycopg.connect(dsn(url), autocommit=True) as raw:
        raw.execute(f"CREATE ROLE {role} LOGIN SUPERUSER".encode())
        yield role
        raw.execute(f"DROP ROLE {role}".encode())


def _as(role: str, url: str) -> str:
    return parse_url(url).set(username=role).render_as_string(hide_password=False)


def _only_reads(url: str, role: str) -> None:
    """Let a role do nothing but read, from its next connections on, and end the present ones."""
    with psycopg.connect(dsn(url), autocommit=True) as raw:
        raw.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on".encode())
        raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role])


def _shows(store: ms.Store) -> bool:
    """Whether a store shows the table at this moment; one that has no connection shows nothing."""
    try:
        store.bind(deadline=1.0).tables.load(T)
    except (ms.DropPending, ms.EntityNotFound, ms.BackendUnavailable, ms.DeadlineExceeded):
        return False
    return True


@pytest.mark.parametrize("end", ["finish", "roll back"])
def test_a_drop_goes_through_while_members_are_away(postgres_url: str, end: str) -> None:
    """Field case 62: one is killed, one is cut off, one may only read.

    The first step waits for them, and no later one does.
    """
    lake(postgres_url)
    parts = urlsplit(postgres_url)
    with (
        PostgresProxy(parts.hostname or "", parts.port or 0) as proxy,
        _role(postgres_url) as role,
        _process(postgres_url) as killed,
        ms.open(proxy.url_for(postgres_url), cache=LEASE) as cut_off,
        ms.open(_as(role, postgres_url), cache=LEASE) as read_only,
        ms.open(postgres_url, cache=LEASE) as well,
        ms.open(postgres_url) as store,
    ):
        for member in (cut_off, read_only, well):
            keep(member, partial(member.tables.load, T))
        store.tables.alter(T, ms.SetComment("watched"))  # from its first write on, a writer watches
        assert len(store.cache.members()) == 4
        os.kill(killed, signal.SIGKILL)
        _only_reads(postgres_url, role)
        with proxy.silent_to("server"):
            began = time.monotonic()
            pending = store.tables.begin_drop(T)
            first = time.monotonic() - began
            assert not any(map(_shows, (cut_off, read_only, well)))
            assert len(store.cache.members()) <= 1, "those that are away were given up, and cannot join"
            if end == "finish":
                pending.started()
                assert pending.finish()
            else:
                pending.roll_back()
            assert len(store.cache.members()) <= 1
        assert first < 2 * TTL + 10.0  # 2 s on a machine that is not busy; the deadline is 30 s
        assert wait_until(lambda: _shows(well) is (end != "finish"), LONG)
        assert wait_until(lambda: _shows(cut_off) is (end != "finish"), LONG)
