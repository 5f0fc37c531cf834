"""Hints end the pauses of those that follow the feed. Nothing rests on them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

import metastore as ms
from metastore.clock import Clock
from metastore.feed import follow, hints
from metastore.metrics import Metrics
from tests.servers.pgbouncer import PgBouncer


class Heard:
    """A feed that counts the hints."""

    def __init__(self, followers: bool) -> None:
        self.followers, self.hints, self.asked = followers, 0, 0

    def hint(self, *, send: bool) -> bool:
        self.hints += send
        self.asked += not send
        return self.followers


class Passing(Clock):
    """A clock that goes on when it is told."""

    now = 0.0

    def __init__(self) -> None:
        """Begin at 0."""

    def monotonic(self) -> float:
        return self.now


def looked(heard: Heard, monkeypatch: pytest.MonkeyPatch, ends: Callable[[int], bool]) -> tuple[int, float]:
    """Let ten seconds pass, with operations that end at some looks; return how many looks, and the shortest pause."""
    clock, looks, shortest = Passing(), 0, 10.0
    monkeypatch.setattr(hints, "_begin", lambda: None)
    metrics = Metrics()
    one = hints.Hints(heard, metrics, clock)  # type: ignore[arg-type]
    while clock.now < 10:
        if ends(looks):
            metrics.operation("create", 1, 0.001, "self")
        pause = one.look()
        clock.now, looks, shortest = clock.now + pause, looks + 1, min(shortest, pause)
    one.close()
    return looks, shortest


def test_hints_are_sent_only_while_somebody_follows_and_something_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Heard(followers=False)
    assert looked(alone, monkeypatch, lambda _: True)[0] <= 11
    assert 2 <= alone.hints <= 4
    busy = Heard(followers=True)
    looks, shortest = looked(busy, monkeypatch, lambda _: True)
    assert shortest >= 0.01
    assert 500 < busy.hints <= looks <= 1000
    idle, quiet = Heard(followers=False), Heard(followers=True)
    looked(idle, monkeypatch, lambda _: False)
    looked(quiet, monkeypatch, lambda look: look == 0)
    assert (idle.hints, idle.asked) == (0, 0)
    assert (quiet.hints, quiet.asked) == (1, 2)  # nothing has changed since the first: it only asks who follows


@pytest.mark.postgres
def test_a_hint_ends_a_pause(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower's own pauses would take an hour."""
    monkeypatch.setattr(hints, "_ASKS", 0.03)
    seen, begun = list[str](), threading.Event()
    with ms.open(postgres_url) as writer, ms.open(postgres_url) as reader:
        writer.metalakes.create("a")
        assert not writer._session.backend.hint(send=True)
        start = writer.position()
        monkeypatch.setattr(follow, "_SOON", 3600.0)
        monkeypatch.setattr(follow, "_SLOWEST", 3600.0)

        def read() -> None:
            for change in reader.changes(after=start, follow=True):
                seen.append(change.path_after or "")
                begun.set()
                if len(seen) == 2:
                    return

        thread = threading.Thread(target=read)
        thread.start()
        while not writer._session.backend.hint(send=True):
            pass
        writer.metalakes.create("b")
        assert begun.wait(60)
        writer.metalakes.create("c")
        thread.join(60)
        assert seen == ["b", "c"]
        assert not writer._session.backend.hint(send=True)  # its session does not say that it follows any more


@pytest.mark.postgres
def test_commits_send_no_notification(postgres_url: str) -> None:
    with ms.open(postgres_url) as store, psycopg.connect(postgres_url.replace("+psycopg", "")) as listener:
        listener.autocommit = True
        listener.execute("LISTEN metastore_feed")
        lake = store.metalakes.create("a")
        store.metalakes.alter(lake, ms.SetComment("1"))
        with store.transaction() as tx:
            tx.metalakes.drop("a")
        assert list(listener.notifies(timeout=0.2)) == []


@pytest.mark.postgres
def test_behind_a_pooler_followers_look_by_themselves(pgbouncer: PgBouncer) -> None:
    direct = pgbouncer.server.create_database()
    ms.migrate(direct)
    with ms.open(pgbouncer.url(direct.rpartition("/")[2])) as store:
        store.metalakes.create("a")
        with store._session.backend.hearing() as hearing:
            assert hearing is None
        changes = store.changes(follow=True)
        assert next(changes).path_after == "a"
        store.metalakes.create("b")
        assert next(changes).path_after == "b"
    pgbouncer.server.drop_database(direct)
