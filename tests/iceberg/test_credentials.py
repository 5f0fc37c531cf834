"""Clients without credentials of their own reach a warehouse's files through those that the server hands out."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import boto3
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

import metastore as ms
from metastore.serve import Vended, Vendor, application
from metastore.serve.iceberg.credentials import is_below
from metastore.serve.iceberg.tables import Loaded
from tests.iceberg.server import running, served
from tests.iceberg.test_rest import SCHEMA
from tests.servers.s3 import KEY, SECRET, S3Server

pytestmark = pytest.mark.one_in(3)

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
DELEGATION = {"X-Iceberg-Access-Delegation": "remote-signing, vended-credentials"}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"lake-{uuid4().hex[:12]}"
    s3.filesystem().create_dir(name)
    return f"s3://{name}"


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client and server run in this process: neither finds credentials around itself."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("LAKE_KEY", KEY)


@pytest.fixture
def static(s3: S3Server, tmp_path: Path) -> dict[str, str]:
    """What the operator writes: the secret itself is in a file."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    return {
        "s3.endpoint": s3.url,
        "s3.region": "us-east-1",
        "s3.access-key-id": "secret:env:LAKE_KEY",
        "s3.secret-access-key": f"secret:file:{file}",
    }


class Sessions:
    """Vend sessions of S3's token service, one for each load, and note for which user and which table."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._service = boto3.client(
            "sts", endpoint_url=url, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )
        self.asked: list[tuple[str, str]] = []
        self.keys: set[str] = set()

    def vend(self, location: str, principal: str) -> Vended:
        """Return a session's credentials."""
        self.asked.append((location, principal))
        made = self._service.assume_role(RoleArn="arn:aws:iam::123456789012:role/reader", RoleSessionName="one-load")
        session = made["Credentials"]
        self.keys.add(session["AccessKeyId"])
        config = {
            "s3.endpoint": self._url,
            "s3.region": "us-east-1",
            "s3.access-key-id": session["AccessKeyId"],
            "s3.secret-access-key": session["SecretAccessKey"],
            "s3.session-token": session["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(session["Expiration"].timestamp() * 1000)),
        }
        return Vended(location, config)


def _client(address: str) -> Catalog:
    return load_catalog("x", type="rest", uri=address, warehouse="lake.ice")


def _write_and_read(catalog: Catalog) -> None:
    catalog.create_namespace_if_not_exists("a")
    catalog.create_table("a.t", ROWS.schema).append(ROWS)
    with catalog.create_table_transaction("a.u", ROWS.schema) as staged:
        staged.append(ROWS)
    for name in ("a.t", "a.u"):
        assert catalog.load_table(name).scan().to_arrow().num_rows == 2


def test_static_credentials_of_a_warehouse(
    sqlite_url: str, bucket: str, s3: S3Server, static: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "metastore")
    with served(sqlite_url, bucket, credentials=static) as address, s3.requests() as requests:
        _write_and_read(_client(address))
        table = f"{address}/v1/lake.ice/namespaces/a/tables/t"
        asked, plain = httpx.get(table, headers=DELEGATION), httpx.get(table)
        assert plain.json()["config"] == {}
        assert "storage-credentials" not in plain.json()
        assert asked.headers["cache-control"] == "no-store"
        assert asked.json()["config"]["s3.secret-access-key"] == SECRET
        (found,) = asked.json()["storage-credentials"]
        assert (found["prefix"], found["config"]) == (f"{bucket}/", asked.json()["config"])
        again = httpx.get(f"{table}/credentials", headers=DELEGATION).json()
        assert again == {"storage-credentials": [found]}
        assert httpx.get(f"{table}/credentials").json() == again  # Java's clients renew without the header
    assert {request.key for request in requests.made} == {KEY}
    assert SECRET not in caplog.text
    with ms.open(sqlite_url) as store:
        assert SECRET not in repr(list(store.changes()))


def test_without_credentials_the_client_reaches_nothing(
    sqlite_url: str, bucket: str, s3: S3Server, static: dict[str, str]
) -> None:
    """The negative control: what the tests above do rests on the credentials of the server."""
    own = {**static, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
    place = {key: static[key] for key in ("s3.endpoint", "s3.region")}
    with served(sqlite_url, bucket, properties=own) as address:
        client = load_catalog("x", type="rest", uri=address, warehouse="lake.ice", **place)
        client.create_namespace("a")
        table = client.create_table("a.t", ROWS.schema)
        with s3.requests() as requests, suppress(OSError):
            table.append(ROWS)
    assert KEY not in {request.key for request in requests.made if "/data/" in request.path}


def test_one_location_at_two_endpoints_is_two_files(
    sqlite_url: str, tmp_path: Path, bucket: str, s3: S3Server, static: dict[str, str]
) -> None:
    """Neither what is read, nor the answer of a load, comes from the store of another warehouse in this process."""
    name = bucket.removeprefix("s3://")
    other_url = f"sqlite:///{tmp_path}/other.db"
    ms.migrate(other_url)
    with S3Server() as other, served(sqlite_url, bucket, credentials=static) as here:
        catalog = _client(here)
        catalog.create_namespace("a")
        place = catalog.create_table("a.t", ROWS.schema, properties={"from": "here"}).metadata_location
        file = place.removeprefix("s3://")
        with s3.filesystem().open_input_stream(file) as stream:
            text = stream.read()
        other.filesystem().create_dir(name)
        with other.filesystem().open_output_stream(file) as sink:
            sink.write(text.replace(b'"here"', b'"there"'))
        with served(other_url, bucket, credentials={**static, "s3.endpoint": other.url}) as there:
            elsewhere = _client(there)
            elsewhere.create_namespace("a")
            for _ in range(2):  # the second one is answered from what the server keeps
                if not elsewhere.table_exists("a.t"):
                    elsewhere.register_table("a.t", place)
                seen = [one.load_table("a.t").properties["from"] for one in (catalog, elsewhere)]
                assert seen == ["here", "there"]


def test_vended_sessions_of_s3(sqlite_url: str, bucket: str, s3: S3Server, static: dict[str, str]) -> None:
    sessions = Sessions(s3.url)
    own = {**static, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
    with served(sqlite_url, bucket, credentials=sessions, properties=own) as address:
        with s3.requests() as requests:
            _write_and_read(_client(address))
        assert {request.key for request in requests.made} - {KEY} <= sessions.keys
        written = {r.key for r in requests.made if r.method in ("PUT", "POST") and "/data/" in r.path}
        assert written
        assert written <= sessions.keys
        catalog = _client(address)
        places = {name: catalog.load_table(f"a.{name}").location() for name in ("t", "u")}
        assert all(place.startswith(f"{bucket}/a/{name}-") for name, place in places.items())
        assert set(sessions.asked) == {(place, "anonymous") for place in places.values()}
        before = len(sessions.asked)
        httpx.get(f"{address}/v1/lake.ice/namespaces/a/tables/t")
        assert len(sessions.asked) == before


def test_a_table_elsewhere_gets_no_credentials(
    sqlite_url: str, bucket: str, s3: S3Server, static: dict[str, str]
) -> None:
    """A client that creates a table chooses its location: credentials are for the warehouse's folder alone."""
    with (
        served(sqlite_url, f"{bucket}/lake", credentials=static, allowed=[bucket]) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", headers=DELEGATION) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        places = ["t", "lake2/t", "lake/../t", "lake/%2e%2e/t", "lake"]
        for number, place in enumerate(places):
            wanted = {"name": f"t{number}", "schema": SCHEMA, "location": f"{bucket}/{place}"}
            made = client.post("/namespaces/a/tables", json=wanted)
            assert made.status_code == 200, made.text
            assert made.json()["config"] == {}
            # no other table lies in its folder, or around it
            assert client.delete(f"/namespaces/a/tables/t{number}").status_code == 204
        inside = client.post("/namespaces/a/tables", json={"name": "in", "schema": SCHEMA})
        assert inside.json()["config"]["s3.access-key-id"] == KEY


def test_a_table_leads_the_server_nowhere(sqlite_url: str, bucket: str, s3: S3Server, static: dict[str, str]) -> None:
    """A client writes a table's properties: they name no endpoint that gets the server's key, and no code to load."""
    ours = {"s3.endpoint": "http://127.0.0.1:9", "py-io-impl": "os.system"}
    provider = {"write.py-location-provider.impl": "shutil.rmtree"}
    with (
        served(sqlite_url, bucket, credentials=static) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice") as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        wanted = {"name": "t", "schema": SCHEMA, "properties": {**ours, **provider}}
        assert client.post("/namespaces/a/tables", json=wanted).status_code == 200
        update = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
        assert client.post("/namespaces/a/tables/t", json=update).status_code == 200


class _Broken:
    def vend(self, location: str, principal: str) -> Vended:
        raise RuntimeError(SECRET)


def test_credentials_that_cannot_be_made(sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        served(sqlite_url, tmp_path / "w", credentials=_Broken()) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", headers=DELEGATION) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        made = client.post("/namespaces/a/tables", json={"name": "t", "schema": SCHEMA})
        assert (made.status_code, made.json()["config"]) == (200, {})  # the table is there: no error says otherwise
        for path in ("", "/credentials"):
            answer = client.get(f"/namespaces/a/tables/t{path}")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert SECRET not in answer.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"s3.secret-access-key": SECRET}, "secret:env:NAME"),
        ({"s3.session-token": "secret:env:not a name"}, "env:NAME"),
    ],
)
def test_a_secret_is_given_by_reference(sqlite_url: str, bucket: str, given: Mapping[str, str], word: str) -> None:
    with pytest.raises(ms.InvalidArgument, match=word) as error, served(sqlite_url, bucket, credentials=given):
        pass
    assert SECRET not in str(error.value)


def test_a_secret_that_cannot_be_read_is_the_operators_to_mend(
    sqlite_url: str, bucket: str, static: dict[str, str]
) -> None:
    broken = {**static, "s3.secret-access-key": "secret:env:NONE_SUCH"}
    with pytest.raises(ms.InvalidArgument, match="NONE_SUCH"), served(sqlite_url, bucket, credentials=broken):
        pass


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--credential", f"lake.ice:s3.secret-access-key={SECRET}"], "secret:env:NAME"),
        (["--credential", f"lake.ice={SECRET}"], "metalake.catalog:key=value"),
    ],
)
def test_the_command_lines_credentials(sqlite_url: str, options: list[str], word: str) -> None:
    ms.migrate(sqlite_url)
    warehouse = ["--warehouse", "lake.ice=s3://b/lake"]
    command = [sys.executable, "-m", "metastore", "--url", sqlite_url, "serve", "--port", "0", *warehouse, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert word in done.stderr.replace("\n", " ")
    assert SECRET not in done.stdout + done.stderr


def test_what_is_below_a_folder() -> None:
    assert is_below("s3://b/lake/a/t", "s3://b/lake")
    assert is_below("file:///w/a", "file:///w/")
    for other in ("s3://b/lake", "s3://b/lake2/t", "s3://b/lake/../t", "s3://b/lake/%2e%2e/t", "s3a://b/lake/t"):
        assert not is_below(other, "s3://b/lake")


def test_an_answer_that_the_client_has_hides_no_other_key(sqlite_url: str, tmp_path: Path) -> None:
    """A client that asks whether its answer is still true gets the next key, and one that had no key gets it."""
    keys = ["first"]

    class Changing:
        def vend(self, location: str, principal: str) -> Vended:
            return Vended(location, {"s3.session-token": keys[-1]})

    with served(sqlite_url, tmp_path / "lake", credentials=Changing()) as address:
        tables = f"{address}/v1/lake.ice/namespaces/a/tables"
        httpx.post(f"{address}/v1/lake.ice/namespaces", json={"namespace": ["a"]})
        made = httpx.post(tables, json={"name": "t", "schema": SCHEMA}, headers=DELEGATION)
        plain = httpx.get(f"{tables}/t")
        assert plain.headers["etag"] != made.headers["etag"]
        assert httpx.get(f"{tables}/t", headers={"If-None-Match": plain.headers["etag"]}).status_code == 304
        with_key = httpx.get(f"{tables}/t", headers={**DELEGATION, "If-None-Match": plain.headers["etag"]})
        assert with_key.json()["config"] == {"s3.session-token": "first"}
        known = {**DELEGATION, "If-None-Match": with_key.headers["etag"]}
        assert with_key.headers["etag"] == made.headers["etag"]
        same = httpx.get(f"{tables}/t", headers=known)
        assert (same.status_code, same.content, same.headers["cache-control"]) == (304, b"", "no-store")
        keys.append("second")
        assert httpx.get(f"{tables}/t", headers=known).json()["config"] == {"s3.session-token": "second"}
        assert httpx.post(tables, json={"name": "u", "schema": SCHEMA}, headers=known).status_code == 200


def test_a_table_for_which_there_is_no_key_is_not_sent_twice() -> None:
    """A warehouse that gives keys has none for a folder with another table in it."""
    loaded = Loaded(b"{", "s3://b/t", '"tag"')
    assert loaded.answer(None).headers == {"ETag": '"tag"'}
    assert loaded.answer(None, 'W/"tag", "other"').status == 304
    assert loaded.answer(None, '"other"').status == 200


def test_vended_credentials_show_no_secret() -> None:
    vendor: Vendor = Sessions("http://127.0.0.1:9")
    assert vendor is not None
    assert SECRET not in repr(Vended("s3://b/", {"s3.secret-access-key": SECRET}))


@pytest.mark.long
def test_a_warehouse_that_does_not_answer_stops_no_other(
    sqlite_url: str, bucket: str, s3: S3Server, static: dict[str, str]
) -> None:
    """Its bucket accepts connections, and says nothing."""
    silent = socket.create_server(("127.0.0.1", 0), backlog=100)
    silent.settimeout(20)
    held = list[socket.socket]()
    dead = {**static, "s3.endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "s3.request-timeout": "60"}
    app = application(
        ms.open(sqlite_url),
        warehouses={"lake.ice": f"{bucket}/lake", "lake.dead": "s3://dead/lake"},
        credentials={"lake.ice": static, "lake.dead": dead},
    )
    with ms.open(sqlite_url) as store:
        store.schemas.create("lake.dead.a")
        pointer = {"metadata_location": "s3://dead/lake/a/t/metadata/x.metadata.json"}
        store.tables.create("lake.dead.a.t", format="iceberg", properties=pointer)
    with running(app) as (_, port), ThreadPoolExecutor(30) as clients:
        path = f"http://127.0.0.1:{port}/iceberg/v1"
        with httpx.Client(base_url=f"{path}/lake.ice", timeout=20) as client:
            client.post("/namespaces", json={"namespace": ["a"]})
            assert client.post("/namespaces/a/tables", json={"name": "before", "schema": SCHEMA}).status_code == 200
            url = f"{path}/lake.dead/namespaces/a/tables/t"
            asked = [clients.submit(httpx.get, url, timeout=120) for _ in range(30)]
            try:
                held += [silent.accept()[0] for _ in range(24)]  # all readers of that warehouse wait now
                for name in ("one", "two"):
                    made = client.post("/namespaces/a/tables", json={"name": name, "schema": SCHEMA})
                    assert made.status_code == 200
                    assert client.get(f"/namespaces/a/tables/{name}").status_code == 200
                assert not any(one.done() for one in asked)
            finally:
                silent.close()
                for one in held:
                    one.close()
        assert {one.result().status_code for one in asked} == {503}
