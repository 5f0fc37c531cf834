"""The races of the lock tree through REST, on two servers; and what bad requests leave behind: nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import metastore as ms
from metastore.serve.gravitino.credentials import _value
from metastore.serve.gravitino.errors import Refused
from tests.gravitino.conftest import Api
from tests.gravitino.server import Server

pytestmark = pytest.mark.one_in(3)

LAKE = "/api/metalakes/lake"
S = f"{LAKE}/catalogs/cat/schemas/s"
COLUMNS = [{"name": "a", "type": "integer"}]


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
    """Field cases 1, 3, 8, 9, 10, 12 through REST: what holds after each race, whichever request won."""
    with ms.open(postgres_url) as store:
        for turn in range(3):
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


@pytest.mark.parametrize(
    "place", ["secret:file:{}/given/../other", "secret:file:{}/given//k", "secret:file:{}/given/./k"]
)
def test_a_reference_leads_out_of_nothing(sqlite_url: str, tmp_path: Path, place: str) -> None:
    (tmp_path / "given").mkdir()
    for name in ("other", "given/k"):
        (tmp_path / name).write_text("s3cr3t")
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        good = f"secret:file:{tmp_path}/given/k"
        keys = {"good": good, "bad": place.format(tmp_path), "raced": good}
        catalog = store.catalogs.create("lake.k", type="fileset", properties=keys)
        reveals = [f"file:{tmp_path}/given/"]
        assert _value(store, catalog, "good", reveals) == "s3cr3t"
        with pytest.raises(Refused):
            _value(store, catalog, "bad", reveals)
        store.catalogs.alter(catalog, ms.SetProperty("raced", f"secret:file:{tmp_path}/other"))
        with pytest.raises(ms.VersionConflict, match="has changed since it was read"):
            _value(store, catalog, "raced", reveals)


@pytest.mark.parametrize("key", ["metadata_location", "previous_metadata_location"])
def test_no_client_moves_the_metadata_of_a_table(lake: Api, key: str) -> None:
    lake.store.tables.create("lake.cat.s.ice", properties={key: "file:/w/1.json"})
    place = "/metalakes/lake/catalogs/cat/schemas/s/tables"
    for update in (
        {"@type": "setProperty", "property": key, "value": "file:/x"},
        {"@type": "removeProperty", "property": key},
    ):
        found = lake.refused("PUT", f"{place}/ice", {"updates": [update]})
        assert found == (400, 1001, "IllegalArgumentException")
    body = {"name": "new", "columns": COLUMNS, "properties": {key: "file:/x"}}
    assert lake.refused("POST", place, body) == (400, 1001, "IllegalArgumentException")
    assert dict(lake.store.tables.load("lake.cat.s.ice").properties) == {key: "file:/w/1.json"}
