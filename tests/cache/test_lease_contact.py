"""Members that lose contact with the database: without it no lease goes on, and no member serves what it had."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

import metastore as ms
from metastore.backends.postgres.members import PostgresMembers
from metastore.cache.leased import Leased
from metastore.port.members import Membership
from tests.cache.kept import LONG, keep, lake, leased
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

T, U, TTL = "lake.c.s.t", "lake.c.s.u", 1.5


def _fenced(store: ms.Store) -> bool:
    try:
        store.tables.load(T)
    except ms.CacheFenced:
        return True
    return False


def _comment(store: ms.Store, path: str) -> str | None:
    """Read a table's comment; on a busy machine a member may be fenced for a moment."""
    ends = time.monotonic() + LONG
    while True:
        try:
            return store.tables.load(path).comment
        except ms.CacheFenced:
            assert time.monotonic() < ends


def test_a_member_without_contact_serves_nothing_of_before(postgres_url: str) -> None:
    """Field case 59: it refuses reads for as long as it is cut off; then it registers and fills again."""
    lake(postgres_url)
    parts = urlsplit(postgres_url)
    with (
        PostgresProxy(parts.hostname or "", parts.port or 0) as proxy,
        leased(proxy.url_for(postgres_url), ttl=TTL, when_fenced="raise") as cached,
        ms.open(postgres_url) as other,
    ):
        for path in (T, U):
            keep(cached, partial(_comment, cached, path))
        (before,) = other.cache.members()
        with proxy.silent_to("server"):
            assert wait_until(lambda: _fenced(cached), LONG)
            other.tables.alter(T, ms.SetComment("new"))
            assert list(other.cache.members()) == [], "a writer has given it up"
            with pytest.raises(ms.CacheFenced):
                cached.tables.load(U)
        assert wait_until(lambda: not _fenced(cached), LONG)
        (after,) = other.cache.members()
        assert after.id != before.id
        hits = cached.cache.stats().hits
        assert _comment(cached, U) == "old"
        assert cached.cache.stats().hits == hits, "what it had before is not used"
        assert _comment(cached, T) == "new"


def test_a_renewal_whose_answer_was_lost_does_not_count(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 61: the database has each renewal, the member knows of none, and its lease ends."""
    lake(postgres_url)
    lost: list[tuple[int, int]] = []
    look = PostgresMembers.look

    def answer_lost(self: PostgresMembers, wake: Any, member: Any, apply: Any, **how: Any) -> Membership | None:
        found = look(self, wake, member, apply, **how)
        if how["renew"] and found is not None:
            lost.append((found.id, found.renewals))
            raise ms.BackendUnavailable("the answer is lost")
        return found

    with leased(postgres_url, ttl=TTL) as cached:
        keep(cached, lambda: cached.tables.load(T))
        cache = cast(Leased, cached._session.cache)
        lease = cache._member.lease
        monkeypatch.setattr(PostgresMembers, "look", answer_lost)
        assert wait_until(lambda: bool(lost) and not lease.holds(), LONG)
        assert cache.held("table", T) is None
        counted = list(lost)
        assert counted == sorted(set(counted)), "the database counts each of them"
        assert cached.tables.load(T).comment == "old"
