"""Each route of both servers, and each page of the console, asked by a user for what it does not see.

The routes are found by looking, so that a new one is tried by itself. An answer shows nothing hidden, a request changes
nothing, and none is a defect of the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyiceberg", reason="needs the extra [serve]")

import httpx
from starlette.routing import Mount

import metastore as ms
from metastore.serve import Principals, application
from metastore.serve.console.pages import PAGES
from metastore.serve.web import Protocol, Route
from tests.governance.test_fuzz_of_methods import MARK, World
from tests.iceberg.test_rest import SCHEMA

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "prefix": ("m.c",),
    "namespace": ("s",),
    "metalake": ("m", "other"),
    "catalog": ("c", "far"),
    "schema": ("s",),
    "table": ("denied", "ice"),
    "view": ("view1",),
    "type": ("table", "catalog"),
    "object": ("c.s.denied", "far"),
    "version": ("0",),
    "alias": ("a",),
    "partition": ("p",),
    "plan": ("1",),
}
"""What each parameter of a path gets in turn; others get the one that the world has."""
HIDDEN: Final = (
    ("m.c.s.denied", "table"),
    ("m.c.s", "schema"),
    ("m.far", "catalog"),
    ("m", "metalake"),
    ("m.role1", "role"),
)
"""The objects of the console's pages: the user sees some of them, and nothing below them."""
QUERIES: Final = ("", "?details=true", "?force=true&cascade=true&purge=true&purgeRequested=true&list=true")
NAME: Final = {"namespace": ["s"], "name": "ice"}
CHANGE: Final = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
BODY: Final = {
    **CHANGE,
    "name": "denied",
    "type": "relational",
    "provider": "hive",
    "schema": SCHEMA,
    "namespace": ["s"],
    "removals": [MARK],
    "metadata-location": "",
    "source": NAME,
    "destination": {"namespace": ["s"], "name": "mine"},
    "table-changes": [{"identifier": NAME, **CHANGE}],
    "inUse": False,
    "enable": False,
    "roleNames": ["narrow"],
    "privileges": [{"name": "select_table", "condition": "ALLOW"}],
    "tagsToAdd": ["tag1"],
    "policiesToAdd": ["policy1"],
    "names": [f"custom-{MARK}"],
    "uri": "u",
    "jobTemplateName": "job_template1",
    "jobConf": {},
    "columns": [],
    "report-type": "scan-report",
}
"""One body with a field of each request."""
UPDATES: Final = (
    [{"@type": "rename", "newName": "mine"}],
    [{"@type": "updateComment", "newComment": "mine"}],
    [{"@type": "setProperty", "property": "k", "value": "v"}],
)


def _routes(app: Any) -> Iterator[tuple[str, Route]]:
    for mount in app._app.routes:
        if isinstance(mount, Mount) and isinstance(mount.app, Protocol):
            for routes in mount.app._routes.values():
                yield from ((mount.path, one) for one in routes)


def _paths(prefix: str, one: Route) -> Iterator[str]:
    """Yield paths of a route to what is hidden."""
    words = [part[1:-1] for part in one.segments if part.startswith("{")]
    for values in product(*[NAMES.get(word, (f"{word}1",)) for word in words]):
        given = iter(values)
        yield "/".join([prefix, *[next(given) if part.startswith("{") else part for part in one.segments]])


def _bodies(method: str) -> list[Any]:
    if method in ("GET", "HEAD", "DELETE"):
        return [None]
    return [BODY, *[{"updates": updates} for updates in UPDATES], {"updates": {f"custom-{MARK}": 1}}]


@asynccontextmanager
async def _asked(app: Any, user: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={"X-User": user}) as client:
        yield client


async def _tried(app: Any, user: str, every: int) -> dict[str, int]:
    """Ask each route as a user, with every n-th of its requests; return how often each status came."""
    statuses: dict[str, int] = {}
    async with _asked(app, user) as client:
        for number, (prefix, one) in enumerate(_routes(app)):
            requests = list(product(_paths(prefix, one), _bodies(one.method), QUERIES))
            for path, body, query in requests[number % min(every, len(requests)) :: every]:
                answer = await client.request(one.method, path + query, json=body)
                call = (one.method, path + query, body, answer.status_code, answer.text[:300])
                assert MARK not in answer.text.replace(f"custom-{MARK}", ""), call
                assert answer.status_code < 500, call
                statuses[str(answer.status_code)] = statuses.get(str(answer.status_code), 0) + 1
    return statuses


def _pages(world: World) -> Iterator[str]:
    """Yield addresses of the console's pages, each asked for what is hidden, by each of its parameters."""
    operation = next(one.operation_id for one in world.store.changes() if MARK in str(one.path_after))
    for page in PAGES:
        where = f"/console/{'' if page == 'place' else page}"
        yield where
        for path, kind in HIDDEN:
            for more in ("", "&tab=dropped", "&tab=history", "&at=1", "&to=1", "&a=1&b=2", "&privilege=use_catalog"):
                yield f"{where}?path={path}&under={path}&kind={kind}&of={path}{more}"
        yield from (f"{where}?{query}" for query in (f"id={operation}", "q=*", "by=root", "kinds=table", "user=user1"))


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_no_page_of_the_console_shows_what_is_hidden(sqlite_url: str, every: int) -> None:
    with ms.open(sqlite_url, admins=["root"]) as store:
        world = World(store)
        app = application(store, principals=Principals(header="X-User"), authorization=True)

        async def asked(user: str) -> dict[str, Any]:
            async with _asked(app, user) as client:
                return {address: await client.get(address) for address in [*_pages(world)][::every]}

        told = asyncio.run(asked("eve"))
        for address, answer in told.items():
            assert answer.status_code in (200, 400, 403, 404), address
            assert MARK not in answer.text, address
        assert {200, 404} <= {answer.status_code for answer in told.values()}
        assert any(MARK in answer.text for answer in asyncio.run(asked("root")).values())  # the negative control


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.long)])
def test_a_client_is_shown_nothing_hidden_and_changes_nothing(sqlite_url: str, tmp_path: Path, every: int) -> None:
    with ms.open(sqlite_url, admins=["root"]) as store:
        world = World(store)
        app = application(
            store,
            warehouses={"m.c": f"file://{tmp_path}/lake"},
            principals=Principals(header="X-User"),
            authorization=True,
        )

        async def grow() -> None:
            async with _asked(app, "root") as client:
                body = {"name": "ice", "schema": SCHEMA, "properties": {MARK: "1"}}
                made = await client.post("/iceberg/v1/m.c/namespaces/s/tables", json=body)
                assert made.status_code == 200, made.text
                assert MARK in (await client.get("/api/metalakes/m/catalogs/c/schemas/s/tables/denied")).text

        asyncio.run(grow())
        store.roles.grant("m.narrow", "select_table", "m.c.s.ice", effect="deny", kind="table")
        before, files = world.versions(), sorted(tmp_path.rglob("*"))
        statuses = asyncio.run(_tried(app, "eve", every))
        assert world.versions() == before
        assert [path for path in sorted(tmp_path.rglob("*")) if "lake" in path.parts] == [
            path for path in files if "lake" in path.parts
        ]
        assert store.verify() == []
    assert {"200", "403", "404"} <= set(statuses), json.dumps(statuses)
