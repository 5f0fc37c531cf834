"""A secret is in nothing that a client, an operator or a crawler reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.secrets.keyring import VARIABLE, new_key
from tests.crawl.conftest import Crawler, Lake

SECRETS = [f"plain-secret-{n}" for n in range(4)]
SETTINGS = {"metastore.secret-properties": "*password"}
HANDLE = "sealed:1:"


@pytest.fixture
def url(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a database in which a catalog, a schema and a table have secrets."""
    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational", properties={**SETTINGS, "a.password": SECRETS[0]})
        store.schemas.create("lake.ice.s", properties={"password": SECRETS[1]})
        store.tables.create("lake.ice.s.t", properties={"password": SECRETS[2]})
        store.tables.alter("lake.ice.s.t", ms.SetProperty("password", SECRETS[3], expected=SECRETS[2]))
    return sqlite_url


def command_line(url: str, _: Path, capsys: pytest.CaptureFixture[str]) -> str:
    for command in (["show", "lake.ice.s.t"], ["history", "lake.ice.s.t"], ["changes"], ["find", "lake"]):
        assert run(["--url", url, *command, "--json"]) == 0
        assert run(["--url", url, *command]) == 0
    assert run(["--url", url, "alter", "lake.ice.s.none", "--set", f"password={SECRETS[0]}"]) != 0
    shown = capsys.readouterr()
    return shown.out + shown.err


def rest_servers(url: str, folder: Path, _: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("pyiceberg", reason="needs the extra [serve]")
    import httpx

    from tests.iceberg.server import served

    texts = []
    catalogs, spaces = "/api/metalakes/lake/catalogs", "/iceberg/v1/lake.ice/namespaces"
    secret = {"properties": {"password": SECRETS[0]}}
    with served(url, folder / "w") as address, httpx.Client(base_url=address.removesuffix("/iceberg")) as client:
        below = ("", "/ice", "/ice/schemas/s", "/ice/schemas/s/tables/t")
        texts += [client.get(f"{catalogs}{path}", params={"details": "true"}).text for path in below]
        texts += [client.get(spaces).text, client.get(f"{spaces}/s").text, client.get("/iceberg/v1/config").text]
        there = {"name": "s", "comment": "", **secret}
        texts.append(client.post(f"{catalogs}/ice/schemas", json=there).text)
        texts.append(client.post(spaces, json={"namespace": ["s"], **secret}).text)
        update = {"@type": "setProperty", "property": "password", "value": SECRETS[0]}
        texts.append(client.put(f"{catalogs}/ice/schemas/none", json={"updates": [update]}).text)
        texts.append(client.put(f"{catalogs}/ice/schemas/s", json={"updates": [update]}).text)
        texts.append(client.post(f"{spaces}/none/properties", json={"updates": secret["properties"]}).text)
        texts.append(client.post(f"{spaces}/s/properties", json={"updates": {"password": SECRETS[1]}}).text)
    return "".join(texts)


def spans(url: str, _: Path, __: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from metastore.telemetry import spans as hook

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with ms.open(url, hooks=[hook(provider)]) as store:
        store.tables.create("lake.ice.s.u", properties={"password": SECRETS[0]})
        store.tables.alter("lake.ice.s.t", ms.SetProperty("password", SECRETS[1]))
        with pytest.raises(ms.VersionConflict) as raised:
            store.tables.alter("lake.ice.s.t", ms.SetProperty("password", SECRETS[2], expected=SECRETS[3]))
    found = "".join(span.to_json() for span in exporter.get_finished_spans())
    return f"{found}{raised.value}{raised.value.to_dict()} {HANDLE}"


def crawler(url: str, folder: Path, _: pytest.CaptureFixture[str]) -> str:
    """A table that is crawled again has got a secret meanwhile; its records and the report have no word of it."""
    (folder / "data").mkdir()
    lake = Lake(folder / "data")
    lake.json("s/crawled.json", {"q": 1})
    lake.text("s/other.csv", "r\n1\n")
    with ms.open(url) as store:
        crawling = Crawler(store, lake, url)
        crawling.crawl(into=("lake", "ice"))
        store.tables.alter("lake.ice.s.crawled", ms.SetProperty("password", SECRETS[0]))
        lake.json("s/crawled.json", {"q": 1, "more": "x"})
        report = crawling.crawl(into=("lake", "ice"))
        assert report.altered == 1
        assert store.reveal("lake.ice.s.crawled", "password") == SECRETS[0]
        table = store.tables.load("lake.ice.s.crawled")
        seen = store.statistics.load(table, "crawl").to_dict()
        rows = [str(one.to_dict()) for one in store.changes() if one.kind in ("crawl", "source", "statistic")]
        return f"{report}{seen}{rows}{table.to_dict()}"


def msgspec(url: str, _: Path, __: pytest.CaptureFixture[str]) -> str:
    found = pytest.importorskip("msgspec", reason="msgspec is not installed")
    with ms.open(url) as store:
        table = store.tables.load("lake.ice.s.t")
        text: str = found.json.encode(table.properties).decode()
        assert json.loads(text) == json.loads(json.dumps(table.properties)) == dict(table.properties)
        return text + found.json.encode(table.to_dict()).decode()


@pytest.mark.parametrize("reader", [command_line, rest_servers, spans, crawler, msgspec])
def test_a_secret_is_nowhere(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], reader: Callable[..., str]
) -> None:
    with ms.open(url) as store:
        stored = json.loads(store.tables.load("lake.ice.s.t").record.doc)["properties"]["password"]
    text = reader(url, tmp_path, capsys)
    assert HANDLE in text  # it did read what has secrets
    assert not [secret for secret in SECRETS if secret in text]
    assert stored not in text
