"""The router: what HTTP promises, with a store in memory behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from functools import partialmethod
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import metastore as ms
import metastore.http
from metastore.backends.sqlite.connect import DRIVER
from metastore.http.etags import Tags, tags_in

COMMENT = [{"change": "SetComment", "text": "new"}]
TABLE = "/v1/tables/lake.c.s.t"


def test_a_router_serves_a_store_or_a_function() -> None:
    with pytest.raises(ms.InvalidArgument, match=r"or a function .* not 5"):
        metastore.http.router(5)  # type: ignore[arg-type]


class Http:
    """A client of an application in this process."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    get, post = partialmethod(request, "GET"), partialmethod(request, "POST")
    patch, delete = partialmethod(request, "PATCH"), partialmethod(request, "DELETE")


@pytest.fixture
def store() -> Iterator[ms.Store]:
    with ms.open("memory://") as opened:
        opened.metalakes.create("lake")
        opened.catalogs.create("lake.c", type="relational")
        opened.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("id", "long")])
        yield opened


@pytest.fixture
def http(store: ms.Store) -> Http:
    def view(request: Request) -> ms.Store:
        return store.bind(principal=request.headers.get("x-user", "nobody"))

    return Http(Starlette(routes=[Mount("/v1", metastore.http.router(view))]))


def code(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["type"] == f"urn:metastore:{said['code']}"
    return answer.status_code, said["code"]


@pytest.mark.parametrize(
    ("header", "meaning"),
    [
        (None, None),
        ("*", Tags(True, (), ())),
        ('"7-3"', Tags(False, ((7, 3),), ())),
        ('W/"7-3" , "7-4","8-1"', Tags(False, ((7, 4), (8, 1)), ((7, 3),))),
        ('"of another", no tag, "7-3-1"', Tags(False, (), ())),
    ],
)
def test_what_a_header_says(header: str | None, meaning: Tags | None) -> None:
    assert tags_in(header) == meaning


def test_a_write_under_a_tag(http: Http, store: ms.Store) -> None:
    tag = http.get(TABLE).headers["etag"]
    for given in ("{tag}", '"1-1", {tag}', "*"):
        header = given.format(tag=tag)
        done = http.patch(TABLE, json=[{"change": "SetComment", "text": header}], headers={"If-Match": header})
        assert done.status_code == 200, done.text
        assert done.json()["comment"] == header
        tag = done.headers["etag"]
    for header in ('"1-1"', f"W/{tag}", "what is this", f'"{store.tables.load("lake.c.s.t").id}-1"'):
        assert code(http.patch(TABLE, json=COMMENT, headers={"If-Match": header})) == (412, "version_conflict")
        assert code(http.delete(TABLE, headers={"If-Match": header})) == (412, "version_conflict")
    assert code(http.patch(f"{TABLE}x", json=COMMENT, headers={"If-Match": "*"})) == (404, "entity_not_found")
    assert code(http.delete(f"{TABLE}x", headers={"If-Match": "*"})) == (412, "version_conflict")
    assert http.delete(TABLE, headers={"If-Match": tag}).json() == {"dropped": True}
    assert http.delete(TABLE).json() == {"dropped": False}


def test_no_precondition_is_passed_over(http: Http, store: ms.Store) -> None:
    """A create replaces what is there, when asked to: not under a tag that it does not check."""
    replace, old = f"{TABLE}?if_exists=replace", http.get(TABLE).headers["etag"]
    http.patch(TABLE, json=COMMENT)
    for headers in ({"If-Match": old}, {"If-None-Match": old}):
        assert code(http.post(replace, json={}, headers=headers)) == (400, "invalid_argument")
    for way in ("replace", "return", "error"):
        answer = http.post(f"{TABLE}?if_exists={way}", json={}, headers={"If-None-Match": "*"})
        assert code(answer) == (412, "version_conflict")
    for method, path, body in (
        ("PATCH", TABLE, COMMENT),
        ("DELETE", TABLE, None),
        ("POST", f"{TABLE}/rename", {"to": "u"}),
    ):
        answer = http.request(method, path, json=body, headers={"If-None-Match": "*"})
        assert code(answer) == (400, "invalid_argument")
    assert store.tables.load("lake.c.s.t").comment == "new"


def test_a_new_entity_names_all_that_its_kind_needs(http: Http) -> None:
    for kinds, missing in (("catalogs", "type"), ("job_templates", "executable, type"), ("jobs", "template")):
        answer = http.post(f"/v1/{kinds}/lake.x", json={"comment": "c"})
        assert (answer.status_code, f"missing fields: {missing}" in answer.text) == (400, True), answer.text


def test_odd_values_are_bad_requests(http: Http) -> None:
    assert code(http.get(f"/v1/metalakes?size={'9' * 5000}")) == (400, "invalid_argument")
    odd = http.post("/v1/policies/lake.p", content='{"content": {"a": "\\ud800"}}')
    assert code(odd) == (400, "invalid_argument")


@pytest.mark.parametrize("header", ["{tag}", '"1-1", {tag}', '{tag}, "{id}-9"', "*"])
def test_a_repeat_gets_what_the_first_got_whatever_happened_since(http: Http, store: ms.Store, header: str) -> None:
    table = store.tables.load("lake.c.s.t")
    tag = http.get(TABLE).headers["etag"]
    headers = {"If-Match": header.format(tag=tag, id=table.id), "Idempotency-Key": "k"}
    first = http.patch(TABLE, json=COMMENT, headers=headers)
    assert first.status_code == 200, first.text
    store.tables.alter("lake.c.s.t", ms.SetComment("later"))
    if header != "*":  # a path means what is there now
        store.tables.rename("lake.c.s.t", "elsewhere")
    again = http.patch(TABLE, json=COMMENT, headers=headers)
    assert (again.status_code, again.json(), again.headers["etag"]) == (200, first.json(), first.headers["etag"])
    other = [{"change": "SetComment", "text": "of another request"}]
    assert code(http.patch(TABLE, json=other, headers=headers)) == (422, "operation_id_reused")
    mine = http.patch(TABLE, json=COMMENT, headers={**headers, "X-User": "ann"})
    assert mine.status_code in (200, 404, 412)  # another user's key is another key
    assert len(list(store.tables.history(table))) == 4


def test_a_repeated_drop_under_a_tag(http: Http, store: ms.Store) -> None:
    headers = {"If-Match": http.get(TABLE).headers["etag"], "Idempotency-Key": "k"}
    for _ in range(2):
        assert http.delete(TABLE, headers=headers).json() == {"dropped": True}
    assert code(http.delete("/v1/tables/lake.c.s.other", headers=headers)) == (404, "entity_not_found")
    store.tables.create("lake.c.s.t")
    assert http.delete(TABLE, headers=headers).json() == {"dropped": True}
    assert store.tables.exists("lake.c.s.t")  # it has another id


def test_create(http: Http, store: ms.Store) -> None:
    body = {
        "columns": [{"name": "a", "type": "int"}],
        "properties": {"k": "v"},
        "indexes": [{"name": "p", "columns": ["a"]}],
    }
    made = http.post(
        "/v1/tables/lake.c.new.t?parents=true", json=body, headers={"X-User": "ann", "Idempotency-Key": "k"}
    )
    assert (made.status_code, made.json()["created_by"]) == (201, "ann")
    again = http.post(
        "/v1/tables/lake.c.new.t?parents=true", json=body, headers={"X-User": "ann", "Idempotency-Key": "k"}
    )
    assert (again.status_code, again.json()) == (201, made.json())
    assert http.post("/v1/tables/lake.c.new.t?if_exists=return", json=body).json()["id"] == made.json()["id"]
    assert code(http.post("/v1/tables/lake.c.new.t", json=body)) == (409, "entity_already_exists")
    new = {"If-None-Match": "*"}
    assert code(http.post("/v1/tables/lake.c.new.t", json=body, headers=new)) == (412, "version_conflict")
    for headers in ({"If-Match": '"1-1"'}, {"If-Match": "*"}, {"If-None-Match": '"1-1"'}):
        late = http.post("/v1/tables/lake.c.new.t?if_exists=replace", json={"comment": "late"}, headers=headers)
        assert code(late) == (400, "invalid_argument")  # what a client asks to be checked is checked, or refused
    wrong: object
    for wrong in ({"principal": "eve"}, {"columns": [{"nam": "a"}]}, [], {"colour": 1}):
        assert code(http.post("/v1/tables/lake.c.s.x", json=wrong)) == (400, "invalid_argument")
    assert code(http.post("/v1/tables/lake.c.s.x", content=b"{")) == (400, "invalid_argument")
    definition: dict[str, object] = {"parameters": [{"name": "a", "type": "int"}], "returns": "int"}
    definition["implementations"] = [{"language": "sql", "body": "a + 1"}]
    assert http.post("/v1/functions/lake.c.s.f", json={"definitions": [definition]}).status_code == 201
    view = {"representations": [{"dialect": "spark", "text": "select 1"}]}
    assert http.post("/v1/views/lake.c.s.v", json=view).json()["representations"] == view["representations"]
    assert http.post("/v1/policies/lake.p", json={"content": {"days": 7}}).json()["content"] == {"days": 7}
    assert store.tables.load("lake.c.new.t").to_dict() == made.json()


def test_pages(http: Http, store: ms.Store) -> None:
    store.tables.create_many("lake.c.s", [{"name": f"u{n}"} for n in range(5)])
    first = http.get("/v1/schemas/lake.c.s/tables", params={"size": "2", "prefix": "u"}).json()
    assert [one["names"][-1] for one in first["items"]] == ["u0", "u1"]
    rest = http.get("/v1/schemas/lake.c.s/tables", params={"prefix": "u", "token": first["next_token"]}).json()
    assert ([one["names"][-1] for one in rest["items"]], rest["next_token"]) == (["u2", "u3", "u4"], None)
    assert [one["path"] for one in http.get("/v1/metalakes").json()["items"]] == ["lake"]
    assert [one["action"] for one in http.get(f"{TABLE}/history").json()["items"]] == ["create"]
    changes = http.get("/v1/changes", params={"kinds": "table", "under": "lake.c.s", "size": "3"}).json()
    assert [one["kind"] for one in changes["items"]] == ["table"] * len(changes["items"])
    for path in (
        "/v1/schemas/lake.c.s/tables?token=forged",
        "/v1/changes?after=forged",
        "/v1/metalakes?size=x",
        f"/v1/metalakes?size={'9' * 5000}",
    ):
        assert code(http.get(path)) == (400, "invalid_argument")
    store.schemas.create("lake.c.s.t")  # a table has this path too
    assert code(http.get("/v1/changes?under=lake.c.s.t")) == (400, "invalid_argument")
    shared = http.get("/v1/changes?under=lake.c.s.t&kind=table").json()["items"]
    assert [one["kind"] for one in shared] == ["table"]
    assert code(http.get("/v1/tabels/lake.c.s.t")) == (404, "entity_not_found")


def test_what_is_kept_and_names_with_slashes(http: Http, store: ms.Store) -> None:
    tag = http.get(TABLE).headers["etag"]
    for seen in (tag, f"W/{tag}", f'"1-1", W/{tag}', "*"):
        kept = http.get(TABLE, headers={"If-None-Match": seen})
        assert (kept.status_code, kept.headers["etag"], kept.content) == (304, tag, b"")
    assert http.get(TABLE, headers={"If-None-Match": '"1-1"'}).status_code == 200
    store.tables.create(("lake", "c", "s", "a/b"))
    assert http.get("/v1/tables/lake.c.s.a%2Fb").json()["names"][-1] == "a/b"
    moved = http.post(f"{TABLE}/rename", json={"to": "u"}, headers={"If-Match": tag})
    assert moved.json()["path"] == "lake.c.s.u"
    assert code(http.post("/v1/tables/lake.c.s.u/rename", json={})) == (400, "invalid_argument")


def test_a_slash_in_a_name_is_no_part_of_the_address(http: Http, store: ms.Store) -> None:
    """A table may have the name of a history, a rename or a page of children."""
    names = ["history", "rename", "x/history", "x/rename", "x/columns", "x/tables"]
    for name in names:
        made = http.post(f"/v1/tables/lake.c.s.{quote(name, safe='')}", json={})
        assert (made.status_code, made.json()["names"][-1]) == (201, name)
    for name in names:
        where = f"/v1/tables/lake.c.s.{quote(name, safe='')}"
        assert http.get(where).json()["names"][-1] == name
        assert http.get(f"{where}/history").json()["items"][0]["action"] == "create"
        moved = http.post(f"{where}/rename", json={"to": f"{name}/history"})
        assert moved.json()["names"][-1] == f"{name}/history"
    assert len(list(store.tables.names("lake.c.s"))) == 1 + len(names)


def test_a_client_says_how_long_it_waits(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[float]()
    bind = ms.Store.bind

    def noted(self: ms.Store, **options: Any) -> ms.Store:
        seen.append(options["deadline"])
        return bind(self, **options)

    monkeypatch.setattr(ms.Store, "bind", noted)
    client = Http(metastore.http.router(store, deadline=5))
    for prefer in ("wait=2", "respond-async, Wait=99", "return=minimal; wait=0", "waiting=3"):
        client.get("/tables/lake.c.s.t", headers={"Prefer": prefer})
    assert seen == [2.0, 5.0, 0.001, 5.0]
    with pytest.raises(ms.InvalidArgument):
        metastore.http.router(store, deadline=0)


def test_a_large_body_has_a_bound_of_values(http: Http) -> None:
    """To make seven million Python objects of JSON stopped all threads for 0.6 s. A text is one value."""
    crowded = http.post("/v1/schemas/lake.c.x", content=b'{"comment":[' + b"1," * 200_000 + b"1]}")
    assert (crowded.status_code, "more than 100,000 values" in crowded.text) == (400, True)
    text = "a, [b], " * 20_000
    assert http.post("/v1/schemas/lake.c.x", json={"comment": text}).json()["comment"] == text
    for number in (b"NaN", b"1e400", b"-1e400"):
        assert "not JSON" in http.post("/v1/schemas/lake.c.y", content=b'{"comment": ' + number + b"}").text


def test_what_has_no_route_is_a_problem_too(http: Http) -> None:
    reads, all_of_them = "GET, HEAD", "DELETE, GET, HEAD, PATCH, POST"
    for method, path, allowed in (
        ("PUT", TABLE, all_of_them),
        ("POST", "/v1/tables", reads),
        ("X", "/v1/changes", reads),
    ):
        answer = http.request(method, path)
        assert (answer.headers["content-type"], answer.headers["allow"]) == ("application/problem+json", allowed)
        assert code(answer) == (405, "method_not_allowed")
    assert code(http.get("/v1/")) == (404, "entity_not_found")


def test_a_problem_of_the_database_does_not_say_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    answer = metastore.http.problem(ms.BackendUnavailable("cannot connect to PostgreSQL at db.internal.example:5432"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert b"backend_unavailable" in bytes(answer.body)
    assert b"internal" not in bytes(answer.body)
    assert "db.internal.example" in caplog.text


def test_an_error_of_a_late_call_names_no_file(sqlite_url: str) -> None:
    """The router and both protocols pass it on."""
    file = sqlite_url.removeprefix("sqlite:///")
    with ms.open(sqlite_url, deadline=0.1) as store, closing(DRIVER.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ms.DeadlineExceeded, match="others wrote to the database until") as raised:
            store.leases.acquire("a", ttl=5.0, timeout=0.1)
        other.execute("ROLLBACK")
    assert file not in str(raised.value)
