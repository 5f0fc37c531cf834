"""The command line shows who holds up writers, and evicts a member that does not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.port.members import Announces
from tests.cache.kept import LONG, lake
from tests.servers.process import wait_until

pytestmark = pytest.mark.postgres

T, TTL = "lake.c.s.t", 600_000_000
"""Microseconds: the member does not answer, and is not given up in this test."""


@pytest.fixture
def held_up(postgres_url: str) -> Iterator[tuple[str, int, Future[ms.Table]]]:
    """Give a database, a member that looks at nothing, and the write that waits for it."""
    lake(postgres_url)
    with ms.open(postgres_url) as store, ThreadPoolExecutor(1) as pool:
        rows = cast(Announces, store._session.backend).cache_members
        wake = rows.wake()
        rows.join(wake, None, TTL, "elsewhere", 4711)
        rows.begin(wake)
        wake.close()
        waits = pool.submit(store.tables.alter, T, ms.SetComment("new"), deadline=10 * LONG)
        assert wait_until(lambda: store.cache.members()[0].behind == 1, LONG)
        yield postgres_url, store.cache.members()[0].id, waits


def test_who_holds_up_writers_is_shown_and_evicted(
    held_up: tuple[str, int, Future[ms.Table]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, member, waits = held_up
    assert run(["--url", url, "cache", "members"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in (str(member), "elsewhere", "4711", "600 s", "writers, for"))
    assert run(["--url", url, "cache", "members", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["members"]
    assert (shown["id"], shown["host"], shown["pid"], shown["ttl"], shown["behind"]) == (
        member,
        "elsewhere",
        4711,
        600.0,
        1,
    )
    assert run(["--url", url, "cache", "evict", str(member)]) == 1
    assert "may answer from memory" in capsys.readouterr().err
    assert not waits.done()
    assert run(["--url", url, "cache", "evict", str(member), "--force"]) == 0
    assert "do not wait" in capsys.readouterr().out
    assert waits.result(LONG).comment == "new"
    assert run(["--url", url, "cache", "evict", str(member), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"member": member, "evicted": False}
    assert run(["--url", url, "cache", "members", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"members": []}
