"""The relay hands every change over, in order, to a receiver that fails at random."""

from __future__ import annotations

import json
import random
import subprocess
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
        expected = [change.position for change in store.changes()]
    assert list(dict.fromkeys(event["id"] for event in got)) == expected
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


def test_a_receiver_that_is_none_makes_no_consumer(sqlite_url: str) -> None:
    assert run(["--url", sqlite_url, "relay", "r", "--to", "htps://x", "--once"]) == 1
    with ms.open(sqlite_url) as store:
        assert store.consumers.list() == []
