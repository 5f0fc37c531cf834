"""The example service: HTTP's promises, kept by several processes that are killed under load."""

from __future__ import annotations

import itertools
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest

import metastore as ms
from tests.servers.postgres import Databases
from tests.service_example.service import EXAMPLE, Service

CLIENTS = 64
CHANGES = 2
COUNTER = "lake.c.s.counter"


@pytest.fixture(scope="module")
def database(postgres_databases: Databases) -> Iterator[str]:
    """A database with a catalog."""
    url = postgres_databases.create_database()
    ms.migrate(url)
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create(COUNTER, parents=True, properties={"count": "0"})
    yield url
    postgres_databases.drop_database(url)


@pytest.fixture(scope="module")
def services(database: str) -> Iterator[tuple[Service, Service]]:
    """Two processes on one database; what ends one begins another."""
    with Service(database) as first, Service(database) as second:
        yield first, second


@pytest.fixture
def http(services: tuple[Service, Service]) -> Iterator[httpx.Client]:
    """A client of the first process."""
    with httpx.Client(base_url=services[0].address, timeout=30.0) as client:
        yield client


def test_a_tag_is_a_precondition(http: httpx.Client) -> None:
    made = http.post("/v1/tables/lake.c.tagged.t?parents=true", json={"columns": [{"name": "id", "type": "long"}]})
    assert made.status_code == 201
    tag = made.headers["etag"]
    assert http.get("/v1/tables/lake.c.tagged.t", headers={"If-None-Match": tag}).status_code == 304
    changes = [{"change": "AddColumn", "path": "city", "type": "string"}]
    altered = http.patch("/v1/tables/lake.c.tagged.t", json=changes, headers={"If-Match": tag})
    assert altered.status_code == 200
    assert [c["name"] for c in altered.json()["columns"]] == ["id", "city"]
    assert http.get("/v1/tables/lake.c.tagged.t", headers={"If-None-Match": tag}).status_code == 200
    refused = http.patch("/v1/tables/lake.c.tagged.t", json=changes, headers={"If-Match": tag})
    assert refused.status_code == 412
    assert refused.json()["code"] == "version_conflict"
    assert http.request("DELETE", "/v1/tables/lake.c.tagged.t", headers={"If-Match": tag}).status_code == 412


def test_a_tag_does_not_fit_the_table_that_took_the_name(http: httpx.Client) -> None:
    tag = http.post("/v1/tables/lake.c.made_again.t?parents=true", json={}).headers["etag"]
    assert http.delete("/v1/tables/lake.c.made_again.t").json() == {"dropped": True}
    assert http.delete("/v1/tables/lake.c.made_again.t").json() == {"dropped": False}
    http.post("/v1/tables/lake.c.made_again.t?parents=true", json={})
    changes = [{"change": "SetComment", "text": "mine"}]
    assert http.patch("/v1/tables/lake.c.made_again.t", json=changes, headers={"If-Match": tag}).status_code == 412


@pytest.mark.parametrize(
    ("method", "path", "json", "status", "code"),
    [
        ("GET", "/v1/tables/lake.c.s.none", None, 404, "entity_not_found"),
        ("POST", f"/v1/tables/{COUNTER}", {}, 409, "entity_already_exists"),
        ("POST", "/v1/tables/lake.c.s.t", {"colour": "red"}, 400, "invalid_argument"),
        ("POST", "/v1/tables/lake.c.s.t", {"columns": [{"name": "a", "type": "lnog"}]}, 400, "invalid_argument"),
        ("POST", "/v1/tables/lake.c.s.t", {"columns": [{"nam": "a"}]}, 400, "invalid_argument"),
        ("PATCH", f"/v1/tables/{COUNTER}", [{"change": "SetComment", "text": 1}], 400, "invalid_argument"),
        ("GET", "/v1/schemas/lake.c.s/tables?token=forged", None, 400, "invalid_argument"),
        ("GET", "/v1/changes?after=forged", None, 400, "invalid_argument"),
    ],
)
def test_errors_have_a_status_and_a_code(
    http: httpx.Client, method: str, path: str, json: object, status: int, code: str
) -> None:
    answer = http.request(method, path, json=json)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_pages_go_on_in_the_other_process(services: tuple[Service, Service], http: httpx.Client, database: str) -> None:
    with ms.open(database) as store:
        store.schemas.create("lake.c.paged")
        store.tables.create_many("lake.c.paged", [{"name": f"t{n:03}"} for n in range(25)])
    found: list[str] = []
    token: str | None = None
    for service in itertools.cycle(services):
        parameters = {"size": "7", "prefix": "t"} | ({} if token is None else {"token": token})
        page = httpx.get(f"{service.address}/v1/schemas/lake.c.paged/tables", params=parameters).json()
        found += [table["names"][-1] for table in page["items"]]
        token = page["next_token"]
        if token is None:
            break
    assert found == [f"t{n:03}" for n in range(25)]
    seen = http.get("/v1/changes", params={"size": "1000"}).json()["items"]
    assert [change["path_after"] for change in seen][-25:] == [f"lake.c.paged.t{n:03}" for n in range(25)]


class Client:
    """One client: it counts up under If-Match, and repeats what it got no answer to, with the same key."""

    def __init__(self, number: int, services: tuple[Service, Service]) -> None:
        self.number = number
        self._addresses = itertools.cycle([services[number % 2].address, services[(number + 1) % 2].address])
        self._client = httpx.Client(timeout=30.0)

    def close(self) -> None:
        self._client.close()

    def send(self, method: str, path: str, headers: dict[str, str], json: object = None) -> httpx.Response:
        """Send until there is an answer, to one process and then to the other."""
        while True:
            try:
                answer = self._client.request(method, next(self._addresses) + path, headers=headers, json=json)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                return answer

    def merge(self) -> None:
        """Set properties of its own, each once."""
        for n in range(CHANGES):
            change = [{"change": "SetProperty", "key": f"client {self.number} {n}", "value": "done"}]
            headers = {"Idempotency-Key": f"merge {self.number} {n}", "X-User": f"client {self.number}"}
            answer = self.send("PATCH", f"/v1/tables/{COUNTER}", headers, change)
            assert answer.status_code == 200, answer.text

    def count(self) -> int:
        """Add one to the counter, as a read, a decision and a conditional write; return how many tries it took."""
        for tries in itertools.count(1):
            table = self.send("GET", f"/v1/tables/{COUNTER}", {})
            value = str(int(table.json()["properties"]["count"]) + 1)
            headers = {"If-Match": table.headers["etag"], "Idempotency-Key": f"count {self.number} {tries}"}
            change = [{"change": "SetProperty", "key": "count", "value": value}]
            answer = self.send("PATCH", f"/v1/tables/{COUNTER}", headers, change)
            if answer.status_code == 200:
                return tries
            assert answer.status_code == 412, answer.text
        raise AssertionError


@pytest.mark.only_whole
@pytest.mark.slow
def test_each_request_is_applied_once_though_processes_are_killed(
    services: tuple[Service, Service], database: str
) -> None:
    """The counter is the number of clients that counted; every change is one version, by its own client."""
    done = threading.Event()

    def killer() -> int:
        for turn in itertools.count(1):
            for service in services:
                if done.wait(0.7):
                    return turn
                service.kill()
                service.start()
        raise AssertionError

    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        kills = pool.submit(killer)
        clients = [Client(n, services) for n in range(CLIENTS)]
        try:
            for merged in [pool.submit(client.merge) for client in clients]:
                merged.result()
            for counted in [pool.submit(client.count) for client in clients[:8]]:
                counted.result()
        finally:
            done.set()
            for client in clients:
                client.close()
    assert kills.result() >= 1
    with ms.open(database) as store:
        table = store.tables.load(COUNTER)
        assert table.properties["count"] == "8"
        assert len(table.properties) == 1 + CLIENTS * CHANGES
        versions = list(store.tables.history(table))
        assert len(versions) == 1 + CLIENTS * CHANGES + 8
        assert len({version.operation_id for version in versions}) == len(versions)
        assert store.verify() == []
        store.gc(retention=timedelta(days=7))


@pytest.mark.slow
def test_a_process_that_is_asked_to_end_answers_what_it_accepted(
    services: tuple[Service, Service], database: str
) -> None:
    """What is in the database is what was acknowledged, no more and no less."""
    service = services[0]
    acknowledged: list[str] = []
    busy = threading.Barrier(17)

    def client(number: int) -> None:
        with httpx.Client(base_url=service.address, timeout=60.0) as http:
            for n in itertools.count():
                name = f"t{number}_{n}"
                try:
                    answer = http.post(f"/v1/tables/lake.c.ended.{name}?parents=true", json={})
                except httpx.TransportError:
                    return  # it was not accepted
                assert answer.status_code == 201, answer.text
                acknowledged.append(name)
                if n == 1:
                    busy.wait()

    with ThreadPoolExecutor(16) as pool:
        running = [pool.submit(client, number) for number in range(16)]
        busy.wait(timeout=120)
        assert service.terminate() in (0, -signal.SIGTERM)  # uvicorn ends itself with the signal when all is answered
        for one in running:
            one.result()
    service.start()
    with ms.open(database) as store:
        assert sorted(store.tables.names("lake.c.ended")) == sorted(acknowledged)


def test_the_example_reaches_no_further_than_the_public_surface() -> None:
    """A reader who copies it needs nothing but ``import metastore``, and its router."""
    text = (EXAMPLE / "app.py").read_text(encoding="utf-8")
    assert re.findall(r"(?:from|import) metastore\.(\w+)", text) == ["http"]
