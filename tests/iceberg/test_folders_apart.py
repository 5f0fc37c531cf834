"""Where one Iceberg table lies in the folder of another, that folder gets no key, and no purge deletes there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event

import httpx
import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.errors import BackendUnavailable
from metastore.pyiceberg.neighbours import Neighbours
from metastore.serve import Vended
from metastore.serve.iceberg import warehouses
from tests.iceberg.server import served
from tests.iceberg.test_rest import SCHEMA, creation
from tests.servers.process import wait_until

DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}
TABLES = "/namespaces/a/tables"


class Keys:
    """Vend a key for each folder."""

    def vend(self, location: str, principal: str) -> Vended:
        return Vended(location, {"s3.session-token": "key"})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def client(sqlite_url: str, lake: Path) -> Iterator[httpx.Client]:
    with (
        served(sqlite_url, lake, credentials=Keys()) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", headers=DELEGATION, timeout=60) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        yield client


def made(
    client: httpx.Client, name: str, location: str | None = None, *, space: str = "a", staged: bool = False
) -> int:
    body = {"name": name, "schema": SCHEMA, "location": location, "stage-create": staged}
    return client.post(f"/namespaces/{space}/tables", json=body).status_code


def key_of(client: httpx.Client, name: str) -> list[str]:
    """Return the keys of a table; each way to get them says the same."""
    ways = client.get(f"{TABLES}/{name}"), client.get(f"{TABLES}/{name}/credentials")
    keys = [[one["config"]["s3.session-token"] for one in way.json().get("storage-credentials", [])] for way in ways]
    assert keys[0] == keys[1]
    return keys[0]


def test_a_new_table_gets_no_folder_in_or_around_that_of_another(
    client: httpx.Client, sqlite_url: str, lake: Path
) -> None:
    place = f"{lake.as_uri()}/x/outer"
    assert made(client, "t", place, staged=True) == 200
    assert made(client, "outer", place) == 200
    assert made(client, "outer", place) == 409, "who creates it if it does not exist gets this error"
    for inside in (place, f"{place}/in"):  # the commit of the staged one, and of one that was not
        commit = creation("t", inside)
        assert client.post(f"{TABLES}/t", json=commit).status_code == 403
        assert client.post("/transactions/commit", json={"table-changes": [commit]}).status_code == 403
    assert client.post(f"{TABLES}/outer", json=creation("outer", place)).status_code == 409
    with ms.open(sqlite_url) as store:
        store.schemas.create("lake.ice.below", properties={"location": f"{place}/below"})
        for location in (place, f"{place}/in", f"{lake.as_uri()}/x", place.replace("file://", ""), f"{place}/a/../b"):
            for staged in (False, True):
                assert made(client, "t", location, staged=staged) == 403, location
        assert made(client, "t", space="below") == 403
        assert made(client, "t", f"{place}2") == 200
        store.tables.drop("lake.ice.a.outer")
        assert made(client, "t", space="below") == 200


def test_a_folder_that_holds_another_table_gets_no_key_and_no_purge(
    client: httpx.Client, sqlite_url: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{lake.as_uri()}/outer"
    assert [made(client, "outer", place), made(client, "inner")] == [200, 200]
    assert (key_of(client, "outer"), key_of(client, "inner")) == (["key"], ["key"])
    moved = {"requirements": [], "updates": [{"action": "set-location", "location": f"{place}/inner"}]}
    assert client.post(f"{TABLES}/inner", json=moved).status_code == 200
    assert (key_of(client, "outer"), key_of(client, "inner")) == ([], ["key"])
    refused = client.delete(f"{TABLES}/outer?purgeRequested=true")
    assert (refused.status_code, "another table lies in the folder" in refused.text) == (403, True)
    cut = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    changes = [{"action": "set-properties", "updates": {**cut, "k": str(number)}} for number in range(4)]
    for change in changes:
        assert client.post(f"{TABLES}/outer", json={"requirements": [], "updates": [change]}).status_code == 200
    files = sorted((lake / "outer" / "metadata").iterdir())
    assert len(files) == 5, "none is deleted"
    # another one moves in after the first look
    with monkeypatch.context() as patch:
        more = Neighbours.are_more_than
        patch.setattr(Neighbours, "are_more_than", lambda self, most, *place: most == 0 and more(self, most, *place))
        assert client.delete(f"{TABLES}/outer?purgeRequested=true").status_code == 204
    assert sorted((lake / "outer" / "metadata").iterdir()) == files
    assert client.delete(f"{TABLES}/inner?purgeRequested=true").status_code == 204
    assert made(client, "outer", place) == 200
    assert key_of(client, "outer") == ["key"]
    assert client.delete(f"{TABLES}/outer?purgeRequested=true").status_code == 204


def test_a_slow_look_at_the_folders_stops_no_loads(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(client, "t") == 200
    begun, over, follow = Event(), Event(), Neighbours._follow
    with ThreadPoolExecutor(1) as other:

        def slow(self: Neighbours) -> None:
            begun.set()
            over.wait(60)
            follow(self)

        monkeypatch.setattr(Neighbours, "_follow", slow)
        monkeypatch.setattr(warehouses, "_WAITS", 0.01)
        try:
            first = other.submit(client.get, f"{TABLES}/t")
            assert begun.wait(60)
            assert client.get(f"{TABLES}/t", headers={"X-Iceberg-Access-Delegation": ""}).status_code == 200
            refused = client.get(f"{TABLES}/t", timeout=10)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        finally:
            over.set()
        assert first.result().json()["storage-credentials"]


def grown(store: Store, name: str, location: str, uuid: str) -> ms.Entity:
    """Make what the Iceberg server makes."""
    properties = {"metadata_location": f"{location}/metadata/1", "table_uuid": uuid}
    return store.tables.create(name, parents=True, location=location, format="iceberg", properties=properties)


@pytest.mark.parametrize("url", ["sqlite_url", "memory_url"])
def test_folders_are_followed(url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through drops and restores of tables and schemas, other spellings, and changes that gc has removed."""
    with ms.open("memory://" if url == "memory_url" else request.getfixturevalue(url)) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational")
        first = grown(store, "lake.ice.a.first", "s3://bkt/lake/t", "u1")
        neighbours = Neighbours(store)

        def count(place: str = "s3://bkt/lake/t") -> int:
            return next(most for most in range(9) if not neighbours.are_more_than(most, place))

        assert [count(), count("s3://bkt/lake"), count("s3://bkt/lake/t/x"), count("s3://other/lake/t")] == [1, 1, 0, 0]
        grown(store, "lake.ice.b.inner", "s3a://bkt//lake/t/in/", "u2")
        assert [count(), count("s3n://bkt/lake/t/"), count("s3://bkt/lake/")] == [2, 2, 2]
        assert [neighbours.has_around(f"s3://bkt/lake/t{rest}") for rest in ("", "/x/y", "2", "/../t/x")] == [
            True,
            True,
            False,
            True,
        ]
        store.tables.create("lake.ice.a.parquet", location="s3://bkt/lake/t/in", format="parquet")
        assert count() == 2, "each user may make such a table"
        store.schemas.drop("lake.ice.b", cascade=True)
        assert count() == 1
        store.schemas.restore("lake.ice.b")
        assert count() == 2
        store.tables.alter("lake.ice.b.inner", ms.SetLocation("s3://bkt/lake/elsewhere"))
        assert [count(), count("s3://bkt/lake/elsewhere")] == [1, 1]
        grown(store, "lake.ice.a.copy", "s3://bkt/lake/t", "u1")
        assert count() == 1, "a copy has the files of the original"
        grown(store, "lake.ice.a.other", "s3://bkt/lake/t", "u3")
        assert count() == 2
        for name in ("copy", "other"):
            store.tables.purge(f"lake.ice.a.{name}")
        store.gc(retention=timedelta(0), keep_versions=1)
        assert count() == 1
        store.tables.drop(first)
        assert [count(), neighbours.has_around("s3://bkt/lake/t")] == [0, False]
        again = Neighbours(store)
        again.look()
        assert [first.id in one._of for one in (neighbours, again)] == [False, True]
        assert not again.are_more_than(0, "s3://bkt/lake/t")
        assert first.id not in again._of, "no later look reads what was dropped"
        store.tables.restore("lake.ice.a.first")
        assert (count(), again.are_more_than(0, "s3://bkt/lake/t")) == (1, True)
        with again._lock, pytest.raises(BackendUnavailable):
            again.are_more_than(0, "s3://bkt/lake/t", 0.0)
        # page by page; who is far behind reads the folders
        monkeypatch.setattr("metastore.pyiceberg.neighbours.MOST", 2)
        for pages, read_all in ((10, None), (1, Neighbours._read_all)):
            monkeypatch.setattr("metastore.pyiceberg.neighbours._PAGES", pages)
            for number in range(5):
                store.schemas.create(f"lake.ice.new{pages}_{number}")
            store.tables.drop(first)
            with monkeypatch.context() as patch:
                patch.setattr(Neighbours, "_read_all", read_all)
                assert count() == 0
            store.tables.restore("lake.ice.a.first")
            assert count() == 1


_WAIT_AT_COMMIT = """CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END';
  CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON operation DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.principal = 'slow') EXECUTE FUNCTION wait()"""
_WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def test_a_commit_that_is_open_hides_no_table(postgres_url: str) -> None:
    """Not what others commit after it drew its number, nor itself once it commits."""
    place = "s3://bkt/lake/t"
    with (
        ms.open(postgres_url) as store,
        ms.open(postgres_url, principal="slow") as slow,
        psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as hand,
        ThreadPoolExecutor(1) as pool,
    ):
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational")
        for name in ("lake.ice.a.t", "lake.ice.b.other"):
            grown(store, name, place if name.endswith("t") else "s3://bkt/o", name)
        before, during = Neighbours(store), Neighbours(store)
        assert not before.are_more_than(1, place)
        hand.execute(_WAIT_AT_COMMIT)
        hand.execute("SELECT pg_advisory_lock(77)")
        try:
            late = pool.submit(grown, slow, "lake.ice.b.late", f"{place}/late", "late")
            assert wait_until(lambda: hand.execute(_WAITING).fetchone() is not None, 30.0)
            grown(store, "lake.ice.a.inner", f"{place}/in", "inner")
            for one in (before, during, before):
                assert (one.are_more_than(1, place), one.are_more_than(2, place)) == (True, False)
        finally:
            hand.execute("SELECT pg_advisory_unlock(77)")
        late.result()
        for one in (before, during):
            assert one.are_more_than(2, place)
