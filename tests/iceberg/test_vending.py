"""Each client gets a key of S3 that ends soon, and opens the files of one table, by its user's rights on it."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import boto3
import httpx
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.rest import RestCatalog

import metastore as ms
from metastore.clock import SYSTEM
from metastore.serve import Sts
from metastore.serve.iceberg import kept_keys, tables
from metastore.serve.iceberg.credentials import CannotVend
from metastore.serve.iceberg.kept_keys import Made
from metastore.serve.iceberg.policy import session_policy
from metastore.serve.iceberg.rights import READS, RIGHTS, WRITES
from tests.iceberg.server import served
from tests.iceberg.test_rest import MADE, SCHEMA
from tests.iceberg.vending_users import DELEGATION, TABLES, key_of, served_users
from tests.servers.listening import Missing
from tests.servers.minio import Minio
from tests.servers.policies import allows
from tests.servers.process import wait_until
from tests.servers.s3 import KEY, SECRET, S3Server

pytestmark = pytest.mark.one_in(3)

ROLE = "arn:aws:iam::123456789012:role/lake"
ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


@pytest.mark.parametrize("name", ["t", "t*", "a?c", "${aws:username}", "${*}", "100$", "$*", "Zürich 東"])
def test_a_policy_opens_one_table(name: str) -> None:
    """Neither what is beside it, nor what a pattern in its name would mean, nor more than the right allows."""
    place, bucket = f"lake/{name}", "arn:aws:s3:::bkt"
    policies = {right: session_policy(f"s3://bkt/{place}", [right], ROLE) or "" for right in RIGHTS}
    both = session_policy(f"s3a://bkt/{place}/", RIGHTS, ROLE) or ""
    assert both.isascii()
    own = [f"{bucket}/{place}/data/1.parquet", f"{bucket}/{place}/{name}"]
    beside = ["lake/other/x", f"{place}2/x", place, "x", "lake/", "lake/tt/x", "lake/abc/x", "lake/eve/x", "lake/100/x"]
    others = [*(f"{bucket}/{key}" for key in beside), f"arn:aws:s3:::bkt2/{place}/x", f"arn:aws:s3:::bktb/{place}/x"]
    reads, writes = ["s3:GetObject"], ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    never = ["s3:PutObjectAcl", "s3:GetObjectVersion", "s3:DeleteBucket", "s3:PutBucketPolicy", "sts:AssumeRole"]
    for action in [*reads, *writes, *never]:
        for resource in [*own, *others, bucket]:
            mine = resource in own
            assert allows(policies[READS], action, resource) == (mine and action in reads), (action, resource)
            assert allows(policies[WRITES], action, resource) == (mine and action in writes), (action, resource)
            assert allows(both, action, resource) == (mine and action in reads + writes), (action, resource)
    for prefix in (f"{place}/", f"{place}/data"):
        assert allows(both, "s3:ListBucket", bucket, prefix=prefix)
        assert not allows(both, "s3:ListBucket", "arn:aws:s3:::bkt2", prefix=prefix)
        assert not allows(policies[WRITES], "s3:ListBucket", bucket, prefix=prefix)
    for prefix in ("", "lake/", place, f"{place}2/", "lake/tt/", "lake/abc/", "lake/eve/"):
        assert not allows(both, "s3:ListBucket", bucket, prefix=prefix)
    assert not allows(both, "s3:ListBucket", bucket)


def test_a_location_that_no_policy_names_gets_no_key() -> None:
    for location in (
        "s3://bkt",
        "s3://bkt/",
        "s3://*/t",
        "s3://b*/t",
        "file:///b/t",
        "gs://bkt/t",
        "s3://bkt//t",
        "s3://bkt/a/../t",
    ):
        assert session_policy(location, RIGHTS, ROLE) is None, location
    assert session_policy("s3://bkt/t", (), ROLE) is None
    sizes = [len(session_policy(f"s3://bkt/{'*' * n}", RIGHTS, ROLE) or "") for n in range(1, 400)]
    assert 2000 < max(sizes) <= 2048
    assert sizes[-1] == 0
    assert "arn:aws-cn:s3:::bkt/t/*" in (session_policy("s3://bkt/t", RIGHTS, ROLE.replace(":aws:", ":aws-cn:")) or "")


ENFORCED = pytest.mark.parametrize("s3", [S3Server, pytest.param(Minio, marks=pytest.mark.long)], indirect=True)
"""MinIO judges the policies itself; for moto, our own reading of IAM's documentation does it."""


@pytest.fixture(scope="module")
def s3(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    server: S3Server = getattr(request, "param", S3Server)()
    try:
        server.start()
        yield server
    except Missing as missing:
        pytest.skip(str(missing))
    finally:
        server.stop()


@pytest.fixture
def lake(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"lake-{uuid4().hex[:12]}"
    s3.filesystem().create_dir(name)
    monkeypatch.setenv("LAKE_KEY", KEY)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    return f"s3://{name}/lake"


def vendor(s3: S3Server, endpoint: str | None = None) -> Sts:
    own = {"s3.endpoint": s3.url, "s3.region": "us-east-1"}
    keys = {"s3.access-key-id": "secret:env:LAKE_KEY", "s3.secret-access-key": "secret:env:LAKE_SECRET"}
    other = {"client.secret-access-key": "secret:env:LAKE_SECRET"}  # no client gets this either
    return Sts(ROLE, properties={**own, **keys, **other}, endpoint=endpoint or s3.url, duration=900)


@pytest.fixture
def users(sqlite_url: str, lake: str, tmp_path: Path, s3: S3Server) -> Iterator[dict[str, httpx.Client]]:
    with served_users(sqlite_url, lake, tmp_path, vendor(s3)) as clients:
        yield clients


def with_key(config: dict[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=config["s3.endpoint"],
        region_name=config["s3.region"],
        aws_access_key_id=config["s3.access-key-id"],
        aws_secret_access_key=config["s3.secret-access-key"],
        aws_session_token=config.get("s3.session-token"),
    )


@ENFORCED
def test_a_stolen_key(users: dict[str, httpx.Client], lake: str, s3: S3Server) -> None:
    """It does with the table what its user may do, and nothing elsewhere."""
    places = {name: users["root"].get(f"{TABLES}/{name}").json()["metadata"]["location"] for name in ("t", "t2")}
    bucket = lake.split("/")[2]
    own, other = (place.removeprefix(f"s3://{bucket}/") for place in (places["t"], places["t2"]))
    s3.filesystem().create_dir(f"{bucket}-2")
    keys = {user: key_of(users[user].get(f"{TABLES}/t")) for user in ("ann", "bob", "cy")}
    place = {key: keys["cy"][key] for key in ("s3.endpoint", "s3.region")}
    root = with_key({**place, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET})
    thieves = {user: with_key(key) for user, key in keys.items()}
    for key in (f"{own}/data/1", f"{own}2/1", f"{other}/data/1", "1"):
        root.put_object(Bucket=bucket, Key=key, Body=b"x")

    def may(user: str, operation: str, **arguments: Any) -> bool:
        try:
            getattr(thieves[user], operation)(**{"Bucket": bucket, **arguments})
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 403:
                raise
            return False
        return True

    def who(operation: str, **arguments: Any) -> str:
        return "".join(user[0] for user in keys if may(user, operation, **arguments))

    upload = root.create_multipart_upload(Bucket=bucket, Key=f"{own}/data/2")["UploadId"]
    assert who("get_object", Key=f"{own}/data/1") == "ac"
    assert who("list_objects_v2", Prefix=f"{own}/") == "ac"
    assert who("put_object", Key=f"{own}/data/1") == "bc"
    assert who("upload_part", Key=f"{own}/data/2", UploadId=upload, PartNumber=1, Body=b"x") == "bc"
    assert who("copy_object", Key=f"{own}/data/3", CopySource=f"{bucket}/{own}/data/1") == "c"
    for key in (f"{other}/data/1", f"{own}2/1", "1", own):
        for operation in ("get_object", "put_object", "delete_object", "create_multipart_upload"):
            assert who(operation, Key=key) == "", (operation, key)
        assert who("copy_object", Key=f"{own}/stolen", CopySource=f"{bucket}/{key}") == ""
        assert who("copy_object", Key=key, CopySource=f"{bucket}/{own}/data/1") == ""
        who("delete_objects", Delete={"Objects": [{"Key": key}]})  # its answer may be 200, with an error for each key
        assert who("list_objects_v2", Prefix=key) == ""
    assert root.list_objects_v2(Bucket=bucket, Prefix=f"{own}2/")["KeyCount"] == 1
    assert root.list_objects_v2(Bucket=bucket, Prefix=f"{other}/data/")["KeyCount"] == 1
    assert who("list_objects_v2") == who("list_multipart_uploads") == who("delete_bucket") == ""
    assert who("put_object", Bucket=f"{bucket}-2", Key=f"{own}/data/1") == ""
    assert who("list_objects_v2", Bucket=f"{bucket}-2", Prefix=f"{own}/") == ""
    assert who("delete_object", Key=f"{own}/data/1") == "bc"


def test_a_key_is_kept_for_half_of_its_life_and_never_given_to_who_lost_the_right(
    users: dict[str, httpx.Client],
    sqlite_url: str,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, clock = f"{TABLES}/t", _Later()
    caplog.set_level(logging.INFO, "metastore.audit")
    monkeypatch.setattr(kept_keys, "SYSTEM", clock)
    with s3.requests() as requests, ThreadPoolExecutor(8) as threads:
        found = [key_of(one) for one in threads.map(users["cy"].get, [path] * 8)]
    assert len({one["s3.access-key-id"] for one in found}) == 1
    assert len([request for request in requests.made if request.form]) == 1
    first = found[0]
    assert abs(int(first["s3.session-token-expires-at-ms"]) / 1000 - SYSTEM.micros() / 1e6 - 900) < 300
    assert SECRET not in first.values()
    with s3.requests() as requests:
        others = [
            key_of(users[user].get(f"{TABLES}/{table}")) for user, table in (("cy", "t2"), ("ann", "t"), ("bob", "t"))
        ]
    assert len({one["s3.access-key-id"] for one in [first, *others]}) == 4
    forms = [request.form for request in requests.made if request.form]
    assert [(one["RoleSessionName"], one["RoleArn"], one["DurationSeconds"]) for one in forms] == [
        (user, ROLE, "900") for user in ("cy", "ann", "bob")
    ]
    told = [json.loads(one.getMessage()) for one in caplog.records if one.name == "metastore.audit"]
    assert [one["right"] for one in told] == ["select_table, modify_table"] * 9 + [READS, WRITES]
    location = users["root"].get(path).json()["metadata"]["location"]
    assert [one["Policy"] for one in forms[1:]] == [session_policy(location, [right], ROLE) for right in RIGHTS]
    endpoint = first["client.refresh-credentials-endpoint"]
    assert endpoint == "v1/lake.ice/namespaces/a/tables/t/credentials"
    again = str(users["cy"].base_url).removesuffix("v1/lake.ice/") + endpoint
    plain = {"Authorization": "Bearer token-of-cy"}  # Java's clients send no header of delegation when they renew
    clock.ahead = 420.0
    assert key_of(httpx.get(again, headers=plain)) == first
    clock.ahead = 451.0
    second = key_of(httpx.get(again, headers=plain))
    assert second["s3.access-key-id"] != first["s3.access-key-id"]
    with ms.open(sqlite_url) as store:
        assert store.roles.revoke(("lake", "of-cy"), WRITES, on="lake.ice")
        with s3.requests() as requests:
            reader = key_of(httpx.get(again, headers=plain))
        (asked,) = [request.form["Policy"] for request in requests.made if request.form]
        assert "s3:PutObject" not in asked
        assert reader != second
        assert store.roles.revoke(("lake", "of-cy"), READS, on="lake.ice")
    for answer in (httpx.get(again, headers=plain), users["cy"].get(path)):
        assert answer.status_code == 404
        assert "s3." not in answer.text


def test_a_table_that_takes_the_name_of_another_opens_nothing_of_it(
    users: dict[str, httpx.Client], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the read of the location and that of the rights, ann makes a table of this name: she owns it."""
    really, path, first = tables.named, f"{TABLES}/t", [True]
    moved = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "old"}}
    with ms.open(sqlite_url) as store:
        store.roles.grant(("lake", "of-ann"), "create_table", on="lake.ice")

    def late(call: Any) -> Any:
        if first and first.pop():
            assert users["root"].post("/tables/rename", json=moved).status_code == 204
            assert users["ann"].post(TABLES, json={"name": "t", "schema": SCHEMA}).status_code == 200
        return really(call)

    monkeypatch.setattr(tables, "named", late)
    answer = users["ann"].get(path)
    assert (answer.status_code, "s3." in answer.text) == (503, False)
    assert key_of(users["ann"].get(path))


def test_who_staged_a_table_gets_no_key_for_it_once_it_was_made(
    users: dict[str, httpx.Client], sqlite_url: str
) -> None:
    """Its folder stays known to who staged it, and its name is free again when it is renamed."""
    body = {"name": "mine", "schema": SCHEMA, "stage-create": True}
    place = users["cy"].post(TABLES, json=body).json()["metadata"]["location"]
    assert key_of(users["cy"].post(TABLES, json={**body, "location": place}))
    updates = [*MADE, {"action": "set-location", "location": place}]
    creation = {"requirements": [{"type": "assert-create"}], "updates": updates}
    assert users["cy"].post(f"{TABLES}/mine", json=creation).status_code == 200
    with ms.open(sqlite_url) as store:
        store.owners.set("lake.ice.a.mine", "lake.bob")
        store.tables.rename("lake.ice.a.mine", "lake.ice.a.hers")
        for right in RIGHTS:
            store.roles.revoke("lake.of-cy", right, on="lake.ice")
    assert users["cy"].get(f"{TABLES}/hers").status_code == 404
    for folder in (place, f"{place}/data"):
        answer = users["cy"].post(TABLES, json={**body, "location": folder})
        assert (answer.status_code, "s3." in answer.text) == (403, False), answer.text
    assert key_of(users["cy"].post(TABLES, json=body))


class _Later:
    """The system's clock, with a monotonic one that is ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return SYSTEM.monotonic() + self.ahead


@ENFORCED
def test_pyiceberg_writes_and_reads_with_keys_of_its_tables(sqlite_url: str, lake: str, s3: S3Server) -> None:
    """The table of an odd name too, and a staged one, whose key comes before the table."""
    with served(sqlite_url, lake, credentials=vendor(s3)) as address:
        catalog = RestCatalog("x", uri=address, warehouse="lake.ice")
        catalog.create_namespace("a")
        for name in ("t", "100$"):
            catalog.create_table(("a", name), ROWS.schema).append(ROWS)
            table = catalog.load_table(("a", name))
            assert table.scan().to_arrow().num_rows == 2
            renewed = catalog.load_credentials(("a", name), table.metadata_location)
            assert renewed.items() <= table.io.properties.items()
            assert KEY not in renewed.values()
        with catalog.create_table_transaction("a.u", ROWS.schema) as staged:
            staged.append(ROWS)
        assert catalog.load_table("a.u").scan().to_arrow().num_rows == 2
        odd = catalog.create_table(("a", "o*d ${d}"), ROWS.schema)
        renewed_at = odd.io.properties["client.refresh-credentials-endpoint"]
        assert key_of(httpx.get(f"{address}/{renewed_at}")).items() <= odd.io.properties.items()
        with pytest.raises(OSError, match="ACCESS_DENIED") if isinstance(s3, Minio) else nullcontext():
            odd.append(ROWS)  # MinIO does not know how IAM writes a star: such a key opens nothing there


def test_a_load_that_waits_for_a_key_stops_no_other(
    sqlite_url: str, lake: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call runs on a thread of its own, not on the event loop."""
    asked, go_on, really = Event(), Event(), Sts._make

    def slow(*arguments: Any) -> Made:
        asked.set()
        assert go_on.wait(60)
        return really(*arguments)

    with (
        served(sqlite_url, lake, credentials=vendor(s3)) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        client.post(TABLES, json={"name": "t", "schema": SCHEMA})
        monkeypatch.setattr(kept_keys, "_PATIENCE", 60.0)
        monkeypatch.setattr(Sts, "_make", slow)
        waiting = threads.submit(client.get, f"{TABLES}/t", headers=DELEGATION)
        try:
            assert asked.wait(60)
            assert client.get(f"{TABLES}/t").status_code == 200
            assert not waiting.done()
        finally:
            go_on.set()
        assert key_of(waiting.result())


def test_a_token_service_that_refuses_or_says_nothing(
    sqlite_url: str,
    lake: str,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    """A load that asks for a key is 503, soon, and says no secret; others go on."""
    silent = socket.create_server(("127.0.0.1", 0))
    request.addfinalizer(silent.close)
    for endpoint, patience, said in (
        (f"http://127.0.0.1:{silent.getsockname()[1]}", 0.3, "did not answer within 0.3 s"),
        (f"{s3.url}/forbidden", 20.0, "refused AssumeRole of arn:aws:iam::123456789012:role/lake: AccessDenied"),
    ):
        monkeypatch.setattr(kept_keys, "_PATIENCE", patience)
        caplog.clear()
        with (
            served(sqlite_url, lake, credentials=vendor(s3, endpoint)) as address,
            httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=20) as client,
        ):
            client.post("/namespaces", json={"namespace": ["a"]})
            made = client.post(TABLES, json={"name": f"t{len(said)}", "schema": SCHEMA}, headers=DELEGATION)
            assert (made.status_code, made.json()["config"]) == (200, {})
            answer = client.get(f"{TABLES}/t{len(said)}", headers=DELEGATION)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert client.get(f"{TABLES}/t{len(said)}").status_code == 200
            assert said in caplog.text
            assert not any(secret in text for secret in (SECRET, KEY) for text in (answer.text, caplog.text))


def test_calls_that_nobody_waits_for_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the token service answers again, the next client waits for none of them."""
    monkeypatch.setattr(kept_keys, "_PATIENCE", 0.02)
    monkeypatch.setattr(kept_keys, "_THREADS", 1)
    monkeypatch.setattr(kept_keys, "_MOST", 6)
    begun, go_on = list[str](), Event()

    def slow(_: Sts, policy: str, principal: str) -> Made:
        begun.append(principal)
        assert go_on.wait(60)
        return Made({"policy": policy}, 3600.0)

    monkeypatch.setattr(Sts, "_make", slow)
    service = Sts(ROLE, properties={"s3.region": "x"})
    for user in ("ann", *[f"user{number}" for number in range(5)], "ann"):  # the last one joins the first one's call
        with pytest.raises(CannotVend, match="did not answer"):
            service.vend("s3://bkt/t", user)
    with pytest.raises(CannotVend, match="6 requests wait"):
        service.vend("s3://bkt/t", "one too many")
    go_on.set()
    monkeypatch.setattr(kept_keys, "_PATIENCE", 60.0)
    assert wait_until(lambda: service._kept._open == 0, 60)
    assert service.vend("s3://bkt/t", "next") is not None
    assert service.vend("s3://bkt/t", "ann") is not None  # its call has an answer by now
    assert begun == ["ann", "next"]


@pytest.mark.parametrize(
    ("role", "duration", "properties", "word"),
    [
        ("lake", 900.0, {"s3.region": "x"}, "an ARN"),
        (ROLE, 60.0, {"s3.region": "x"}, "15 minutes"),
        (ROLE, 900.0, {"s3.region": "x", "s3.session-token": "plain"}, "secret:env:NAME"),
        (ROLE, 900.0, {}, "s3.region"),
    ],
)
def test_what_the_operator_writes_is_checked(
    role: str, duration: float, properties: dict[str, str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    with pytest.raises(ms.InvalidArgument, match=word):
        Sts(role, duration=duration, properties=properties)
