"""Ask through the two REST servers: what they list, show and change for a user is what the rules say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import ViewVersion

from metastore import Store
from metastore.pyiceberg.views import new_view_metadata
from metastore.serve import Principals, application
from tests.governance.oracle.rules import Thing
from tests.governance.oracle.sweep import answer, some
from tests.governance.oracle.world import World
from tests.iceberg.server import running

__all__ = ["Served", "icebergs", "serving"]

_SOME = 4
"""How many things of each kind a round shows, and changes."""
_FOUND = {200: "done", 204: "done", 403: "denied", 404: "hidden"}
_LEAVES = {kind: f"{kind}s" for kind in ("table", "view", "fileset", "topic", "model", "function")}
_UNDER = {"catalog": "catalogs", "schema": "schemas", **_LEAVES, "tag": "tags", "policy": "policies"}
"""Where Gravitino's server has what of each kind."""
_ICEBERG = ("table", "view")

Decisions = Iterator[tuple[str, object, object]]
Request = Callable[..., httpx.Response]


class Served:
    """Both servers, behind a function that sends a request."""

    def __init__(self, request: Request) -> None:
        self._send = request
        self.made = 0
        """How many decisions came from the servers."""
        self.answers: set[object] = set()

    def __call__(self, world: World, user: str) -> Decisions:
        """Ask both servers as a user."""
        for way in (self._lists, self._things, self._namespaces, self._icebergs):
            for decision in way(world, user):
                self.made += 1
                self.answers.add(decision[2])
                yield decision

    def _lists(self, world: World, user: str) -> Decisions:
        """List the children of each container that the user sees, through Gravitino's protocol."""
        rules = world.rules
        for parent in (None, *_there(world, "metalake", "catalog", "schema")):
            kinds = {None: ("metalake",), "metalake": ("catalog", "tag", "policy"), "catalog": ("schema",)}
            for kind in kinds.get(None if parent is None else parent.kind, tuple(_LEAVES)):
                where = "/api/metalakes" if parent is None else f"{_url(world, parent)}/{_UNDER[kind]}"
                told = self._get(where, user)
                if parent is not None and not rules.sees(user, parent.id):
                    yield f"GET {where}", told.status_code, 404
                    continue
                names = {_name(one) for one in next(iter(_lists(told.json())), [])}
                for one in rules.below(None):
                    if one.kind == kind and one.parent == (None if parent is None else parent.id):
                        yield f"GET {where}: {one.name}", one.name in names, rules.sees(user, one.id)

    def _things(self, world: World, user: str) -> Decisions:
        """Show and change some things, at Gravitino's."""
        rules = world.rules
        for kind in ("metalake", *_UNDER):
            for one in some(world, user, _there(world, kind), _SOME):
                url = _url(world, one)
                sees = "done" if rules.sees(user, one.id) else "hidden"
                yield f"GET {url}", _found(self._get(url, user)), sees
                change = {"@type": "updateComment", "newComment": str(world.chance.random())}
                if kind == "schema":
                    change = {"@type": "setProperty", "property": "n", "value": change["newComment"]}
                told = self._send("PUT", url, user, {"updates": [change]})
                yield f"PUT {url}", _found(told), answer(world, user, "alter", one.id)
        for one in some(world, user, _there(world, *_LEAVES), 2):
            wanted = answer(world, user, "drop", one.id)
            told = self._send("DELETE", _url(world, one), user)
            dropped = told.status_code == 200 and told.json()["dropped"]
            if dropped and wanted == "done":
                one.live = False
            yield (
                f"DELETE {_url(world, one)}",
                "hidden" if told.status_code == 200 and not dropped else _found(told),
                wanted,
            )

    def _namespaces(self, world: World, user: str) -> Decisions:
        """List, show and change namespaces, at Iceberg's."""
        rules = world.rules
        for parent in rules.below(None):
            if parent.kind not in ("catalog", "schema") or not rules.sees(user, rules.way(parent.id)[1]):
                continue
            prefix, names = _namespace(world, parent)
            below = f"?parent={quote(chr(31).join(names))}" if names else ""
            told = self._get(f"/iceberg/v1/{prefix}/namespaces{below}", user)
            if not rules.sees(user, parent.id):
                yield f"namespaces of {rules.path(parent.id)}", told.status_code, 404
                continue
            shown = {tuple(one) for one in told.json()["namespaces"]}
            for one in rules.below(None):
                if one.kind == "schema" and one.parent == parent.id:
                    found = (*names, one.name) in shown
                    yield f"namespaces of {rules.path(parent.id)}: {one.name}", found, rules.sees(user, one.id)
        schemas = [one for one in rules.below(None) if one.kind == "schema"]
        for one in some(world, user, schemas, _SOME):
            prefix, names = _namespace(world, one)
            url = f"/iceberg/v1/{prefix}/namespaces/{quote(chr(31).join(names))}"
            yield f"GET {url}", _found(self._get(url, user)), "done" if rules.sees(user, one.id) else "hidden"
            body = {"removals": [], "updates": {"n": str(world.chance.random())}}
            told = self._send("POST", f"{url}/properties", user, body)
            yield f"POST {url}/properties", _found(told), answer(world, user, "alter", one.id)

    def _icebergs(self, world: World, user: str) -> Decisions:
        """List, show and change tables and views, at Iceberg's."""
        rules = world.rules
        live = rules.below(None)
        for parent in some(world, user, [one for one in live if one.kind == "schema"], _SOME):
            prefix, names = _namespace(world, parent)
            for kind in _ICEBERG:
                url = f"/iceberg/v1/{prefix}/namespaces/{quote(chr(31).join(names))}/{kind}s"
                told = self._get(url, user)
                if not rules.sees(user, parent.id):
                    yield f"GET {url}", told.status_code, 404
                    continue
                shown = {one["name"] for one in told.json()["identifiers"]}
                for one in live:
                    if (one.kind, one.parent) == (kind, parent.id):
                        yield f"GET {url}: {one.name}", one.name in shown, rules.sees(user, one.id)
        for kind in _ICEBERG:
            for one in some(world, user, [one for one in live if one.kind == kind], _SOME):
                prefix, names = _namespace(world, one)
                url = f"/iceberg/v1/{prefix}/namespaces/{quote(chr(31).join(names[:-1]))}/{kind}s/{names[-1]}"
                sees = "done" if rules.sees(user, one.id) else "hidden"
                for method in ("HEAD", "GET"):
                    yield f"{method} {url}", _found(self._send(method, url, user)), sees
                update = {"action": "set-properties", "updates": {"n": str(world.chance.random())}}
                told = self._send("POST", url, user, {"requirements": [], "updates": [update]})
                yield f"POST {url}", _found(told), answer(world, user, "alter", one.id)

    def _get(self, url: str, user: str) -> httpx.Response:
        return self._send("GET", url, user)


@contextmanager
def serving(store: Store, folder: Path, *, real: bool = False) -> Iterator[Served]:
    """Serve a store by both protocols, in this process, or ``real``: over a socket. Files lie in ``folder``."""
    app = application(
        store, principals=Principals(header="X-User"), authorization=True, allowed_locations=[str(folder)]
    )
    with ExitStack() as stack:
        transport: Any = httpx.ASGITransport(app)
        port = 80
        if real:
            transport, (_, port) = None, stack.enter_context(running(app))
        runner = stack.enter_context(asyncio.Runner())
        client = httpx.AsyncClient(transport=transport, base_url=f"http://localhost:{port}")

        def send(method: str, url: str, user: str, body: object = None) -> httpx.Response:
            return runner.run(client.request(method, url, json=body, headers={"X-User": user}))

        yield Served(send)
        runner.run(client.aclose())


def icebergs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of tables and views that Iceberg's server shows: all have one metadata file each."""
    columns = Schema(NestedField(1, "n", LongType()))
    table = new_table_metadata(columns, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, f"{folder}/files")
    query = {"type": "sql", "sql": "SELECT 1", "dialect": "spark"}
    version: dict[str, Any] = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "default-namespace": ["s"],
    }
    version["representations"] = [query]
    view = new_view_metadata(f"{folder}/files", columns, ViewVersion(**version), {})
    fields = {}
    for kind, metadata in (("table", table), ("view", view)):
        file = folder / f"{kind}.metadata.json"
        file.write_text(metadata.model_dump_json(by_alias=True, exclude_none=True))
        fields[kind] = {"properties": {"metadata_location": str(file)}}
    return {**fields, "table": {**fields["table"], "format": "iceberg"}}


def _there(world: World, *kinds: str) -> Iterator[Thing]:
    """Yield the live entities of these kinds that Gravitino's paths can name: not what is in a schema of a schema."""
    for one in world.rules.below(None):
        depth = len(world.rules.way(one.id))
        if one.kind in kinds and depth == {"metalake": 1, "schema": 3, "table": 4}.get(one.kind, 2):
            yield one


def _url(world: World, thing: Thing) -> str:
    way = [world.rules.things[one] for one in world.rules.way(thing.id)]
    return "/api/metalakes/" + "/".join(
        [way[0].name, *[part for one in way[1:] for part in (_UNDER[one.kind], one.name)]]
    )


def _namespace(world: World, thing: Thing) -> tuple[str, list[str]]:
    names = [world.rules.things[one].name for one in world.rules.way(thing.id)]
    return quote(".".join(names[:2])), names[2:]


def _lists(body: Any) -> Iterator[list[Any]]:
    return (one for one in body.values() if isinstance(one, list))


def _name(one: Any) -> str:
    return str(one if isinstance(one, str) else one["name"])


def _found(told: httpx.Response) -> str:
    return _FOUND.get(told.status_code, f"{told.status_code}: {told.text[:200]}")
