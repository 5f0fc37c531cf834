"""Ten thousand changes reach open pages once and in order, while rights come and go, servers are killed, and PostgreSQL
is restarted.

Four pages are open: an admin's and a user's at each of two servers. A page that loses its stream goes on at the other
server, as a proxy sends it there. The writer never runs ahead of the pages by more than they are promised.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

import metastore as ms
from tests.console.lake import build
from tests.console.test_live import ROOT, _answers
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port, wait_until

T = TypeVar("T")
CHANGES = int(os.environ.get("CONSOLE_CHANGES", "10000"))
BATCH, HIDDEN, LOST = 120, 80, 40
"""How many changes of a round the user may see, how many not, and how many while its right is taken away.

They are fewer than the 300 changes that a page catches up."""
PATIENCE = 120.0


class Server:
    """``metastore serve`` with tokens and rights, as a process of its own."""

    def __init__(self, url: str, tokens: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}/console/"
        self._words = [
            *(sys.executable, "-m", "metastore", "--url", url, "serve", "--port", str(self.port)),
            *("--token-file", str(tokens), "--authorization", "--admin", "root", "--no-gc"),
        ]
        self.start()

    def start(self) -> None:
        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(self._words, stdout=silent, stderr=silent, cwd=ROOT)
        assert wait_until(lambda: _answers(f"{self.address}signin"), PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(eq=False)
class Tab:
    """An open page: it keeps its stream, and goes on at the next server where it loses it."""

    servers: list[Server]
    now: int
    cookies: httpx.Cookies
    last: str
    ids: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """What the stream said besides changes and greetings."""
    streams: int = 0
    _texts: list[str] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _socket: socket.socket | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with suppress(OSError, AttributeError):
            self._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
        self._thread.join(60.0)

    def has(self, position: str) -> bool:
        return position in self.ids[-3 * BATCH :]

    def shows(self, text: str) -> bool:
        return any(text in one for one in self._texts)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(httpx.HTTPError, RuntimeError, AttributeError):  # the server is gone, or the test ends
                self._follow(self.servers[self.now].address)
            self.now = 1 - self.now
            self._stopped.wait(0.1)

    def _follow(self, address: str) -> None:
        with (
            httpx.Client(cookies=self.cookies, timeout=60.0) as client,
            client.stream("GET", f"{address}stream", params={"after": self.last}) as answer,
        ):
            self._socket = answer.extensions["network_stream"].get_extra_info("socket")
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                key, _, value = line.partition(": ")
                if line:
                    event[key] = value
                elif event:
                    self._took(event.get("event", ""), event.get("id", ""), event.get("data", ""))
                    event = {}

    def _took(self, name: str, key: str, data: str) -> None:
        if name == "change":
            self._texts.append(data)
            self.last = key
            self.ids.append(key)
        elif name == "hello":
            self.streams += 1
        elif name:
            self.told.append(name)


def signed_in(server: Server, token: str) -> httpx.Cookies:
    with httpx.Client(base_url=server.address) as client:
        origin = server.address.removesuffix("/console/")
        assert client.post("signin", data={"token": token, "next": ""}, headers={"Origin": origin}).status_code == 303
        return client.cookies


@contextmanager
def opened(servers: list[Server], begin: str) -> Iterator[tuple[list[Tab], list[Tab]]]:
    """Open the pages of the admin and of the user, one at each server."""
    cookies = [signed_in(servers[0], token) for token in ("root-token", "narrow-token")]
    admins, users = [[Tab(servers, n, own, begin) for n in (0, 1)] for own in cookies]
    try:
        for tab in (*admins, *users):
            tab.start()
        yield admins, users
    finally:
        for tab in (*admins, *users):
            tab.stop()


def insistent(call: Callable[[], T]) -> T:
    """Call until the database answers; a lost answer may be one more change, which the feed shows."""
    found: list[T] = []

    def answers() -> bool:
        with suppress(ms.BackendUnavailable, ms.OutcomeUnknown, ms.DeadlineExceeded):
            found.append(call())
        return bool(found)

    assert wait_until(answers, PATIENCE)
    return found[0]


@pytest.mark.nightly
def test_pages_lose_nothing_in_a_storm(tmp_path: Path) -> None:
    tokens, chance = tmp_path / "tokens", random.Random(37)
    tokens.write_text("root root-token\nnarrow narrow-token\n")
    with PostgresServer(in_memory=True) as database:
        url = database.create_database()
        ms.migrate(url)
        with ms.open(url, principal="ada") as store:
            build(store)
            begin = store.position()
            servers = [Server(url, tokens) for _ in range(2)]
            try:
                with opened(servers, begin) as (admins, users):
                    allowed = _storm(store, database, servers, admins, users, chance)
                    streams = [tab.streams for tab in (*admins, *users)]
            finally:
                for server in servers:
                    server.kill()
            made = [one.position for one in store.changes(after=begin)]
            print(len(made), "changes,", streams, "streams,", [tab.told for tab in (*admins, *users)])
    assert len(made) >= CHANGES
    for tab in admins:
        assert tab.ids == made
    for tab in users:
        assert len(set(tab.ids)) == len(tab.ids)
        assert tab.ids == sorted(tab.ids)
        assert set(allowed) <= set(tab.ids) <= set(made)
        assert not tab.shows("lake.sales.hidden")
    assert all(count > 1 for count in streams)
    assert {one for tab in (*admins, *users) for one in tab.told} <= {"away", "back"}


def _storm(
    store: ms.Store,
    database: PostgresServer,
    servers: list[Server],
    admins: list[Tab],
    users: list[Tab],
    chance: random.Random,
) -> list[str]:
    """Make the changes; return the positions of those that the user could see all the time."""
    seen = [store.tables.create(f"lake.sales.shop.storm{n}") for n in range(5)]
    hidden = [store.tables.create(f"lake.sales.hidden.storm{n}") for n in range(5)]
    allowed, rounds = list[str](), -(-CHANGES // (BATCH + HIDDEN))

    def newest(count: int, tables: list[ms.Table]) -> list[str]:
        """Change tables so many times; return the positions of all changes meanwhile."""
        before = insistent(store.position)
        for n in range(count):
            table = chance.choice(tables)
            insistent(lambda table=table, n=n: store.tables.alter(table, ms.SetComment(f"{before} {n}")))  # type: ignore[misc]
        return insistent(lambda: [one.position for one in store.changes(after=before)])

    for turn in range(rounds):
        if turn in (rounds // 5, rounds * 3 // 5):  # one server, later the other one
            servers[turn * 2 // rounds].kill()
        if turn in (rounds // 5 + 2, rounds * 3 // 5 + 2):
            servers[turn * 2 // rounds].start()
        if turn % 10 == 9:  # the right is taken away: the same look that gives an admin this change gives the user none
            store.roles.unassign("lake.reader", "lake.analysts")
            lost = newest(LOST, seen)
            assert wait_until(lambda lost=lost: all(tab.has(lost[-1]) for tab in admins), PATIENCE)  # type: ignore[misc]
            assert not [tab for tab in users if set(lost) & set(tab.ids)]
            store.roles.assign("lake.reader", "lake.analysts")
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(newest, HIDDEN, hidden)
            if turn == rounds * 2 // 5:  # by this thread: a server that another one starts ends with it
                database.restart()
            writing.result()
        mine = newest(BATCH, seen)
        allowed += mine
        assert wait_until(lambda mine=mine: all(tab.has(mine[-1]) for tab in (*admins, *users)), PATIENCE), (  # type: ignore[misc]
            turn,
            [(tab.now, tab.streams, len(tab.ids), tab.told) for tab in (*admins, *users)],
        )
    return allowed
