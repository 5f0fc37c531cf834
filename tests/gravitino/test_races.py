"""The races of the lock tree through REST, on two servers; and what bad requests leave behind: nothing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import metastore as ms
from tests.gravitino.conftest import Api
from tests.servers.process import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
LAKE = "/api/metalakes/lake"
S = f"{LAKE}/catalogs/cat/schemas/s"
COLUMNS = [{"name": "a", "type": "integer"}]


class Server:
    """A ``metastore serve`` that can be killed and started again on its port."""

    def __init__(self, url: str) -> None:
        self.url, self.port = url, free_port()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "metastore", "--url", self.url, "serve", "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--job-workers", "0"], stdout=subprocess.DEVNULL, cwd=ROOT)

    def wait(self) -> None:
        assert wait_until(self._answers, 60.0)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def servers(postgres_url: str) -> Iterator[list[Server]]:
    """Two processes on one database with lake.cat.s, two users, a role and a tag."""
    with ms.open(postgres_url, principal="test") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="relational", provider="hive")
        store.schemas.create("lake.cat.s")
        store.tags.create("lake.pii")
    found = [Server(postgres_url) for _ in range(2)]
    try:
        for one in found:
            one.wait()
        yield found
    finally:
        for one in found:
            one.kill()
    with ms.open(postgres_url) as store:
        assert list(store.verify()) == []


@pytest.fixture
def both(servers: list[Server]) -> Iterator[Callable[..., list[int]]]:
    """Send requests at once, in turns to both servers, and return their codes."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{s.port}", timeout=10)) for s in servers
        ]
        threads = stack.enter_context(ThreadPoolExecutor(8))

        def send(*requests: tuple[str, str, Any]) -> list[int]:
            def one(work: tuple[int, tuple[str, str, Any]]) -> int:
                number, (method, path, body) = work
                code: int = clients[number % 2].request(method, path, json=body).json()["code"]
                return code

            return list(threads.map(one, enumerate(requests)))

        yield send


def test_the_lock_trees_races(both: Callable[..., list[int]], servers: list[Server], postgres_url: str) -> None:
    """field-cases 1, 3, 8, 9, 10, 12, through REST: what holds after each race, whoever won."""
    with ms.open(postgres_url) as store:
        for turn in range(6):
            name = f"t{turn}"
            create = ("POST", f"{S}/tables", {"name": name, "columns": COLUMNS})
            assert Counter(both(*[create] * 6)) == {0: 1, 1004: 5}  # one is made, the others hear that it is there
            path = f"{S}/tables/{name}"
            keys = [
                ("PUT", path, {"updates": [{"@type": "setProperty", "property": f"k{i}", "value": "v"}]})
                for i in range(6)
            ]
            assert both(*keys) == [0] * 6
            assert len(store.tables.load(f"lake.cat.s.{name}").properties) == 6  # both changes survive
            rename = {"updates": [{"@type": "rename", "newName": f"{name}n"}]}
            codes = both(("PUT", path, rename), ("POST", f"{S}/tables", {"name": f"{name}n", "columns": COLUMNS}))
            assert sorted(codes) == [0, 1004]
            for who in (f"u{turn}a", f"u{turn}b"):
                both(("POST", f"{LAKE}/users", {"name": who}))
            owners = [
                ("PUT", f"{LAKE}/owners/table/cat.s.{name}n", {"name": f"u{turn}{x}", "type": "USER"}) for x in "abab"
            ]
            assert both(*owners) == [0] * 4
            tag = {"tagsToAdd": ["pii"], "tagsToRemove": []}
            both(("POST", f"{LAKE}/objects/table/cat.s.{name}n/tags", tag), ("DELETE", f"{S}/tables/{name}n", None))
            both(("POST", f"{LAKE}/roles", {"name": f"r{turn}", "properties": {}, "securableObjects": []}))
            grant = {"roleNames": [f"r{turn}"]}
            both(
                ("PUT", f"{LAKE}/permissions/users/u{turn}a/grant", grant),
                ("DELETE", f"{LAKE}/roles/r{turn}", None),
            )
            assert list(store.roles.of(store.users.load(("lake", f"u{turn}a")))) == []  # no membership of a dead role
            both(("POST", f"{LAKE}/catalogs/cat/schemas", {"name": f"x{turn}", "properties": {}}))
            below = f"{LAKE}/catalogs/cat/schemas/x{turn}"
            makes = [("POST", f"{below}/tables", {"name": f"c{i}", "columns": COLUMNS}) for i in range(4)]
            both(*makes[:2], ("DELETE", f"{below}?cascade=true", None), *makes[2:])
            assert not store.schemas.exists(f"lake.cat.x{turn}")
        assert [one.target_path for one in store.tags.targets("lake.pii")] == [
            one.target_path for one in store.tags.targets("lake.pii") if store.tables.exists(one.target_path)
        ]


@pytest.mark.long
def test_sixteen_clients_while_servers_are_killed(servers: list[Server], postgres_url: str) -> None:
    """A request that is answered is there; one whose server died is there as a whole, or not at all."""

    def client(number: int) -> list[str]:
        rng, made = random.Random(number), []
        for i in range(12):
            name, server = f"c{number}_{i}", servers[rng.randrange(2)]
            base = f"http://127.0.0.1:{server.port}"
            body = {"name": name, "columns": COLUMNS, "properties": {"k": "v"}}
            try:
                answer = httpx.post(f"{base}{S}/tables", json=body, timeout=10)
                if answer.json()["code"] == 0:
                    made.append(name)
                httpx.put(
                    f"{base}{S}",
                    json={"updates": [{"@type": "setProperty", "property": name, "value": "1"}]},
                    timeout=10,
                )
            except httpx.HTTPError:
                continue  # its server is dead, or died meanwhile
        return made

    with ThreadPoolExecutor(16) as clients:
        running = [clients.submit(client, number) for number in range(16)]
        for turn in range(2):
            victim = servers[turn % 2]
            wait_until(lambda: False, 0.7)
            victim.kill()
            victim.start()
            victim.wait()
        made = {name for one in running for name in one.result()}
    assert made
    with ms.open(postgres_url) as store:
        there = {table.name: table for table in store.tables.list("lake.cat.s")}
        assert made <= there.keys()
        assert all(dict(t.properties) == {"k": "v"} and t.version == 1 for t in there.values())


F: dict[str, Any] = {"name": "f", "functionType": "SCALAR"}
T: dict[str, Any] = {"name": "t", "jobType": "shell", "executable": "x"}
FUNCTIONS, TEMPLATES = "/catalogs/cat/schemas/s/functions", "/jobs/templates"
BAD: list[tuple[str, str, Any]] = [
    ("POST", "/catalogs", {"name": "c", "type": "RELATIONAL", "provider": "no-such-provider"}),
    ("POST", "/catalogs", {"name": "a.b", "type": "RELATIONAL", "provider": "hive"}),
    ("POST", "/catalogs/cat/schemas", {"name": "a b"}),
    ("POST", FUNCTIONS, {**F, "definitions": []}),
    ("POST", FUNCTIONS, {**F, "functionType": "ODD", "definitions": [{"returnType": "integer"}]}),
    ("POST", FUNCTIONS, {**F, "definitions": [{"returnType": "integer", "impls": [{"language": "COBOL"}]}]}),
    ("POST", TEMPLATES, {"jobTemplate": {**T, "executable": None}}),
    ("POST", TEMPLATES, {"jobTemplate": {**T, "executable": 5}}),
    ("POST", TEMPLATES, {"jobTemplate": {**T, "arguments": [1]}}),
    ("POST", TEMPLATES, {"jobTemplate": {**T, "name": "a.b/c"}}),
    ("POST", TEMPLATES, {"jobTemplate": "x"}),
    ("POST", "/jobs/runs", {"jobTemplateName": "t", "jobConf": {"a": 1}}),
    ("POST", "/jobs/runs", {}),
    ("GET", "/jobs/runs?sortBy=odd", None),
    ("GET", "/jobs/runs?queuedAfter=yesterday", None),
    ("GET", "/objects/tag/pii/credentials", None),
]


@pytest.mark.parametrize(("method", "path", "body"), BAD)
def test_bad_requests_are_refused_and_write_nothing(lake: Api, method: str, path: str, body: Any) -> None:
    lake.store.job_templates.create("lake.t", type="shell", executable="true")
    before = lake.store.position()
    path, _, query = path.partition("?")
    status, code, name = lake.refused(
        method, f"/metalakes/lake{path}", body, **dict(part.split("=") for part in query.split("&") if part)
    )
    assert (status, code, name) == (400, 1001, "IllegalArgumentException")
    assert lake.store.position() == before


def test_a_huge_body_is_refused_while_it_comes(lake: Api) -> None:
    before = lake.store.position()

    def parts() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(100):
            yield b"x" * (1 << 20)
        yield b'"}'

    try:
        answer = lake.client.post(
            "/api/metalakes/lake/tags", content=parts(), headers={"content-type": "application/json"}
        )
    except httpx.WriteError:  # the server answered and closed before it had read all of it
        pass
    else:
        assert (answer.status_code, answer.json()["code"]) == (413, 1001)
    assert lake.store.position() == before


def test_a_page_in_a_browser_cannot_run_a_command(lake: Api) -> None:
    body = b'{"jobTemplate": {"name": "t", "jobType": "shell", "executable": "true"}}'
    answer = lake.client.post(
        "/api/metalakes/lake/jobs/templates", content=body, headers={"content-type": "text/plain"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, 1001)
    assert not lake.store.job_templates.exists("lake.t")


def test_a_secret_that_the_operator_did_not_name_is_not_shown(lake: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "s3cr3t")
    keys = {
        "credential-providers": "s3-secret-key",
        "s3-access-key-id": "AK",
        "s3-secret-access-key": "secret:env:OTHER_KEY",
    }
    lake.ask("POST", "/metalakes/lake/catalogs", {"name": "k", "type": "fileset", "properties": keys})
    assert lake.refused("GET", "/metalakes/lake/objects/catalog/k/credentials") == (403, 1008, "ForbiddenException")
