"""The relay hands every change over, in order, to a receiver that fails at random."""

from __future__ import annotations

import io
import json
import random
import re
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

import metastore as ms
from metastore.cli.app import run
from metastore.past.relay import cloud_event, lines_to, post_to, relay
from metastore.past.webhook import Webhook
from tests.docs.examples import ROOT


@contextmanager
def receiver(got: list[dict[str, Any]], fails: float) -> Iterator[str]:
    """Give the URL of a webhook that fails now and then: before it takes an event, or after, or by hanging up."""
    choose = random.Random(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            chance = choose.random()
            if chance < fails / 3:
                self.close_connection = True
                return
            if chance > fails / 1.5:
                assert self.headers["Content-Type"].startswith("application/cloudevents+json")
                got.append(json.loads(body))
            self.send_response(500 if chance < fails else 204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class NoWait:
    """A clock whose pauses take no time."""

    def sleep(self, seconds: float) -> None:
        assert seconds <= 30


def test_a_webhook_that_fails_gets_everything_in_order(sqlite_url: str) -> None:
    got: list[dict[str, Any]] = []
    failures: list[str] = []
    with ms.open(sqlite_url) as store, receiver(got, 0.4) as url:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        for n in range(40):
            store.tables.create(f"m.c.s.t{n}", parents=True)
        consumer = store.consumers.get("hook", start="beginning")
        post = post_to(url, clock=NoWait(), told=failures.append)  # type: ignore[arg-type]
        assert sum(relay(consumer, post, source="/here", once=True)) == 43
        changes = list(store.changes())
    expected = [change.position for change in changes]
    assert list(dict.fromkeys(event["id"] for event in got)) == expected
    repeat = replace(changes[-1], position=expected[-1].replace("-", "t00000002-"))
    assert cloud_event(repeat, "/here").get_id() == expected[-1], "also from a server that has taken over"
    assert len(failures) > 5
    assert got[-1] == {**got[-1], "specversion": "1.0", "source": "/here", "type": "metastore.table.create"}
    assert [from_json(json.dumps(event)).get_id() for event in got[:3]] == [event["id"] for event in got[:3]]
    assert got[-1]["subject"] == got[-1]["data"]["path_after"] == "m.c.s.t39"


def datasets(memory_url: str) -> list[Any]:
    """Return the datasets of a table that was made, renamed, altered and dropped."""
    with ms.open(memory_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        columns = [ms.Column("id", "long"), ms.Column("place", "struct<x: int>")]
        columns.append(ms.Column("note", "string", comment="free text"))
        store.tables.create("m.c.s.t", parents=True, columns=columns, comment="all orders")
        store.tables.rename("m.c.s.t", "u")
        store.tables.alter("m.c.s.u", ms.DropColumn("note"))
        store.tables.drop("m.c.s.u")
        events: list[Any] = [cloud_event(change, "/here").get_data() for change in store.changes()]
    assert ["openlineage" in data for data in events] == [False] * 3 + [True] * 4
    return [data["openlineage"] for data in events[3:]]


def test_tables_have_facets_of_openlineage(memory_url: str) -> None:
    created, renamed, altered, dropped = datasets(memory_url)
    assert (created["namespace"], created["name"], renamed["name"]) == ("/here", "m.c.s.t", "m.c.s.u")
    assert created["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "long", "ordinal_position": 1},
        {
            "name": "place",
            "type": "struct<x: int>",
            "ordinal_position": 2,
            "fields": [{"name": "x", "type": "int", "ordinal_position": 1}],
        },
        {"name": "note", "type": "string", "ordinal_position": 3, "description": "free text"},
    ]
    assert created["facets"]["documentation"]["description"] == "all orders"
    states = [one["facets"]["lifecycleStateChange"] for one in (created, renamed, altered, dropped)]
    assert [state["lifecycleStateChange"] for state in states] == ["CREATE", "RENAME", "ALTER", "DROP"]
    assert states[1]["previousIdentifier"] == {"namespace": "/here", "name": "m.c.s.t"}
    assert [field["name"] for field in altered["facets"]["schema"]["fields"]] == ["id", "place"]
    for facet in created["facets"].values():
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
        assert facet["_producer"].startswith("https://")


READS = """
import importlib, json, sys
MODULES = {"schema": "schema_dataset", "documentation": "documentation_dataset", "version": "dataset_version_dataset",
           "lifecycleStateChange": "lifecycle_state_change_dataset"}
def built(cls, module, values):
    below = {"fields": "SchemaDatasetFacetFields", "previousIdentifier": "PreviousIdentifier"}
    made = {}
    for key, value in values.items():
        inner = getattr(module, below[key]) if key in below else None
        if inner is not None:
            value = [built(inner, module, v) for v in value] if isinstance(value, list) else built(inner, module, value)
        made[key] = value
    return cls(**made)
for dataset in json.load(sys.stdin):
    for name, facet in dataset["facets"].items():
        module = importlib.import_module("openlineage.client.generated." + MODULES[name])
        (cls,) = [c for n, c in vars(module).items() if n.endswith("Facet") and c.__module__ == module.__name__]
        assert facet.pop("_schemaURL") == cls._get_schema(), (name, cls._get_schema())
        assert facet.pop("_producer").startswith("https://")
        built(cls, module, facet)
print("read")
"""
CLIENT = ROOT / "build" / "openlineage-client" / "bin" / "python"


def test_their_client_reads_the_facets(memory_url: str) -> None:
    """The client's classes are made from the specification: they know the versions of the schemas, and the fields."""
    if not CLIENT.exists():
        pytest.skip("needs OpenLineage's client in an environment of its own: make openlineage-client")
    given = json.dumps(datasets(memory_url))
    done = subprocess.run([CLIENT, "-c", READS], input=given, capture_output=True, text=True, check=False)
    assert done.stdout == "read\n", done.stderr


def from_json(text: str) -> CloudEvent:
    """Read a CloudEvent as a receiver does."""
    return JSONFormat().read(CloudEvent, text)  # type: ignore[return-value]


def test_the_command_goes_on_where_it_was(sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "events.jsonl"
    for name in ("a", "b"):
        with ms.open(sqlite_url) as store:
            store.metalakes.create(name)
        assert run(["--url", sqlite_url, "relay", "r", "--start", "beginning", "--to", str(out), "--once"]) == 0
    assert [json.loads(line)["subject"] for line in out.read_text().splitlines()] == ["a", "b"]
    assert run(["--url", sqlite_url, "relay", "s", "--start", "beginning", "--once"]) == 0
    assert [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()] == [
        "metastore.metalake.create"
    ] * 2
    assert run(["--url", sqlite_url, "changes", "--follow", "--timeout", "0.05", "--kind", "metalake"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_relay_that_lost_changes_names_the_step(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step that the message names lets it go on."""
    words = ["--url", sqlite_url, "relay", "lost", "--to", str(tmp_path / "lost.jsonl"), "--once"]
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        assert run([*words, "--start", "beginning"]) == 0
        for n in range(3):
            store.metalakes.alter("m", ms.SetComment(str(n)))
        store.gc(retention=timedelta(0), keep_versions=1, keep_unread=timedelta(0))
    assert run(words) != 0
    (step,) = re.findall(
        r"then: metastore (consumers lost --reset beginning)", " ".join(capsys.readouterr().err.split())
    )
    assert run(["--url", sqlite_url, *step.split()]) == 0
    assert run(words) == 0


def test_a_line_that_was_cut_off_is_ended_first(sqlite_url: str, tmp_path: Path) -> None:
    """A process died while it wrote: its last event comes again, on a line of its own."""
    out = tmp_path / "events.jsonl"
    out.write_text('{"specversion": "1.0", "id', encoding="utf-8")
    with ms.open(sqlite_url) as store:
        store.metalakes.create("ä")
    for _ in range(2):
        assert run(["--url", sqlite_url, "relay", "r", "--start", "beginning", "--to", str(out), "--once"]) == 0
    torn, whole = out.read_text(encoding="utf-8").splitlines()
    assert torn == '{"specversion": "1.0", "id'
    assert json.loads(whole)["subject"] == "ä"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to", "htps://x"],
        ["--to", "http://"],
        ["--to", "http://host:port/"],
        ["--to", "http://host..example/"],
        ["--to", "http://ann:secret@host/"],
        ["--to", "http://host/a b"],
        ["--to", "http://host/", "--header", "Authorization=Bearer secret"],
        ["--to", "http://host/", "--header", "Authorization=env:NOT_SET_ANYWHERE"],
        ["--to", "http://host/", "--header", "Two words=env:HOME"],
    ],
)
def test_a_receiver_that_is_none_makes_no_consumer(
    sqlite_url: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--url", sqlite_url, "relay", "r", *arguments, "--once"]) == 1
    assert "secret" not in capsys.readouterr().err
    with ms.open(sqlite_url) as store:
        assert store.consumers.list() == []


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[bytes]]]:
    """Give the URL of a receiver that answers each request by a function, and the requests."""
    requests = list[bytes]()

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:  # the test is over
                return
            with client, suppress(OSError):
                requests.append(client.recv(65536))
                answer(client)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/hook", requests
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure(status: int) -> None:
    """A client that follows it sends a GET without the event, and takes its 200 for done."""

    def answer(client: socket.socket) -> None:
        client.sendall(f"HTTP/1.1 {status} Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".encode())

    with answering(answer) as (url, requests):
        failure = Webhook(url).post(b"{}", "application/json")
    assert failure is not None
    assert f"answered {status}, a redirect" in failure.why
    assert [request.split(b" ")[0] for request in requests] == [b"POST"]


@pytest.mark.parametrize("piece", [b"X-Drip: 1\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["header", "continue"])
def test_a_receiver_that_never_ends_its_answer_is_cut_off(piece: bytes) -> None:
    """Each byte begins the time-out of a socket again: the post has one deadline of its own."""
    over = threading.Event()

    def answer(client: socket.socket) -> None:
        if piece.startswith(b"X"):
            client.sendall(b"HTTP/1.1 200 OK\r\n")
        while not over.wait(0.05):
            client.sendall(piece)

    with answering(answer) as (url, _):
        failure = Webhook(url, timeout=0.5).post(b"{}", "application/json")
        over.set()
    assert failure is not None
    assert "no answer within 0.5 s" in failure.why


def test_a_proxy_that_never_ends_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer to CONNECT is read before the request is sent."""
    over = threading.Event()

    def answer(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not over.wait(0.05):
            client.sendall(b"1")

    with answering(answer) as (url, _):
        monkeypatch.setenv("https_proxy", url)
        monkeypatch.setenv("no_proxy", "")
        receiver = Webhook("https://receiver.example/hook", environment_proxies=True, timeout=0.3)
        timer = threading.Timer(1.5, over.set)
        timer.start()
        failure = receiver.post(b"{}", "application/json")
        over.set()
        timer.cancel()
    assert failure is not None
    assert "no answer within 0.3 s" in failure.why


def test_a_receiver_says_when_to_come_back_and_gets_its_token(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, answers = (
        list[float](),
        iter(
            [
                "503 No\r\nRetry-After: 7",
                "429 No\r\nDate: {}\r\nRetry-After: {}",
                "503 No\r\nDate: {}\r\nRetry-After: Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
                "204 Yes",
            ]
        ),
    )
    times = ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:09 GMT")

    def answer(client: socket.socket) -> None:
        client.sendall(f"HTTP/1.1 {next(answers).format(*times)}\r\nContent-Length: 0\r\n\r\n".encode())

    class Noting:
        def sleep(self, seconds: float) -> None:
            waits.append(seconds)

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody asked for it
    with ms.open(sqlite_url) as store, answering(answer) as (url, requests):
        store.metalakes.create("m")
        post = post_to(f"{url}?a=1", headers={"Authorization": "Bearer t"}, clock=Noting())  # type: ignore[arg-type]
        assert list(relay(store.consumers.get("hook", start="beginning"), post, source="/", once=True)) == [1]
    assert waits == [7.0, 9.0, 0.4]
    assert all(request.startswith(b"POST /hook?a=1 HTTP/1.1") for request in requests)
    assert all(b"Authorization: Bearer t" in request for request in requests)


def test_the_reason_of_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = Webhook(f"http://127.0.0.1:{port}/").post(b"", "text/plain")
    assert refused is not None
    assert "refused" in refused.why
    unknown = Webhook("http://no-such-host.invalid/").post(b"", "text/plain")
    assert unknown is not None
    assert "no-such-host.invalid was not found" in unknown.why
    with answering(lambda client: client.sendall(b"nothing of TLS\r\n")) as (url, requests):
        plain = Webhook(url.replace("http:", "https:")).post(b"", "text/plain")
        assert plain is not None
        assert plain.why.startswith("TLS: ")
        monkeypatch.setenv("http_proxy", url.removesuffix("/hook"))
        Webhook("http://receiver.invalid/hook", environment_proxies=True).post(b"", "text/plain")
    assert requests[-1].startswith(b"POST http://receiver.invalid/hook ")


def test_a_damaged_row_does_not_stop_a_consumer_that_leaves_it_out(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.metalakes.alter("m", ms.SetComment("damaged"))
        store.metalakes.alter("m", ms.SetComment("whole"))
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw, raw:
            raw.execute("UPDATE operation SET changes = '[{' WHERE version = 2")
        consumer, skipped = store.consumers.get("c", start="beginning"), list[ms.MetastoreError]()
        with pytest.raises(ms.MetastoreError):
            [change.changes for change in consumer.read()]
        assert [change.version for change in consumer.read(unreadable=skipped.append)] == [1, 3]
        got, lines = list[int](), io.StringIO()
        consumer.run(
            lambda tx, changes: got.extend(change.version or 0 for change in changes), unreadable=skipped.append
        )
        other = store.consumers.get("d", start="beginning")
        assert sum(relay(other, lines_to(lines), source="/", once=True, unreadable=skipped.append)) == 2
        assert got == [1, 3]
        assert len(lines.getvalue().splitlines()) == 2
        assert len(skipped) == 3


def test_more_damaged_rows_than_a_batch_has_do_not_stop_a_consumer(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        for n in range(6):
            store.metalakes.alter("m", ms.SetComment(str(n)))
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw, raw:
            raw.execute("UPDATE operation SET changes = '[{' WHERE version BETWEEN 2 AND 5")
        consumer, skipped = store.consumers.get("c", start="beginning"), list[ms.MetastoreError]()
        assert [change.version for change in consumer.read(limit=2, unreadable=skipped.append)] == [1, 6]
        got = [consumer.run(lambda tx, changes: None, limit=1, unreadable=skipped.append) for _ in range(4)]
        assert got == [1, 1, 1, 0]
        assert consumer.lag().changes == 0
