"""The relay hands every change over, in order, to a receiver that fails at random."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

import metastore as ms
from metastore.cli.app import run
from metastore.past.relay import cloud_event, post_to, relay


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
        expected = [change.position for change in store.changes()]
    assert list(dict.fromkeys(event["id"] for event in got)) == expected
    assert len(failures) > 5
    assert got[-1] == {**got[-1], "specversion": "1.0", "source": "/here", "type": "metastore.table.create"}
    assert [from_json(json.dumps(event)).get_id() for event in got[:3]] == [event["id"] for event in got[:3]]
    assert got[-1]["subject"] == got[-1]["data"]["path_after"] == "m.c.s.t39"


def test_tables_have_facets_of_openlineage(memory_url: str) -> None:
    with ms.open(memory_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        columns = [ms.Column("id", "long"), ms.Column("note", "string", comment="free text")]
        store.tables.create("m.c.s.t", parents=True, columns=columns, comment="all orders")
        store.tables.rename("m.c.s.t", "u")
        store.tables.alter("m.c.s.u", ms.DropColumn("note"))
        store.tables.drop("m.c.s.u")
        events: list[Any] = [cloud_event(change, "/here").get_data() for change in store.changes()]
    assert ["openlineage" in data for data in events] == [False] * 3 + [True] * 4
    created, renamed, altered, dropped = (data["openlineage"] for data in events[3:])
    assert (created["namespace"], created["name"], renamed["name"]) == ("/here", "m.c.s.t", "m.c.s.u")
    assert created["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "long"},
        {"name": "note", "type": "string", "description": "free text"},
    ]
    assert created["facets"]["documentation"]["description"] == "all orders"
    states = [one["facets"]["lifecycleStateChange"] for one in (created, renamed, altered, dropped)]
    assert [state["lifecycleStateChange"] for state in states] == ["CREATE", "RENAME", "ALTER", "DROP"]
    assert states[1]["previousIdentifier"] == {"namespace": "/here", "name": "m.c.s.t"}
    assert [field["name"] for field in altered["facets"]["schema"]["fields"]] == ["id"]
    for facet in created["facets"].values():
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")


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
