"""A leader that goes on although its replica was promoted, as when its Patroni is stopped.

A member acknowledges on a connection of its own, and reads on others. If these lead to two leaders, it must keep
nothing of what the old one answers: no writer at the new one waits for that.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import metastore as ms
from tests.cache.kept import LONG, keep, lake, leased
from tests.progress.replica import Replica, primary
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

pytestmark = pytest.mark.postgres
T = "lake.c.s.t"


def _connection(store: ms.Store) -> Any:
    """Return the member's own connection; None while it has none."""
    cache: Any = store._session.cache
    return getattr(cache._member._wake, "connection", None)


def _port(store: ms.Store) -> int:
    connection = _connection(store)
    return 0 if connection is None or connection.closed else int(connection.info.port)


def _end_session(server: PostgresServer, pid: int) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as raw:
        raw.execute("SELECT pg_terminate_backend(%s)", [pid])


def _read(store: ms.Store, *, seconds: float = 0.5) -> set[str | None]:
    """Read for a while; return what came from memory."""
    found, ends = set[str | None](), time.monotonic() + seconds
    while time.monotonic() < ends:
        before = store.cache.stats().hits
        with suppress(ms.CacheFenced, ms.BackendUnavailable):
            comment = store.tables.load(T).comment
            found |= {comment} if store.cache.stats().hits > before else set()
    return found


@pytest.mark.long
def test_a_member_keeps_only_what_the_leader_answers_that_it_acknowledges_to() -> None:
    with primary() as leader:
        url = leader.create_database()
        ms.migrate(url)
        lake(url)
        name = urlsplit(url).path
        with (
            Replica(leader) as replica,
            PostgresProxy("127.0.0.1", leader.port) as old,
            PostgresProxy("127.0.0.1", replica.port) as young,
        ):

            def way(*ports: int) -> str:
                hosts = f"host=127.0.0.1,127.0.0.1&port={','.join(map(str, ports))}&target_session_attrs=read-write"
                return f"postgresql+psycopg://{leader.user}@{name}?{hosts}"

            new = f"postgresql+psycopg://{replica.user}@127.0.0.1:{replica.port}{name}"
            options: dict[str, Any] = {"ttl": 2.0, "when_fenced": "raise"}
            with leased(way(young.port, old.port), **options) as one, leased(way(old.port, replica.port)) as two:
                for store in (one, two):
                    keep(store, partial(store.tables.load, T))
                replica.promote()
                # its own connection leads to the new leader, those of its reads to the old one
                _end_session(leader, _connection(one).info.backend_pid)
                assert wait_until(lambda: _port(one) == young.port, LONG)
                young.close()
                with ms.open(new, deadline=25.0) as other:
                    other.tables.alter(T, ms.SetComment("new"))
                    assert _read(one) <= {"new"}
                    # the connections of its reads are older than its own
                    old.close()
                    _end_session(leader, _connection(two).info.backend_pid)
                    assert wait_until(lambda: _port(two) == replica.port, LONG)
                    other.tables.alter(T, ms.SetComment("newer"))
                    assert _read(two) == {"newer"}
