"""Every error class through the example's HTTP, and those that a request can cause, caused by requests."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import metastore as ms
from metastore.errors import for_clients
from tests.service_example.service import EXAMPLE, Service
from tests.unit.test_errors import PLAIN, SAMPLES

ERRORS = [*SAMPLES, *(cls("why") for cls in sorted(PLAIN, key=lambda cls: cls.__name__))]


@pytest.fixture(scope="module")
def app() -> Any:
    """The example's application, with a route that raises each error."""
    spec = importlib.util.spec_from_file_location("catalog_service", EXAMPLE / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def fail(number: int) -> None:
        raise ERRORS[number]

    module.app.get("/fail/{number}")(fail)
    return module.app


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=lambda n: type(ERRORS[n]).__name__)
def test_every_error_has_its_status_code_and_delay(app: Any, number: int) -> None:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(f"/fail/{number}")

    error, answer = ERRORS[number], asyncio.run(ask())
    assert answer.status_code == error.http_status
    said, shown = answer.json(), error.to_dict()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (said["status"], said["detail"]) == (shown["http_status"], for_clients(error))
    assert {name: said[name] for name in ("code", "retry_after", "details")} == {
        name: shown[name] for name in ("code", "retry_after", "details")
    }
    delay = answer.headers.get("retry-after")
    assert (delay is None) == (error.retry_after is None)
    assert delay is None or int(delay) >= 1


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a real process, whose database has a table and a disabled catalog."""
    url = f"sqlite:///{tmp_path_factory.mktemp('service') / 'all.db'}"
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.catalogs.create("lake.off", type="relational")
        store.tables.create("lake.off.s.t", parents=True)
        store.catalogs.disable("lake.off")
    with Service(url) as service, httpx.Client(base_url=service.address, timeout=30.0) as client:
        yield client


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_key_with_another_body_is_refused(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "same"}
    first = http.post("/v1/tables/lake.c.s.once?parents=true", json={"comment": "one"}, headers=key)
    again = http.post("/v1/tables/lake.c.s.once?parents=true", json={"comment": "one"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    other = http.post("/v1/tables/lake.c.s.once?parents=true", json={"comment": "two"}, headers=key)
    assert said(other) == (422, "operation_id_reused")
    of_another = http.post("/v1/tables/lake.c.s.twice?parents=true", json={}, headers={**key, "X-User": "ben"})
    assert of_another.status_code == 201, "a key is of its user"


def test_what_is_below_a_disabled_catalog_is_not_in_use(http: httpx.Client) -> None:
    changes = [{"change": "SetComment", "text": "no"}]
    assert said(http.patch("/v1/tables/lake.off.s.t", json=changes)) == (409, "not_in_use")


def test_a_mismatch_of_if_match_is_412_and_says_what_was_found(http: httpx.Client) -> None:
    tag = http.post("/v1/tables/lake.c.s.tagged?parents=true", json={}).headers["etag"]
    changes = [{"change": "SetComment", "text": "first"}]
    assert http.patch("/v1/tables/lake.c.s.tagged", json=changes, headers={"If-Match": tag}).status_code == 200
    late = http.patch("/v1/tables/lake.c.s.tagged", json=changes, headers={"If-Match": tag})
    assert said(late) == (412, "version_conflict")
    details = late.json()["details"]
    assert (details["expected"], details["found"]) == (1, 2)
    broken = http.patch("/v1/tables/lake.c.s.tagged", json=changes, headers={"If-Match": "no tag"})
    assert said(broken) == (412, "version_conflict")


def test_a_forged_path_is_a_bad_request(http: httpx.Client) -> None:
    assert said(http.get("/v1/tables/lake..t")) == (400, "invalid_argument")
    assert said(http.get("/v1/tables/`")) == (400, "invalid_argument")
