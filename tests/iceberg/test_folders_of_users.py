"""A user of an Iceberg server has its files in no folder of a table of another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

import metastore as ms
from metastore.clock import SYSTEM
from metastore.pyiceberg import commits, files, places, tables, views
from metastore.serve import Principals, tokens_of
from metastore.serve.iceberg import tables as tables_of_rest
from tests.iceberg.server import served
from tests.iceberg.test_confined import TABLES, VIEW, commit
from tests.iceberg.test_rest import MADE, SCHEMA

pytestmark = pytest.mark.one_in(3)

_CUT = {"delete-after-commit.enabled": "true", "previous-versions-max": "1"}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def users(sqlite_url: str, lake: Path, tmp_path: Path) -> Iterator[dict[str, httpx.Client]]:
    """Serve the namespaces ``a``, which ann may read and bob may write, and ``b``, for neither."""
    names = ("root", "ann", "bob")
    (tmp_path / "tokens").write_text("".join(f"{user} token-of-{user}\n" for user in names))
    with served(sqlite_url, lake, Principals(tokens_of(tmp_path / "tokens")), admins=["root"]) as address:
        clients = {
            user: httpx.Client(
                base_url=f"{address}/v1/lake.ice", headers={"Authorization": f"Bearer token-of-{user}"}, timeout=60
            )
            for user in names
        }
        for space in "ab":
            assert clients["root"].post("/namespaces", json={"namespace": [space]}).status_code == 200
            made = clients["root"].post(f"/namespaces/{space}/tables", json={"name": "t", "schema": SCHEMA})
            assert made.status_code == 200
        with ms.open(sqlite_url) as store:
            rights = {"ann": ("select_table", "select_view"), "bob": ("select_table", "create_table", "create_view")}
            for user, privileges in rights.items():
                store.users.create(("lake", user))
                store.roles.create(("lake", f"of-{user}"))
                store.roles.grant(("lake", f"of-{user}"), "use_catalog", on="lake.ice")
                for privilege in ("use_schema", *privileges):
                    store.roles.grant(("lake", f"of-{user}"), privilege, on="lake.ice.a", kind="schema")
                store.roles.assign(("lake", f"of-{user}"), ("lake", user))
        yield clients
        for client in clients.values():
            client.close()


def test_rights_come_before_files(users: dict[str, httpx.Client], lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not do it leaves no folder and no file, not for a moment, and learns nothing of one that is there."""
    written = list[str]()
    for module in (commits, tables):
        monkeypatch.setattr(module, "write_metadata", lambda io, metadata, location: written.append(location))
    assert users["root"].post("/namespaces/a/views", json=VIEW).status_code == 200
    monkeypatch.setattr(views, "_write", lambda io, metadata, folder: written.append(metadata.location))
    pointers = {space: users["root"].get(f"/namespaces/{space}/tables/t").json() for space in "ab"}
    before = sorted(lake.rglob("*"))
    new = {"name": "u", "schema": SCHEMA}
    there, missing = pointers["b"]["metadata-location"], f"{lake}/none.metadata.json"
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    staged = {"requirements": [{"type": "assert-create"}], "updates": change["updates"]}
    for path, body in (
        (TABLES, new),
        (TABLES, {**new, "stage-create": True}),
        (TABLES, {**new, "stage-create": True, "location": pointers["b"]["metadata"]["location"]}),
        ("/namespaces/a/register", {"name": "u", "metadata-location": there}),
        ("/namespaces/a/register", {"name": "u", "metadata-location": missing}),
        ("/namespaces/a/register", {"name": "t", "metadata-location": there, "overwrite": True}),
        ("/namespaces/a/register-view", {"name": "u", "metadata-location": there}),
        (f"{TABLES}/t", change),
        (f"{TABLES}/u", staged),
        ("/namespaces/a/views", {**VIEW, "name": "u"}),
        ("/namespaces/a/views/v", change),
    ):
        answer = users["ann"].post(path, json=body, headers={"X-Iceberg-Access-Delegation": "vended-credentials"})
        assert answer.status_code == 403, (path, body, answer.text)
        assert "ann" in answer.text, "it is a right that is missing"
    assert sorted(lake.rglob("*")) == before
    assert written == []


def test_a_user_chooses_no_folder_of_another_table(users: dict[str, httpx.Client], lake: Path) -> None:
    """A client gets the credentials for its table's location: that is never the place of another table."""
    bob, secret = users["bob"], users["root"].get("/namespaces/b/tables/t").json()
    place = secret["metadata"]["location"]
    for body in (
        {"name": "u", "schema": SCHEMA, "location": place},
        {"name": "u", "schema": SCHEMA, "location": str(lake)},
        {"name": "u", "schema": SCHEMA, "location": f"{lake.as_uri()}/a", "stage-create": True},
        {"name": "u", "schema": SCHEMA, "location": f"{lake.as_uri()}/a/u-/../../b", "stage-create": True},
    ):
        assert bob.post(TABLES, json=body).status_code == 403
    taken = {"name": "u", "metadata-location": secret["metadata-location"]}
    assert bob.post("/namespaces/a/register", json=taken).status_code == 403
    staged = bob.post(TABLES, json={"name": "u", "schema": SCHEMA, "stage-create": True})
    assert staged.status_code == 200, staged.text
    assert bob.post(TABLES, json={"name": "t", "schema": SCHEMA, "stage-create": True}).status_code == 409
    chosen = {"name": "u", "schema": SCHEMA, "location": staged.json()["metadata"]["location"]}
    assert users["ann"].post(TABLES, json=chosen).status_code == 403, "it is bob's"
    own = bob.post(TABLES, json=chosen)
    assert own.status_code == 200, own.text
    moved = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
    refused = bob.post(f"{TABLES}/u", json=moved)
    assert (refused.status_code, "only an operator moves it" in refused.text) == (403, True)


def test_a_user_takes_no_folder_by_a_name_that_begins_like_it(
    users: dict[str, httpx.Client], lake: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor that of a table that was renamed, by a namespace of its own, or the one that its own table had long ago."""
    root, bob = users["root"], users["bob"]
    for name in ("own", "own-2"):
        assert root.post(TABLES, json={"name": name, "schema": SCHEMA}).status_code == 200
    renamed = {"source": {"namespace": ["a"], "name": "own"}, "destination": {"namespace": ["a"], "name": "old"}}
    assert root.post("/tables/rename", json=renamed).status_code == 204
    places = [root.get(f"{TABLES}/{name}").json()["metadata"]["location"] for name in ("old", "own-2")]
    with ms.open(sqlite_url) as store:
        store.schemas.create("lake.ice.mine", properties={"location": f"{lake.as_uri()}/b"})
        store.owners.set("lake.ice.mine", "lake.bob", kind="schema")
    secret = root.get("/namespaces/b/tables/t").json()["metadata"]["location"]
    for namespace, name, place in (("a", "own", places[0]), ("a", "own", places[1]), ("mine", "t", secret)):
        answer = bob.post(f"/namespaces/{namespace}/tables", json={"name": name, "schema": SCHEMA, "location": place})
        assert (answer.status_code, "the server chooses the folder" in answer.text) == (403, True), answer.text
    staged = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "stage-create": True}).json()["metadata"]
    relative = {"name": "own", "schema": SCHEMA, "location": staged["location"].rpartition("-")[2]}
    assert bob.post(TABLES, json=relative).status_code == 403
    now = SYSTEM.micros()
    monkeypatch.setattr(type(SYSTEM), "micros", lambda _: now + 25 * 3600 * 1_000_000)
    late = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "location": staged["location"]})
    assert late.status_code == 403


def test_what_was_answered_once_is_no_answer_after_the_location_has_changed(
    users: dict[str, httpx.Client], lake: Path, sqlite_url: str
) -> None:
    """Neither the kept answer nor a 304 hides that the store and the file name different folders."""
    first = users["ann"].get(f"{TABLES}/t")
    with ms.open(sqlite_url) as store:
        store.tables.alter("lake.ice.a.t", ms.SetLocation(f"{lake.as_uri()}/elsewhere"))
    for headers in ({}, {"If-None-Match": first.headers["etag"]}):
        assert users["ann"].get(f"{TABLES}/t", headers=headers).status_code == 403
    assert users["root"].get(f"{TABLES}/t").status_code == 200


def test_no_namespace_leads_into_the_folder_of_a_table(
    users: dict[str, httpx.Client], lake: Path, sqlite_url: str
) -> None:
    """Who reads that table would read the files of all tables that others create in the namespace."""
    root, bob = users["root"], users["bob"]
    own = bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).json()["metadata"]["location"]
    staged = bob.post(TABLES, json={"name": "new", "schema": SCHEMA, "stage-create": True}).json()["metadata"]
    with ms.open(sqlite_url) as store:
        store.schemas.create("lake.ice.mine", properties={"location": f"{lake.as_uri()}/b"})
        store.owners.set("lake.ice.mine", "lake.bob", kind="schema")

        def update(place: str) -> httpx.Response:
            return bob.post("/namespaces/mine/properties", json={"updates": {"location": place, "k": "v"}})

        for place in (own, f"{own}/data", staged["location"], f"{lake.as_uri()}/a", f"{lake.as_uri()}/mine/../a/x"):
            made = bob.post("/namespaces", json={"namespace": ["new"], "properties": {"location": place}})
            for answer in (made, update(place)):
                assert (answer.status_code, "only an operator chooses" in answer.text) == (403, True), answer.text
        assert update(f"{lake.as_uri()}/b").status_code == 200  # as it is
        assert update(f"{lake.as_uri()}/mine/").status_code == 200  # where its tables go anyway
        for place in (own, f"{own}/data/x", staged["location"]):
            store.schemas.alter("lake.ice.mine", ms.SetProperty("location", place))  # by another door
            for user in (root, bob):
                for path, body in (
                    ("tables", {"name": "t", "schema": SCHEMA}),
                    ("tables", {"name": "t", "schema": SCHEMA, "stage-create": True}),
                    ("tables", {"name": "t", "schema": SCHEMA, "location": f"{place}/t"}),
                    ("views", {**VIEW, "name": "t"}),
                    ("register", {"name": "t", "metadata-location": f"{place}/metadata/x.metadata.json"}),
                ):
                    if user is root and (path == "register" or "location" in body):
                        continue  # an operator names any folder
                    answer = user.post(f"/namespaces/mine/{path}", json=body)
                    assert answer.status_code == 403, (path, answer.text)
        assert list(store.tables.names("lake.ice.mine")) == []


def test_a_folder_is_given_once(users: dict[str, httpx.Client]) -> None:
    """Else a user has the folder of a table that was its own, and belongs to another now: it purges its files."""
    root, bob = users["root"], users["bob"]
    staged = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "stage-create": True}).json()["metadata"]
    creation = {"action": "set-location", "location": staged["location"]}
    change = {"requirements": [{"type": "assert-create"}], "updates": [*MADE, creation]}
    keyed = {"Idempotency-Key": str(uuid4())}
    for _ in range(2):
        assert bob.post(f"{TABLES}/own", json=change, headers=keyed).status_code == 200
    assert bob.post(TABLES, json={"name": "direct", "schema": SCHEMA}).status_code == 200
    assert bob.post("/namespaces/a/views", json=VIEW).status_code == 200
    for kind, name in (("table", "own"), ("table", "direct"), ("view", "v")):
        made = root.get(f"/namespaces/a/{kind}s/{name}").json()
        renamed = {key: {"namespace": ["a"], "name": to} for key, to in (("source", name), ("destination", f"x{name}"))}
        assert root.post(f"/{kind}s/rename", json=renamed).status_code == 204
        place, register = made["metadata"]["location"], "register" if kind == "table" else "register-view"
        several = {"table-changes": [{"identifier": {"namespace": ["a"], "name": name}, **change}]}
        for path, body in (
            (TABLES, {"name": name, "schema": SCHEMA, "location": place}),
            (f"{TABLES}/{name}", {**change, "updates": [*MADE, {**creation, "location": place}]}),
            ("/transactions/commit", several),
            (f"/namespaces/a/{register}", {"name": name, "metadata-location": made["metadata-location"]}),
            ("/namespaces/a/views", {**VIEW, "name": name, "location": place}),
        ):
            answer = bob.post(path, json=body)
            assert (answer.status_code, "leave the location out" in answer.text) == (403, True), (path, answer.text)


def test_a_user_makes_no_folder_of_a_later_time(users: dict[str, httpx.Client], lake: Path) -> None:
    """It would be valid for longer than gc keeps the note of its use: then it is given a second time."""
    begin = f"{lake.as_uri()}/a/own"
    for ahead, status in ((3600, 403), (0, 200)):
        part = f"{SYSTEM.micros() // 1000 + ahead * 1000:012x}{SYSTEM.operation_id().hex[12:]}"
        place = f"{begin}-{part}{places._mark(part, begin, 'bob')}"
        answer = users["bob"].post(TABLES, json={"name": "own", "schema": SCHEMA, "location": place})
        assert answer.status_code == status, answer.text


def test_a_folder_of_a_table_is_its_first_although_the_database_s_clock_is_behind() -> None:
    """Else a user names one of a minute ahead: its table, with the UUID of another one, keeps the files of that."""
    chosen = SYSTEM.micros() // 1000 + 59_900
    (end,) = places.chosen_in(f"/lake/t-{chosen:012x}{SYSTEM.operation_id().hex[12:]}")
    assert places.is_first(end, SYSTEM.micros() - 5_000_000)
    assert not places.is_first(end, SYSTEM.micros() - 3_600_000_000)


@pytest.mark.parametrize("register", ["register", "register-view"])
def test_a_registered_file_uses_up_its_own_folder_too(users: dict[str, httpx.Client], register: str) -> None:
    """Its location may be in another one. The view's next file would lie beside it, in the folder of another table."""
    bob, body = users["bob"], {"name": "own", "schema": SCHEMA, "stage-create": True}
    staged = [bob.post(TABLES, json=body).json()["metadata"] for _ in range(2)]
    of_file, place = (one["location"] for one in staged)
    made = bob.post("/namespaces/a/views", json=VIEW).json()["metadata"] if register == "register-view" else staged[1]
    file = Path(of_file.removeprefix("file://")) / "metadata" / f"00000-{uuid4()}.metadata.json"
    file.write_text(json.dumps(made | {"location": place}))
    taken = {"name": "own", "metadata-location": file.as_uri()}
    assert bob.post(f"/namespaces/a/{register}", json=taken).status_code == 200
    kind = "view" if register == "register-view" else "table"
    renamed = {"source": {"namespace": ["a"], "name": "own"}, "destination": {"namespace": ["a"], "name": "old"}}
    assert users["root"].post(f"/{kind}s/rename", json=renamed).status_code == 204
    for location in (of_file, place):
        answer = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "location": location})
        assert (answer.status_code, "leave the location out" in answer.text) == (403, True), answer.text


def test_a_commit_to_several_tables_that_lost_is_repeated_with_its_new_tables(users: dict[str, httpx.Client]) -> None:
    """The answer 409 asks for the repeat: the folders of its new tables are not used up before."""
    bob = users["bob"]
    place = bob.post(TABLES, json={"name": "new", "schema": SCHEMA, "stage-create": True}).json()["metadata"][
        "location"
    ]
    there = bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).json()["metadata"]["table-uuid"]
    made = [*MADE, {"action": "set-location", "location": place}]
    creation = {"identifier": {"namespace": ["a"], "name": "new"}, "updates": made}
    change = {"action": "set-properties", "updates": {"k": "v"}}
    for known, status in ((str(uuid4()), 409), (there, 204)):
        changes = [
            {**creation, "requirements": [{"type": "assert-create"}]},
            {
                "identifier": {"namespace": ["a"], "name": "own"},
                "requirements": [{"type": "assert-table-uuid", "uuid": known}],
                "updates": [change],
            },
        ]
        answer = bob.post("/transactions/commit", json={"table-changes": changes})
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize("door", ["tables", "commit", "several", "views"])
def test_a_request_that_failed_is_repeated_with_its_folder(
    users: dict[str, httpx.Client], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an idempotency key it is known by what it says; it makes one table, and another request makes none."""
    bob = users["bob"]
    staged = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "stage-create": True}).json()["metadata"]
    place = staged["location"]
    updates = [*MADE, {"action": "set-location", "location": place}]
    creation = {"requirements": [{"type": "assert-create"}], "updates": updates}
    several = {"table-changes": [{"identifier": {"namespace": ["a"], "name": "own"}, **creation}]}
    path, body = {
        "tables": (TABLES, {"name": "own", "schema": SCHEMA, "location": place}),
        "commit": (f"{TABLES}/own", creation),
        "several": ("/transactions/commit", several),
        "views": ("/namespaces/a/views", {**VIEW, "name": "own", "location": place}),
    }[door]

    def away(*_: object) -> None:
        raise ConnectionError("the bucket does not answer")

    with monkeypatch.context() as patched:
        for module, name in ((commits, "write_metadata"), (tables, "write_metadata"), (views, "_write")):
            patched.setattr(module, name, away)
        assert bob.post(path, json=body).status_code == 503
    other = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "location": place, "properties": {"k": "v"}})
    assert (other.status_code, "leave the location out" in other.text) == (403, True), other.text
    again = bob.post(path, json=body)
    assert again.status_code in (200, 204), again.text
    kind = "view" if door == "views" else "table"
    assert users["root"].get(f"/namespaces/a/{kind}s/own").json()["metadata"]["location"] == place
    assert bob.post(path, json=body).status_code == 409
    renamed = {key: {"namespace": ["a"], "name": to} for key, to in (("source", "own"), ("destination", "old"))}
    assert users["root"].post(f"/{kind}s/rename", json=renamed).status_code == 204
    repeated = bob.post(path, json=body)
    assert (repeated.status_code, "leave the location out" in repeated.text) == (403, True), repeated.text


def test_a_user_overwrites_a_table_only_by_a_file_of_its_own_folder(users: dict[str, httpx.Client]) -> None:
    """Whoever made it, and whatever it was called then."""
    root, bob = users["root"], users["bob"]
    own, other = (
        bob.post(TABLES, json={"name": name, "schema": SCHEMA}).json()["metadata-location"] for name in ("own", "u")
    )
    renamed = {"source": {"namespace": ["a"], "name": "own"}, "destination": {"namespace": ["a"], "name": "mine"}}
    assert root.post("/tables/rename", json=renamed).status_code == 204
    for place, status in ((other, 403), (own, 200)):
        body = {"name": "mine", "metadata-location": place, "overwrite": True}
        assert bob.post("/namespaces/a/register", json=body).status_code == status


def test_a_user_lets_no_table_have_the_file_of_another(users: dict[str, httpx.Client], sqlite_url: str) -> None:
    """By no other door: the server would show the other table, and a purge delete its files."""
    secret = users["root"].get("/namespaces/b/tables/t").json()["metadata-location"]
    assert users["bob"].post(TABLES, json={"name": "own", "schema": SCHEMA}).status_code == 200
    assert users["bob"].post("/namespaces/a/views", json=VIEW).status_code == 200
    pointer = {"metadata_location": secret}
    with ms.open(sqlite_url) as store:
        bob = store.as_user("bob")
        for call in (
            lambda: bob.tables.alter("lake.ice.a.own", ms.SetProperty("metadata_location", secret)),
            lambda: bob.views.alter("lake.ice.a.v", ms.SetProperty("metadata_location", secret)),
            lambda: bob.tables.create("lake.ice.a.u", properties=pointer),
            lambda: bob.tables.alter("lake.ice.a.own", ms.SetLocation(secret.rpartition("/metadata/")[0])),
        ):
            with pytest.raises(ms.PermissionDenied, match="only a commit of the Iceberg server"):
                call()
        bob.tables.alter("lake.ice.a.own", ms.SetComment("mine"))
    assert users["bob"].get(f"{TABLES}/own").json()["metadata-location"] != secret


@pytest.mark.parametrize("key", ["metadata", "data", "object-storage", "folder-storage"])
def test_a_user_has_no_files_written_into_the_folder_of_another_table(
    users: dict[str, httpx.Client], lake: Path, key: str
) -> None:
    bob, other = users["bob"], f"file://{lake}/a/t/metadata"
    assert bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).status_code == 200
    there = {"properties": {f"write.{key}.path": other}}
    updates = {"action": "set-properties", "updates": there["properties"]}
    assert commit(bob, updates, table="own").status_code == 403
    assert bob.post(TABLES, json={"name": "u", "schema": SCHEMA, **there}).status_code == 403
    assert bob.post(TABLES, json={"name": "u", "schema": SCHEMA, "stage-create": True, **there}).status_code == 403
    staged = bob.post(TABLES, json={"name": "u", "schema": SCHEMA, "stage-create": True}).json()["metadata"]
    creation = {"action": "set-location", "location": staged["location"]}
    change = {"requirements": [{"type": "assert-create"}], "updates": [*MADE, creation, updates]}
    several = {"table-changes": [{"identifier": {"namespace": ["a"], "name": "u"}, **change}]}
    for path, body in ((f"{TABLES}/u", change), ("/transactions/commit", several)):
        assert bob.post(path, json=body).status_code == 403, path
    location = bob.get(f"{TABLES}/own").json()["metadata"]["location"]
    below = {"action": "set-properties", "updates": {f"write.{key}.path": f"{location}/elsewhere"}}
    assert commit(bob, below, table="own").status_code == 200


def test_a_users_view_lies_in_no_folder_of_another_table(users: dict[str, httpx.Client]) -> None:
    """The server would write the view's next metadata file there."""
    bob, secret = users["bob"], users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    made = bob.post("/namespaces/a/views", json=VIEW).json()
    own, file = made["metadata"]["location"], Path(made["metadata-location"].removeprefix("file://"))

    def moved(place: str) -> int:
        updates = [{"action": "set-location", "location": place}]
        return bob.post("/namespaces/a/views/v", json={"updates": updates}).status_code

    assert [moved(place) for place in (secret, f"{own}/../t", own, f"{own}/")] == [403, 403, 200, 200]
    assert bob.delete("/namespaces/a/views/v").status_code == 204
    text, staged = file.read_text(), bob.post(TABLES, json={"name": "v", "schema": SCHEMA, "stage-create": True})
    held = staged.json()["metadata"]["location"]
    file = Path(held.removeprefix("file://")) / "metadata" / "1.metadata.json"
    taken = {"name": "v", "metadata-location": file.as_uri()}
    for place, status in ((secret, 403), (held, 200)):
        file.write_text(json.dumps(json.loads(text) | {"location": place}))
        assert bob.post("/namespaces/a/register-view", json=taken).status_code == status


def test_a_user_replaces_its_views_file_in_vain(users: dict[str, httpx.Client]) -> None:
    """With another table's folder in it, the server would write into that folder."""
    bob, secret = users["bob"], users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    made = bob.post("/namespaces/a/views", json=VIEW).json()
    file, there = Path(made["metadata-location"].removeprefix("file://")), Path(secret.removeprefix("file://"))
    before, change = sorted(there.rglob("*")), {"updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    file.write_text(json.dumps(made["metadata"] | {"location": secret}))
    answer = bob.post("/namespaces/a/views/v", json=change)
    assert (answer.status_code, "only an operator" in answer.text) == (403, True), answer.text
    assert sorted(there.rglob("*")) == before
    file.write_text(json.dumps(made["metadata"]))
    assert bob.post("/namespaces/a/views/v", json=change).status_code == 200


def test_a_view_keeps_its_files(users: dict[str, httpx.Client], lake: Path) -> None:
    """History names them, and another view may have been registered from one."""
    root = users["root"]
    made = root.post("/namespaces/a/views", json=VIEW).json()
    file = Path(made["metadata-location"].removeprefix("file://"))
    elsewhere = lake / "a" / file.name
    elsewhere.write_text(json.dumps(made["metadata"]))
    taken = {"name": "w", "metadata-location": elsewhere.as_uri()}
    assert root.post("/namespaces/a/register-view", json=taken).status_code == 200

    def replaced(name: str, **properties: str) -> Path:
        body = {"updates": [{"action": "set-properties", "updates": properties}]}
        answer = root.post(f"/namespaces/a/views/{name}", json=body)
        assert answer.status_code == 200, answer.text
        return Path(answer.json()["metadata-location"].removeprefix("file://"))

    second = replaced("v", k="v")
    shared = {"name": "x", "metadata-location": second.as_uri()}
    assert root.post("/namespaces/a/register-view", json=shared).status_code == 200
    for name in "vw":
        replaced(name, **{"write.metadata.delete-after-commit.enabled": "true"})
    assert [one.exists() for one in (file, second, elsewhere)] == [True, True, True]
    assert [root.get(f"/namespaces/a/views/{name}").status_code for name in "vx"] == [200, 200]


def test_a_load_beside_commits_that_delete_the_file_finds_the_newer_one(
    users: dict[str, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was named when the load began is gone; it answered 404 for what is there."""
    root = users["root"]
    cut = {f"write.metadata.{key}": value for key, value in _CUT.items()}

    def replace() -> None:
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {**cut, "k": str(uuid4())}}]}
        answer = root.post(f"{TABLES}/t", json=body)
        assert answer.status_code == 200, answer.text

    replace()
    first, really = [True], files.read_metadata

    def late(*arguments: Any) -> Any:
        if first and first.pop():
            for _ in range(3):
                replace()
            files._KNOWN.clear()
        return really(*arguments)

    tables_of_rest._ANSWERS.clear()
    monkeypatch.setattr(tables, "read_metadata", late)
    assert root.get(f"{TABLES}/t").status_code == 200
    assert not first


def test_a_user_adds_no_file_of_another_table(users: dict[str, httpx.Client], lake: Path) -> None:
    """A merge would read it, although the user may not read that table."""
    bob, other = users["bob"], f"file://{lake}/a/t/metadata/x.avro"
    assert bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).status_code == 200
    location = bob.get(f"{TABLES}/own").json()["metadata"]["location"]

    def added(place: str) -> int:
        summary = {"operation": "append"}
        snapshot = {"snapshot-id": 5, "sequence-number": 1, "timestamp-ms": SYSTEM.micros() // 1000, "summary": summary}
        update = {"action": "add-snapshot", "snapshot": {**snapshot, "manifest-list": place, "schema-id": 0}}
        return commit(bob, update, table="own").status_code

    assert added(other) == 403
    assert added(f"{location}/metadata/x.avro") == 200
    for name, more in (
        ("statistics", {"file-footer-size-in-bytes": 1, "blob-metadata": []}),
        ("partition-statistics", {}),
    ):
        figures = {"snapshot-id": 5, "statistics-path": other, "file-size-in-bytes": 1, **more}
        update = {"action": f"set-{name}", "snapshot-id": 5, name: figures}
        assert commit(bob, update, table="own").status_code == 403


def test_a_registered_file_names_no_folder_of_another_table(users: dict[str, httpx.Client], lake: Path) -> None:
    """A user may write files into the folder of its own table: what such a file says is not to be believed."""
    bob = users["bob"]
    loaded = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "stage-create": True}).json()
    secret = users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    file = Path(loaded["metadata"]["location"].removeprefix("file://")) / "metadata" / "00001-x.metadata.json"
    snapshot = {"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1, "summary": {"operation": "append"}}
    for change in (
        {"location": secret},
        {"properties": {"write.metadata.path": f"{secret}/metadata"}},
        {"snapshots": [{**snapshot, "manifest-list": f"{secret}/metadata/snap-1.avro"}]},
    ):
        file.write_text(json.dumps(loaded["metadata"] | change))
        taken = {"name": "own", "metadata-location": file.as_uri()}
        assert bob.post("/namespaces/a/register", json=taken).status_code == 403
    file.write_text(json.dumps(loaded["metadata"]))
    assert bob.post("/namespaces/a/register", json=taken).status_code == 200


def test_a_user_replaces_its_metadata_file_in_vain(users: dict[str, httpx.Client]) -> None:
    """With another table's folder in it, it would get the credentials for that folder, and have its files deleted."""
    bob, secret = users["bob"], users["root"].get("/namespaces/b/tables/t").json()
    made = bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).json()
    file = Path(made["metadata-location"].removeprefix("file://")).with_name("1.metadata.json")
    file.write_text(json.dumps(made["metadata"]))
    again = {"name": "own", "metadata-location": file.as_uri(), "overwrite": True}
    assert bob.post("/namespaces/a/register", json=again).status_code == 200
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    log = [{"metadata-file": secret["metadata-location"], "timestamp-ms": 1}]
    file.write_text(json.dumps(made["metadata"] | {"location": secret["metadata"]["location"], "metadata-log": log}))
    for answer in (
        bob.get(f"{TABLES}/own"),
        bob.get(f"{TABLES}/own/credentials"),
        bob.post(f"{TABLES}/own", json=change),
        bob.delete(f"{TABLES}/own?purgeRequested=true"),
    ):
        assert (answer.status_code, "the file was replaced" in answer.text) == (403, True), answer.text
    there = secret["metadata-location"].rpartition("/")[0]
    cut = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    swapped = {"properties": {"write.metadata.path": there, **cut}, "metadata-log": log}
    file.write_text(json.dumps(made["metadata"] | swapped))
    assert bob.post(f"{TABLES}/own", json=change).status_code == 403
    assert Path(secret["metadata-location"].removeprefix("file://")).exists()
    file.write_text(json.dumps(made["metadata"]))
    assert bob.post(f"{TABLES}/own", json=change).status_code == 200


def test_what_an_operator_was_shown_of_a_replaced_file_is_not_shown_to_a_user(users: dict[str, httpx.Client]) -> None:
    """The server keeps its answers by file: that one would let the user have the credentials of another table."""
    bob, root = users["bob"], users["root"]
    secret = root.get("/namespaces/b/tables/t").json()["metadata"]["location"]
    made = bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).json()
    file = Path(made["metadata-location"].removeprefix("file://"))
    file.write_text(json.dumps(made["metadata"] | {"location": secret}))
    files._KNOWN.clear()  # as after a restart
    tables_of_rest._ANSWERS.clear()
    assert root.get(f"{TABLES}/own").json()["metadata"]["location"] == secret
    answer = bob.get(f"{TABLES}/own")
    assert (answer.status_code, "the file was replaced" in answer.text) == (403, True), answer.text


def test_an_operator_writes_nothing_where_a_replaced_file_says(users: dict[str, httpx.Client]) -> None:
    """A commit, or a purge, of the user's table would delete the files of another table, in the operator's name."""
    bob, root = users["bob"], users["root"]
    victim = root.get("/namespaces/b/tables/t").json()
    secret, there = victim["metadata"]["location"], Path(victim["metadata-location"].removeprefix("file://"))
    log = [{"metadata-file": there.as_uri(), "timestamp-ms": 1}]
    cut = {f"write.metadata.{key}": value for key, value in _CUT.items()}
    for replaced in (
        {"location": secret, "properties": cut, "metadata-log": log},
        {"properties": {**cut, "write.metadata.path": f"{secret}/metadata"}, "metadata-log": log},
    ):
        made = bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).json()
        file = Path(made["metadata-location"].removeprefix("file://"))
        file.write_text(json.dumps(made["metadata"] | replaced))
        files._KNOWN.clear()  # as after a restart
        before = sorted(there.parent.iterdir())
        change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
        assert root.post(f"{TABLES}/own", json=change).status_code == 403
        purged = root.delete(f"{TABLES}/own?purgeRequested=true")
        assert purged.status_code == (403 if "location" in replaced else 204)
        assert sorted(there.parent.iterdir()) == before
        root.delete(f"{TABLES}/own")
    assert root.get("/namespaces/b/tables/t").status_code == 200
