"""What a server refuses before it looks at a request, and what its operator can switch."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import metastore as ms
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.cli.app import run
from metastore.serve import Principals, TokenFile
from tests.iceberg.server import served
from tests.servers.process import free_port, wait_until

pytestmark = pytest.mark.one_in(3)

CONFIG = "/v1/config?warehouse=lake.ice"


def test_a_page_of_a_stranger_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    """A rebound name has another Host; a page of another origin says so; a form is not JSON."""
    with served(sqlite_url, tmp_path / "w") as address, httpx.Client(base_url=address) as client:
        port = address.split(":")[2].split("/")[0]
        for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "10.0.0.1", ""):
            assert client.get(CONFIG, headers={"Host": host}).status_code == 403
        for host in (f"localhost:{port}", f"[::1]:{port}", "127.0.0.1", "127.8.9.1"):
            assert client.get(CONFIG, headers={"Host": host}).status_code == 200
        for origin in ("http://evil.example", "null", "http://[", f"http://localhost:{port}"):
            assert client.get(CONFIG, headers={"Origin": origin}).status_code == 403
        assert client.get(CONFIG, headers={"Origin": f"http://127.0.0.1:{port}"}).status_code == 200
        body = b'{"namespace": ["a"]}'
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            answer = client.post("/v1/lake.ice/namespaces", content=body, headers={"Content-Type": kind})
            assert answer.status_code == 400
    with ms.open(sqlite_url) as store:
        assert list(store.schemas.names("lake.ice")) == []


def test_what_no_part_of_the_server_has_is_an_error_in_json(sqlite_url: str, tmp_path: Path) -> None:
    with served(sqlite_url, tmp_path / "w") as address:
        root = address.removesuffix("/iceberg")
        for method, path, status in (("GET", "/none", 404), ("POST", "/healthz", 405), ("PUT", "/console", 405)):
            error = httpx.request(method, f"{root}{path}").json()["error"]
            assert (error["code"], path in error["message"]) == (status, True)


def test_a_server_has_something_to_serve(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", sqlite_url, "serve", "--no-iceberg", "--no-gravitino", "--no-console"]) == 2
    assert "nothing is left to serve" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Authorization", "X-User", "Content-Type", "Origin"])
def test_a_header_that_decides_comes_once(sqlite_url: str, tmp_path: Path, name: str) -> None:
    """Two readers of a request (a proxy and this server) may take different ones."""
    with served(sqlite_url, tmp_path / "w", Principals(header="X-User")) as address:
        twice = [("X-User", "ann"), (name, "a"), (name, "b")][name == "X-User" :]
        answer = httpx.get(f"{address}{CONFIG}", headers=twice)
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == (answer.status_code, "BadRequestException") == (400, error["type"])
        assert f"{name.lower()} comes twice" in error["message"]


def test_a_header_that_arrives_whole_has_a_size_too(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "metastore.audit")
    with served(sqlite_url, tmp_path / "w") as address, httpx.Client(base_url=address) as client:
        assert client.get("a" * 60_000, headers={"X": "v" * 6_000}).status_code == 431
        assert [len(one.getMessage()) < 3_000 for one in caplog.records if one.name == "metastore.audit"] == [True]
        caplog.set_level("INFO", "metastore.serve")
        assert client.get("a" * 60_000).status_code == 404
        assert [len(one.getMessage()) < 3_000 for one in caplog.records if one.name == "metastore.serve"] == [True]
        assert [client.get(CONFIG, headers={"X": "v" * size}).status_code for size in (60_000, 70_000)] == [200, 431]


def test_a_token_and_a_proxy_s_header_are_both_demanded(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("proxy its-token\n")
    with (
        served(sqlite_url, tmp_path / "w", Principals(TokenFile(file), "X-User")) as address,
        httpx.Client(base_url=address) as client,
    ):
        token, user = {"Authorization": "Bearer its-token"}, {"X-User": "ann"}
        for headers in ({}, token, user, {**user, "Authorization": "Bearer other"}, {**token, "X-User": ""}):
            assert client.get(CONFIG, headers=headers).status_code == 401
        assert client.post("/v1/lake.ice/namespaces", json={"namespace": ["a"]}, headers=token | user).is_success
    with ms.open(sqlite_url) as store:
        assert store.schemas.load("lake.ice.a").created_by == "ann"


def test_a_token_that_is_taken_out_of_the_file_ends(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann first\nbob second\n")
    with served(sqlite_url, tmp_path / "w", Principals(TokenFile(file))) as address:

        def status(token: str) -> int:
            return httpx.get(f"{address}{CONFIG}", headers={"Authorization": f"Bearer {token}"}).status_code

        assert [status(token) for token in ("first", "second", "third")] == [200, 200, 401]
        (tmp_path / "new").write_text("bob second\ncarl third\n")
        (tmp_path / "new").replace(file)
        assert [status(token) for token in ("first", "second", "third")] == [401, 200, 200]
        file.write_text("half a line of tokens\n")
        assert [status(token) for token in ("first", "second")] == [401, 200], "what was read last stays"
        file.unlink()
        assert status("second") == 200
    assert "token" in caplog.text
    assert "second" not in caplog.text


def test_a_line_feed_in_a_path_gets_the_protocol_s_error(sqlite_url: str, tmp_path: Path) -> None:
    with served(sqlite_url, tmp_path / "w") as address:
        answer = httpx.get(f"{address}/v1/lake.ice/namespaces/a%0Ab")
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
        ends = httpx.get(f"{address.removesuffix('/iceberg')}/healthz%0A")
        assert (ends.status_code, ends.json()["error"]["code"]) == (404, 404)
        assert httpx.get(f"{address.removesuffix('/iceberg')}/console/feed%0A").status_code == 404


def test_the_configuration_names_no_warehouse_that_the_client_does_not_see(sqlite_url: str, tmp_path: Path) -> None:
    with served(sqlite_url, tmp_path / "w", Principals(header="X-User"), admins=["root"]) as address:

        def asked(user: str, warehouse: str = "") -> httpx.Response:
            return httpx.get(f"{address}/v1/config", params={"warehouse": warehouse}, headers={"X-User": user})

        assert asked("root").json()["overrides"] == {"prefix": "lake.ice"}
        for hidden in (asked("ann"), asked("ann", "lake.ice")):
            assert hidden.status_code == 404
        assert "lake" not in asked("ann").text


def test_health_shows_a_stranger_no_host(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(sqlite_url, tmp_path / "w") as address:
        root = address.removesuffix("/iceberg")
        assert httpx.get(f"{root}/healthz").json() == {"status": "ok"}

        def away(_: ms.store.Store) -> None:
            raise ms.BackendUnavailable("no connection to db.internal.example:5432")

        monkeypatch.setattr(ms.store.Store, "ping", away)
        answer = httpx.get(f"{root}/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})


def test_no_client_is_told_where_the_database_is(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each user with a token, whatever its rights, read the host, the port and the name of the database."""
    with served(sqlite_url, tmp_path / "w") as address:

        def away(*_: object, **__: object) -> None:
            raise ms.BackendUnavailable("cannot connect to PostgreSQL at db.internal.example:5432/lake")

        monkeypatch.setattr(SqliteBackend, "resolve", away)
        namespaces, lakes = f"{address}/v1/lake.ice/namespaces", address.replace("iceberg", "api/metalakes/lake")
        as_json = {"headers": {"content-type": "application/json"}, "content": '{"namespace": ["a"]}'}
        for answer in (httpx.get(namespaces), httpx.post(namespaces, **as_json), httpx.get(lakes)):  # type: ignore[arg-type]
            assert answer.status_code == 503
            assert "internal" not in answer.text
    assert "db.internal.example" in caplog.text


def test_a_busy_port_is_told_in_one_line(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["--url", sqlite_url, "serve", "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def test_protocols_and_jobs_are_switched(sqlite_url: str) -> None:
    """Jobs run commands: without ``--jobs`` they stay queued."""
    port = free_port()
    command = [sys.executable, "-m", "metastore", "--url", sqlite_url, "serve", "--no-iceberg", "--port", str(port)]
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.job_templates.create("lake.t", type="shell", executable="true")

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz").is_success
        except httpx.TransportError:
            return False

    for options, done in (((), False), (("--jobs",), True)):
        process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert wait_until(answers, 60.0)
            assert httpx.get(f"http://127.0.0.1:{port}/iceberg{CONFIG}").status_code == 404
            url = f"http://127.0.0.1:{port}/api/metalakes/lake/jobs/runs"
            made = httpx.post(url, json={"jobTemplateName": "t", "jobConf": {}}).json()["job"]["jobId"]

            def status(job: str = f"{url}/{made}") -> str:
                return str(httpx.get(job).json()["job"]["status"])

            if done:
                assert wait_until(lambda: status() == "succeeded", 60.0)
            else:
                assert status() == "queued"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
