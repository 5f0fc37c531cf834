"""A mix from 16 clients on two servers that are killed at random: what was answered is there, the rest whole or not."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest

import metastore as ms
from tests.gravitino.server import Server
from tests.servers.process import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
LAKE = "/api/metalakes/lake"
S = f"{LAKE}/catalogs/cat/schemas/s"
CLIENTS, KILLS, AFTER = 16, 4, 5
"""How many clients, and kills; how many tables a client makes at least after the last kill."""


class State(NamedTuple):
    """A table as one client left it: nobody else touches it."""

    name: str
    keys: frozenset[str] = frozenset()
    tagged: bool = False


class Client:
    """Makes tables and works on them, each with a random server; it knows in which states each can be."""

    def __init__(self, number: int, servers: list[Server], over: threading.Event) -> None:
        self.number, self.servers, self.over = number, servers, over
        self.random = random.Random(number)
        self.http = httpx.Client(timeout=30)
        self.tables: list[set[State | None]] = []
        self.on_schema: dict[str, bool | None] = {}
        """For each property that it set on the schema: whether it is there; None: nobody answered."""

    def send(self, method: str, path: str, body: Any = None) -> bool | None:
        """Tell whether the request was done; None: its server died, so it was done or not."""
        while True:
            base = f"http://127.0.0.1:{self.random.choice(self.servers).port}"
            try:
                answer = self.http.request(method, base + path, json=body)
            except httpx.ConnectError:
                wait_until(lambda: False, 0.2)  # nothing was sent: another server, or the same one later
                continue
            except httpx.HTTPError:
                return None
            assert answer.json()["code"] in (0, 1002, 1012), answer.text
            return None if answer.json()["code"] == 1002 else answer.json()["code"] == 0

    def work(self) -> None:
        left = AFTER
        with self.http:
            while left:
                left -= self.over.is_set()
                self.table(f"c{self.number}_{len(self.tables)}")
                key = f"k{self.number}_{len(self.tables)}"
                body = {"updates": [{"@type": "setProperty", "property": key, "value": "1"}]}
                self.on_schema[key] = self.send("PUT", S, body)

    def table(self, name: str) -> None:
        """Make a table and change it; leave it alone after a request that nobody answered."""
        state: State | None = None
        for method, path, body, after in self.steps(name):
            done = self.send(method, path, body)
            if done is None:
                self.tables.append({state, after})
                return
            assert done, f"{method} {path} was refused, but nobody else touches it"
            state = after
        self.tables.append({state})

    def steps(self, name: str) -> Iterator[tuple[str, str, Any, State | None]]:
        """Yield requests, each with the state of the table after it."""
        columns = [{"name": "a", "type": "integer"}]
        state = State(name)
        yield "POST", f"{S}/tables", {"name": name, "columns": columns}, state
        for what in self.random.choices(("set", "rename", "tag", "drop"), k=3):
            path = f"{S}/tables/{state.name}"
            if what == "set":
                key = f"p{len(state.keys)}"
                state = state._replace(keys=state.keys | {key})
                yield "PUT", path, {"updates": [{"@type": "setProperty", "property": key, "value": "v"}]}, state
            elif what == "rename" and not state.name.endswith("r"):
                state = state._replace(name=f"{name}r")
                yield "PUT", path, {"updates": [{"@type": "rename", "newName": state.name}]}, state
            elif what == "tag" and not state.tagged:
                tags, state = f"{LAKE}/objects/table/cat.s.{state.name}/tags", state._replace(tagged=True)
                yield "POST", tags, {"tagsToAdd": ["pii"], "tagsToRemove": []}, state
            elif what == "drop":
                yield "DELETE", path, None, None
                return


def test_sixteen_clients_while_servers_are_killed(servers: list[Server], postgres_url: str) -> None:
    rng, over = random.Random(21), threading.Event()
    clients = [Client(number, servers, over) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(client.work) for client in clients]
        try:
            for _ in range(KILLS):
                wait_until(lambda: any(one.done() for one in running), rng.uniform(0.3, 1.5))
                victim = rng.choice(servers)
                victim.kill()
                victim.start()
                victim.wait()
        finally:
            over.set()
        for one in running:
            one.result()
    unknown = sum(len(states) > 1 for client in clients for states in client.tables)
    assert unknown > 0, "no request was under way when a server was killed"
    with ms.open(postgres_url) as store:
        tagged = {one.target_path for one in store.tags.targets("lake.pii")}
        there = {
            table.name: State(table.name, frozenset(table.properties), table.path in tagged)
            for table in store.tables.list("lake.cat.s")
        }
        keys = set(store.schemas.load("lake.cat.s").properties)
    for client in clients:
        for number, states in enumerate(client.tables):
            name = f"c{client.number}_{number}"
            found = [there[one] for one in (name, f"{name}r") if one in there]
            assert len(found) <= 1
            assert (found[0] if found else None) in states
        for key, done in client.on_schema.items():
            assert done is None or (key in keys) is done
