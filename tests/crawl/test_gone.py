"""What a listing lacks is not gone: its own location is asked before a table or a partition is taken away."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from metastore.crawl.files.gone import is_gone
from tests.crawl.conftest import Between, Crawler
from tests.crawl.test_object_store import Bucket, new_bucket
from tests.servers.s3 import S3Server

WRONG = {
    "404": (404, b"<Error><Code>NoSuchBucket</Code></Error>"),
    "nothing": (200, b""),
    "html": (200, b"<html><body>Sign in</body></html>"),
}
_KEY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)


class Proxy(ThreadingHTTPServer):
    """A proxy before an S3 server: pages have three keys, and while it is ``wrong`` each later page is that answer.

    ``wrong`` = "twice": the second page has the keys of the first one, too.
    """

    def __init__(self, server: S3Server) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.wrong, self.first = server.port, "", b""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        lists = "list-type=2" in self.path
        later = lists and "continuation-token" in self.path
        if later and self.server.wrong in WRONG:
            self._answer(*WRONG[self.server.wrong], {})
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        path = re.sub(r"max-keys=\d\d+", "max-keys=3", self.path)
        behind.request(self.command, path, body, dict(self.headers))
        answer = behind.getresponse()
        data, headers = answer.read(), dict(answer.getheaders())
        if later and self.server.wrong == "twice":
            data = data.replace(b"<Contents>", b"".join(_KEY.findall(self.server.first)) + b"<Contents>", 1)
            headers["Content-Length"] = str(len(data))
        self.server.first = data if lists and not later else self.server.first
        self._answer(answer.status, data, headers)
        behind.close()

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        known = {
            name: text for name, text in headers.items() if name.lower() not in ("transfer-encoding", "connection")
        }
        for name, text in ({"Content-Length": str(len(body))} | known).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = _pass_on  # noqa: N815 (their names)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with Proxy(server) as between:
        thread = threading.Thread(target=between.serve_forever, daemon=True)
        thread.start()
        yield between
        between.shutdown()
        thread.join()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_page_that_is_lost_takes_nothing_away(crawler: Crawler, server: S3Server, proxy: Proxy, wrong: str) -> None:
    bucket: Bucket = new_bucket(server)
    for name in "cde":
        bucket.parquet(f"lake/s/{name}/x.parquet")
    for month in (1, 2, 3):
        bucket.parquet(f"lake/s/b/month={month}/x.parquet")
    root: Any = f"{bucket.uri}/lake?endpoint_override=127.0.0.1:{proxy.server_port}&scheme=http&region=us-east-1"
    assert crawler.crawl(root).created == 4
    before = {path: crawler.table(f"s.{path}") for path in "bcde"}
    proxy.wrong = wrong
    report = crawler.crawl(root, on_missing="drop", max_missing=1)
    assert (report.missing, report.dropped, report.partitions_removed) == (0, 0, 0)
    assert {path: crawler.table(f"s.{path}") for path in "bcde"} == before
    assert set(crawler.partitions("s.b")) == {"month=1", "month=2", "month=3"}
    if wrong == "404":
        assert [failure.reason[:16] for failure in report.failures] == ["cannot be listed"]
    else:
        assert any("was not listed" in note.text for note in report.notes)
    proxy.wrong = ""
    report = crawler.crawl(root)
    assert (report.tables, report.failures, report.notes) == (4, (), ())
    assert crawler.seen("s.b")["rows"] == 9
    assert crawler.crawl(root).attempts == 0


def test_a_page_that_comes_twice_counts_no_file_twice(crawler: Crawler, server: S3Server, proxy: Proxy) -> None:
    bucket: Bucket = new_bucket(server)
    for name in "abcdefg":
        bucket.parquet(f"lake/s/t/{name}.parquet")
    root: Any = f"{bucket.uri}/lake?endpoint_override=127.0.0.1:{proxy.server_port}&scheme=http&region=us-east-1"
    proxy.wrong = "twice"
    assert (crawler.crawl(root).files, crawler.seen("s.t")["rows"]) == (7, 21)
    proxy.wrong = ""
    assert crawler.crawl(root).attempts == 0


@pytest.mark.parametrize("policy", ["mark", "drop"])
def test_files_that_are_back_before_the_end_keep_the_table(crawler: Crawler, between: Between, policy: str) -> None:
    lake = crawler.lake
    for name in "abcdef":
        lake.parquet(f"s/{name}/1.parquet", {"x": [1]})
    lake.parquet("s/t/m=1/1.parquet", {"x": [1]})
    kept = lake.parquet("s/t/m=2/1.parquet", {"x": [1]})
    crawler.crawl()
    (lake.root / "s/a/1.parquet").unlink()
    kept.unlink()

    def rewritten() -> None:
        lake.parquet("s/a/2.parquet", {"x": [2]})
        lake.parquet("s/t/m=2/2.parquet", {"x": [2]})

    between("listed", rewritten)
    report = crawler.crawl(on_missing=policy)
    assert (report.missing, report.dropped, report.partitions_removed) == (0, 0, 0)
    assert crawler.table("s.a").version == 1
    assert [note.text for note in report.notes] == [
        "was not listed, but its files are there; it stays as it is",
        "the partition m=2 was not listed, but it is there; it stays",
    ]
    kept.with_name("2.parquet").unlink()
    report = crawler.crawl()
    assert (report.partitions_removed, report.missing, report.notes) == (1, 0, ())


def test_more_than_a_share_that_is_gone_at_once_is_not_dropped(crawler: Crawler) -> None:
    lake = crawler.lake
    files = [lake.parquet(f"s/{name}/1.parquet", {"x": [1]}) for name in "abcdef"]
    crawler.crawl()
    for path in files[:2]:
        path.unlink()
    for dry_run in (True, False):
        report = crawler.crawl(on_missing="drop", dry_run=dry_run)
        assert (report.missing, report.dropped) == (2, 0)
        (said,) = [note.text for note in report.notes if note.path == str(lake.root)]
        assert said.startswith("the files of 2 of 6 tables are gone, more than 20%: none of them is dropped")
    writes = crawler.writes()
    assert crawler.crawl(on_missing="drop").missing == 2  # also when it is not news
    assert crawler.writes() == writes
    assert crawler.crawl(on_missing="drop", max_missing=0.4).dropped == 2


@pytest.mark.parametrize("policy", ["mark", "drop"])
def test_an_empty_root_drops_nothing(crawler: Crawler, policy: str) -> None:
    lake = crawler.lake
    lake.parquet("small/s/a/1.parquet", {"x": [1]})
    for name in "bcdefg":
        lake.parquet(f"great/s/{name}/1.parquet", {"x": [1]})
    roots = (lake.root / "small", lake.root / "great")
    crawler.crawl(*roots)
    (lake.root / "small/s").rename(lake.root / "away")
    report = crawler.crawl(*roots, on_missing=policy)
    assert (report.missing, report.dropped) == (1, 0)
    said = "has no files, and 1 tables had theirs there: none of them is dropped"
    assert (str(roots[0]), said) in [(note.path, note.text) for note in report.notes]
    (lake.root / "away").rename(lake.root / "small/s")
    crawler.crawl(*roots)
    assert dict(crawler.table("s.a").properties) == {}
    assert crawler.crawl(*roots).attempts == 0


def test_only_files_that_a_crawl_takes_keep_a_place(crawler: Crawler) -> None:
    root = crawler.lake.root
    crawler.lake.text("t/_SUCCESS", "")
    crawler.lake.text("t/_tmp/a.csv", "a\n1\n")
    assert is_gone(f"file://{root}/t")
    assert is_gone(f"file://{root}/u")
    crawler.lake.text("t/m=1/n=2/a.csv", "a\n1\n")
    assert not is_gone(f"file://{root}/t")
    assert not is_gone(f"file://{root}/t/m=1/n=2/a.csv")
    assert not is_gone("zzz://elsewhere")
