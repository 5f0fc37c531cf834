"""Object stores: what is in a bucket is found with few requests, and no secret is kept or shown."""

from __future__ import annotations

import http.client
import io
import os
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import fsspec
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import metastore as ms
from metastore.crawl import crawl
from metastore.crawl.dataset.candidates import candidates
from metastore.crawl.files import open as files
from metastore.crawl.files.discover import Listing, walk
from metastore.crawl.files.gone import is_gone
from metastore.crawl.files.places import base_name, join, location_of, path_of
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.infer import infer_file
from metastore.errors import InvalidArgument
from tests.crawl.conftest import Crawler
from tests.servers.s3 import FORBIDDEN, KEY, SECRET, S3Server

pytestmark = pytest.mark.one_in(3)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = pa.table({"id": [1, 2, 3], "city": ["x", None, "y"]})


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """Start an S3 server."""
    with S3Server() as running:
        yield running


@dataclass
class Bucket:
    """A bucket of its own."""

    server: S3Server
    name: str
    filesystem: Any

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        with self.filesystem.open_output_stream(f"{self.name}/{key}") as stream:
            stream.write(content)

    def put_raw(self, key: str, content: bytes) -> None:
        """Write an object in one request, whatever its key is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        connection.request("PUT", f"/{self.name}/{key}", content)
        assert connection.getresponse().status == 200
        connection.close()

    def parquet(self, key: str, table: pa.Table = TABLE, **options: Any) -> None:
        """Write a Parquet file."""
        buffer = io.BytesIO()
        pq.write_table(table, buffer, **options)
        self.put(key, buffer.getvalue())


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Give an empty bucket, which the environment leads to."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return new_bucket(server)


def new_bucket(server: S3Server) -> Bucket:
    name, filesystem = f"lake-{uuid.uuid4().hex[:12]}", server.filesystem()
    filesystem.create_dir(name)
    return Bucket(server, name, filesystem)


def names(listing: Listing) -> list[str]:
    return ["/".join((*folder.parts, file.name)) for folder in listing.folders for file in folder.files]


def look(listing: Listing) -> list[FileFacts | Unreadable]:
    return [
        infer_file(folder.path, file.name, file.size, listing.options)
        for folder in listing.folders
        for file in folder.files
    ]


def test_places_of_objects() -> None:
    uri = "s3://bucket/a b/c=1%2F"
    assert (location_of(uri), path_of(uri)) == (uri, uri)
    assert (location_of("/a b"), path_of("file:///a b")) == ("file:///a b", "/a b")
    assert join("s3://bucket", "a", "b") == "s3://bucket/a/b"
    assert (base_name("s3://bucket"), base_name(uri)) == ("bucket", "c=1%2F")


def test_a_bucket_is_found_with_one_listing(bucket: Bucket) -> None:
    for key in (
        "a/z.csv",
        "a/b/x.csv",
        "a/b c=1%2F/Ünï?x#+.json",
        "c.parquet",
        "x.txt",
        "a/_SUCCESS",
        "_delta_log/0.json",
    ):
        bucket.put(key, b"x")
    with bucket.server.requests() as requests:
        listing = walk([bucket.uri])
    assert names(listing) == ["c.parquet", "a/z.csv", "a/b/x.csv", "a/b c=1%2F/Ünï?x#+.json"]
    assert [folder.path for folder in listing.folders][-1] == f"{bucket.uri}/a/b c=1%2F"
    assert (listing.skipped, listing.failures, listing.options) == (1, [], {})
    assert all(file.size == 1 and file.mtime_ns > 10**18 for folder in listing.folders for file in folder.files)
    (request,) = requests.made
    assert "list-type=2" in request.query
    assert "delimiter" not in request.query


@pytest.mark.parametrize("at", ["", "s/t"])
def test_tables_of_other_formats_in_a_bucket(bucket: Bucket, at: str) -> None:
    for key in ("a=1/x.parquet", "_delta_log/00000000000000000000.json", "deletes/y.parquet"):
        bucket.put("/".join(filter(None, (at, key))), b"x")
    listing = walk([bucket.uri])
    assert (listing.folders, listing.skipped) == ([], 0)
    assert [f.path for f in listing.failures] == ["/".join(filter(None, (bucket.uri, at)))]
    assert listing.failures[0].reason.startswith("is a table in the format Delta")


def test_a_key_that_is_also_a_folder_is_a_failure(bucket: Bucket, crawler: Crawler) -> None:
    bucket.parquet("s/t.parquet")
    bucket.parquet("s/t.parquet/a.parquet", pa.table({"x": [1]}))
    bucket.put("s/u.csv", b"a\n1\n")
    bucket.put("s/u.csv/readme.txt", b"x")  # no data set
    root: Any = bucket.uri
    for attempts in (True, False):
        report = crawler.crawl(root)
        assert [(f.path, f.reason) for f in report.failures] == [
            (f"{bucket.uri}/s/t.parquet", "is also a folder with files in it; rename one of the two")
        ]
        assert (report.tables, bool(report.attempts)) == (2, attempts)


def test_a_prefix_in_pages(bucket: Bucket) -> None:
    for n in range(1001):
        bucket.put_raw(f"lake/part/{n:04}.csv", b"")
    bucket.put("lakeside/other.csv", b"x")
    with bucket.server.requests() as requests:
        listing = walk([f"{bucket.uri}/lake/"])
    (folder,) = listing.folders
    assert (folder.root, folder.parts, len(folder.files)) == (f"{bucket.uri}/lake", ("part",), 1001)
    assert [file.name for file in folder.files] == sorted(file.name for file in folder.files)
    assert len(requests.made) == 2


def test_what_stands_for_a_folder_is_no_file(bucket: Bucket) -> None:
    for folder in ("t.parquet", "u.parquet"):
        bucket.put_raw(f"a/{folder}/" if folder[0] == "t" else f"a/{folder}", b"")
        bucket.parquet(f"a/{folder}/part-0.parquet")
    assert names(walk([bucket.uri])) == ["a/t.parquet/part-0.parquet", "a/u.parquet/part-0.parquet"]


def test_a_single_object_and_an_empty_folder(bucket: Bucket) -> None:
    bucket.parquet("a/x.parquet")
    bucket.put("a/x.txt", b"x")
    bucket.filesystem.create_dir(f"{bucket.name}/empty")
    (folder,) = walk([f"{bucket.uri}/a/x.parquet"]).folders
    assert (folder.path, folder.whole, [file.name for file in folder.files]) == (
        f"{bucket.uri}/a",
        False,
        ["x.parquet"],
    )
    assert walk([f"{bucket.uri}/a/x.txt"]).skipped == 1
    assert walk([f"{bucket.uri}/empty"]).folders == []


def test_what_is_not_there_and_what_cannot_be_listed(bucket: Bucket) -> None:
    bucket.put("a/x.csv", b"x")
    with pytest.raises(InvalidArgument, match=r"no folder or file s3://.*/missing;"):
        walk([f"{bucket.uri}/a", f"{bucket.uri}/missing"])
    with pytest.raises(InvalidArgument, match="no folder or file"):
        walk([f"{bucket.uri}-not"])
    listing = walk([f"s3://{FORBIDDEN}/a", bucket.uri])
    (failure,) = listing.failures
    assert names(listing) == ["a/x.csv"]
    assert failure.path == f"s3://{FORBIDDEN}/a"
    assert failure.reason.startswith("cannot be listed: ")
    assert "ACCESS_DENIED" in failure.reason
    assert "Request ID" not in failure.reason


def test_keys_that_are_no_paths(bucket: Bucket) -> None:
    for key in ("a//x.csv", "a/../y.csv", "a/z.csv"):
        bucket.put_raw(key, b"a,b\n1,2\n")
    listing = walk([bucket.uri])
    assert names(listing) == ["a/z.csv"]
    assert sorted(failure.path for failure in listing.failures) == [
        f"{bucket.uri}/a/../y.csv",
        f"{bucket.uri}/a//x.csv",
    ]


def test_paths_in_each_other(bucket: Bucket) -> None:
    bucket.put("a/x.csv", b"x")
    bucket.put("b/x.csv", b"x")
    listing = walk([f"{bucket.uri}/a", bucket.uri, bucket.uri + "/"])
    assert [(folder.root, folder.parts) for folder in listing.folders] == [
        (f"{bucket.uri}/a", ()),
        (bucket.uri, ("b",)),
    ]
    assert [note.path for note in listing.notes] == [bucket.uri]


def test_patterns_in_a_bucket(bucket: Bucket) -> None:
    for key in ("a/x.csv", "a/old/x.csv", "b/x.csv", "b/y.json"):
        bucket.put(key, b"x")
    listing = walk([bucket.uri], include=["**/*.csv"], exclude=["**/old"])
    assert names(listing) == ["a/x.csv", "b/x.csv"]
    assert listing.left_out == {f"{bucket.uri}/a/old", f"{bucket.uri}/b"}


def test_footers_take_two_requests_each(bucket: Bucket) -> None:
    """One for the size, one for the end of the file; as many for ORC."""
    buffer = io.BytesIO()
    pyarrow.orc.write_table(TABLE, buffer)
    bucket.put("o.orc", buffer.getvalue())
    big = pa.table({"n": pa.array(range(400_000)), "t": pa.array([os.urandom(8) for _ in range(400_000)])})
    bucket.parquet("big.parquet", big, compression="none")
    bucket.parquet("small.parquet")
    listing = walk([bucket.uri])
    assert max(file.size for file in listing.folders[0].files) > 4 << 20
    with bucket.server.requests() as requests:
        found = {file.name: file for file in look(listing) if isinstance(file, FileFacts)}
    assert {name: file.rows for name, file in found.items()} == {"o.orc": 3, "big.parquet": 400_000, "small.parquet": 3}
    assert (found["small.parquet"].stats["id"].low, found["small.parquet"].stats["id"].high) == (1, 3)
    for name in ("big.parquet", "small.parquet", "o.orc"):
        assert [r.method for r in requests.made if r.path.endswith(name)] == ["HEAD", "GET"], name


def test_text_and_avro_are_fetched_once(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    fastavro.writer(buffer, schema, [{"a": n} for n in range(10_000)], sync_interval=1000)
    bucket.put("a.avro", buffer.getvalue())
    bucket.put("c.csv", b"a,b\n" + b"1,x\n" * 200_000)
    bucket.put("j.json", b'{"a": 1}\n' * 1000)
    listing = walk([bucket.uri])
    with bucket.server.requests() as requests:
        found = {file.name: file.rows for file in look(listing) if isinstance(file, FileFacts)}
    assert found == {"a.avro": 10_000, "c.csv": 200_000, "j.json": 1000}
    assert len(requests.made) == 6
    monkeypatch.setattr(files, "_SMALL", 1 << 10)  # as if they were too large for that
    monkeypatch.setattr(files, "_BLOCK", 1 << 12)
    with bucket.server.requests() as requests:
        assert {file.name: file.rows for file in look(listing) if isinstance(file, FileFacts)} == found
    parts = [r.range for r in requests.made if r.method == "GET" and r.path.endswith("a.avro")]
    assert len(parts) == -(-len(buffer.getvalue()) // files._BLOCK)


def test_an_object_that_is_gone_or_cannot_be_reached(bucket: Bucket) -> None:
    for name in ("x.csv", "x.parquet", "x.avro", "x.orc"):
        assert infer_file(bucket.uri, name, 10) == Unreadable(name, "is gone: it was there when the folder was listed")
    for name in ("x.csv", "x.parquet", "x.avro", "x.orc"):
        found = infer_file(f"s3://{FORBIDDEN}", name, 10)
        assert isinstance(found, Unreadable)
        assert found.reason.startswith("cannot be read: ")


def test_is_gone(bucket: Bucket) -> None:
    bucket.parquet("a/x.parquet")
    assert not is_gone(f"{bucket.uri}/a")
    assert not is_gone(f"{bucket.uri}/a/x.parquet")
    assert is_gone(f"{bucket.uri}/b")
    assert not is_gone(f"s3://{FORBIDDEN}/a")
    assert not is_gone("zzz://bucket/a")


def test_options_of_a_uri_reach_the_readers_and_nobody_else(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = new_bucket(server)
    bucket.parquet("a b/x.parquet")
    user = "AKIAOTHER"
    secret = SECRET.replace("/", "%2F").replace("+", "%2B").replace("=", "%3D")
    with server.requests() as requests:
        listing = walk([f"s3://{user}:{secret}@{bucket.name}/a b/?{server.query}"])
        (found,) = look(pickle.loads(pickle.dumps(listing)))
    assert isinstance(found, FileFacts)
    assert {request.key for request in requests.made} == {user}
    assert listing.roots == [f"{bucket.uri}/a b"]
    assert listing.folders[0].path == f"{bucket.uri}/a b"
    assert list(listing.options) == [bucket.uri]
    shown = repr((listing, found, candidates(listing, ("lake", "main"))))
    for hidden in (secret, SECRET, user, str(server.port), "endpoint_override"):
        assert hidden not in shown


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://{KEY}:{SECRET}@bucket/a",  # not percent-encoded
        f"s3://{KEY}:1234/top@bucket/a",
        f"s3://{KEY}:top%20secret@bucket/a?secret_key=topsecret",
        f"s3://{KEY}:top secret@bucket/a",
        "s3://bucket/a?scheme=topsecret&region=x",
        "s3:///a?secret=topsecret",
        "gs://top:secret@bucket/a",
        "zzz://top:secret@bucket/a?token=topsecret",
        "abfs://top:secret@bucket/a?token=topsecret",
    ],
)
def test_a_bad_uri_is_the_callers_mistake_and_is_not_repeated(uri: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        walk([uri])
    assert uri.partition(":")[0] in str(caught.value)
    for hidden in (KEY, KEY.lower(), SECRET[:6], "1234", "top", "secret@"):
        assert hidden not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_half_a_uri(server: S3Server) -> None:
    for path in (Path(f"s3://{KEY}:topsecret@bucket/a"), f"s3:/{KEY}:topsecret@bucket/a"):
        with pytest.raises(InvalidArgument, match="begins like s3://") as caught:
            walk([path])
        assert "topsecret" not in str(caught.value)


def test_paths_of_one_bucket_with_different_options(server: S3Server) -> None:
    bucket = new_bucket(server)
    with pytest.raises(InvalidArgument, match="different options"):
        walk([f"{bucket.uri}/a?{server.query}", f"{bucket.uri}/b?{server.query}&tls_verify_certificates=false"])


def test_other_schemes_go_through_fsspec() -> None:
    store = fsspec.filesystem("memory")
    buffer = io.BytesIO()
    pq.write_table(TABLE, buffer)
    place = uuid.uuid4().hex
    store.pipe(f"/{place}/lake/a=1/x.parquet", buffer.getvalue())
    store.pipe(f"/{place}/lake/y.csv", b"a,b\n1,2\n")
    listing = walk([f"memory://{place}/lake"])
    assert names(listing) == ["y.csv", "a=1/x.parquet"]
    assert [folder.path for folder in listing.folders] == [f"memory://{place}/lake", f"memory://{place}/lake/a=1"]
    assert [file.rows for file in look(listing) if isinstance(file, FileFacts)] == [1, 3]
    assert is_gone(f"memory://{place}/other")
    before = [file for folder in listing.folders for file in folder.files]
    store.pipe(f"/{place}/lake/y.csv", b"a,b\n3,4\n")  # there are no times, but it is another file
    after = [file for folder in walk([f"memory://{place}/lake"]).folders for file in folder.files]
    (alone,) = walk([f"memory://{place}/lake/y.csv"]).folders
    assert after[0].size == before[0].size
    assert after[0].etag != before[0].etag
    assert after[1] == before[1]
    assert alone.files == (after[0],)
    store.rm(f"/{place}", recursive=True)


def test_a_package_that_is_missing_is_named() -> None:
    pytest.importorskip("fsspec")
    try:
        import gcsfs  # type: ignore[import-not-found] # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(InvalidArgument, match=r"dropbox:// needs a package .*dropbox"):
            walk(["dropbox://bucket/lake"])


def test_a_crawl_of_a_bucket(bucket: Bucket, crawler: Crawler) -> None:
    for month in (1, 2):
        bucket.parquet(f"lake/nyc/flights/month={month}/x.parquet")
    bucket.put("lake/nyc/cars.csv", b"a,b\n1,x\n")
    root: Any = f"{bucket.uri}/lake"
    report = crawler.crawl(root)
    assert (report.created, report.failures) == (2, ())
    table = crawler.table("nyc.flights")
    assert table.location == f"{bucket.uri}/lake/nyc/flights"
    assert sorted(crawler.partitions("nyc.flights")) == ["month=1", "month=2"]
    writes = crawler.writes()
    assert crawler.crawl(root).unchanged == 2
    assert crawler.writes() == writes


def test_a_crawl_on_spark_keeps_no_secret(
    spark: SparkSession, server: S3Server, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors read with the options of the URI; neither catalog nor report has them."""
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    bucket = new_bucket(server)
    bucket.parquet("lake/nyc/flights/month=1/x.parquet")
    bucket.put("lake/nyc/bad.parquet", b"no")
    bucket.put("lake/nyc/cars/x.csv", b"a,b\n1,x\n")
    uri = f"s3://AKIAOTHER:topsecret@{bucket.name}/lake?{server.query}"
    with server.requests() as requests:
        report = crawl([uri], "lake.main", sqlite_url)
    assert (report.created, len(report.failures)) == (2, 1)
    assert {request.key for request in requests.made} == {"AKIAOTHER"}
    with ms.open(sqlite_url) as store:
        assert store.tables.load("lake.main.nyc.flights").location == f"{bucket.uri}/lake/nyc/flights"
        changes = repr(list(store.changes()))
    assert crawl([uri], "lake.main", sqlite_url).unchanged == 2
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert bucket.name.encode() in kept
    for hidden in ("topsecret", "AKIAOTHER", "endpoint_override", f"127.0.0.1:{server.port}"):
        assert hidden not in changes + repr(report)
        assert hidden.encode() not in kept


def test_what_is_gone_is_asked_with_the_options(
    server: S3Server, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table is not moved while its files are where they were; where nobody else could look."""
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    bucket = new_bucket(server)
    options = {bucket.uri: f"s3://{KEY}:x@{bucket.name}?{server.query}"}
    bucket.parquet("a/s/t/x.parquet")
    bucket.parquet("b/s/t/y.parquet", pa.table({"id": [7], "city": ["z"]}))
    assert not is_gone(f"{bucket.uri}/a", options)
    assert is_gone(f"{bucket.uri}/c", options)
    paths: list[Any] = [f"s3://{KEY}:x@{bucket.name}/{root}?{server.query}" for root in ("a", "b")]
    crawler.crawl(paths[0])
    with server.requests() as requests:
        report = crawler.crawl(paths[1], moved_from=paths[0])
    assert "is the table of" in report.failures[0].reason
    assert crawler.table("s.t").location == f"{bucket.uri}/a/s/t"
    assert any(request.path.endswith("/a/s/t") for request in requests.made)
