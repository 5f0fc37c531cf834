"""Programs and servers of an earlier version and of this one work in one database, while a newer one migrates it.

The earlier version has the same format. The migration adds a column and the next format, with which both go on. For
versions whose formats exclude each other, see test_last_release.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import metastore as ms
from tests.bench.before.trees import ROOT, tree_of
from tests.migration.newer import NEWER, newer_program
from tests.migration.schema import connected
from tests.servers.process import free_port, wait_until

pytestmark = [pytest.mark.long, pytest.mark.postgres]

BEFORE = "3057ba0c"
"""The commit of the earlier version."""
PROGRAM = Path(__file__).with_name("version_program.py")
DEADLINE = 20.0
ROUNDS = 5


@pytest.fixture(scope="module")
def trees() -> dict[str, Path]:
    """Give the source trees of both versions."""
    try:
        return {"old": tree_of(BEFORE), "new": ROOT}
    except subprocess.CalledProcessError:
        pytest.skip(f"needs the commit {BEFORE}: a clone that is not shallow")


def of(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}


class Servers:
    """A server of each version; the namespaces that were made through one are read through the other."""

    def __init__(self, trees: dict[str, Path], url: str, folder: Path, closing: ExitStack) -> None:
        self.made, self._addresses, processes = 0, list[str](), list[subprocess.Popen[bytes]]()
        for side, tree in trees.items():
            port = free_port()
            command = [sys.executable, "-m", "metastore", "--url", url, "serve", "--port", str(port)]
            with (folder / f"{side}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*command, "--warehouse", f"m.ice=file://{folder}/files"], env=of(tree), cwd="/", stderr=log
                )
            closing.callback(process.wait)
            closing.callback(process.kill)
            processes.append(process)
            self._addresses.append(f"http://127.0.0.1:{port}")
        assert wait_until(lambda: all(map(self._answers, self._addresses)), 60)

    @staticmethod
    def _answers(address: str) -> bool:
        try:
            return httpx.get(f"{address}/healthz").is_success
        except httpx.TransportError:
            return False

    def work(self) -> None:
        """Make a namespace through each server, and load it through the other one."""
        for writer, reader in (self._addresses, self._addresses[::-1]):
            name = f"n{self.made}"
            body = {"namespace": [name], "properties": {"by": writer}}
            made = httpx.post(f"{writer}/iceberg/v1/m.ice/namespaces", json=body, timeout=DEADLINE)
            assert made.status_code == 200, made.text
            loaded = httpx.get(f"{reader}/iceberg/v1/m.ice/namespaces/{name}", timeout=DEADLINE)
            assert loaded.json()["properties"]["by"] == writer, loaded.text
            found = httpx.get(f"{reader}/api/metalakes/m/catalogs/ice/schemas/{name}", timeout=DEADLINE)
            assert found.json()["schema"]["properties"]["by"] == writer, found.text
            self.made += 1


@pytest.fixture
def url(empty_postgres_url: str, trees: dict[str, Path]) -> Iterator[str]:
    """Give a database that the earlier version has migrated."""
    migrate = "import sys, metastore as ms; ms.migrate(sys.argv[1])"
    subprocess.run([sys.executable, "-c", migrate, empty_postgres_url], env=of(trees["old"]), cwd="/", check=True)
    with ms.open(empty_postgres_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.tables.create("m.c.s.counter", properties={"n": "0"})
        store.tables.create("m.c.s.turns")
        store.tags.create("m.seen")
        yield empty_postgres_url


def test_two_versions_at_once(trees: dict[str, Path], url: str, tmp_path: Path) -> None:
    with ExitStack() as closing:
        running = {}
        for side, tree in trees.items():
            command = [sys.executable, str(PROGRAM), url, side, str(tmp_path)]
            process = subprocess.Popen(command, env=of(tree), cwd="/", stdout=subprocess.PIPE, text=True)
            closing.callback(process.wait)
            closing.callback(process.kill)
            running[side] = process
        servers = Servers(trees, url, tmp_path, closing)

        def worked(more: int) -> None:
            """Let each program do so many more rounds, and the servers work meanwhile."""
            aims = {side: rounds(tmp_path / side) + more for side in running}
            ends = time.monotonic() + 120
            while any(rounds(tmp_path / side) < aim for side, aim in aims.items()):
                assert time.monotonic() < ends
                assert [process.poll() for process in running.values()] == [None, None], "an error ended one"
                servers.work()

        worked(ROUNDS)
        with newer_program(tmp_path / "newer"):
            ms.migrate(url)
        worked(ROUNDS)
        (tmp_path / "stop").touch()
        told = {side: json.loads(process.communicate(timeout=60)[0]) for side, process in running.items()}
    for side, said in told.items():
        assert Path(said["library"]).resolve().is_relative_to(trees[side].resolve())
        assert said["read"] >= ROUNDS, "it read what the other one wrote"
        assert set(said["seen"]) >= {"old", "new"}, "in the feed too"
        assert said["slowest"] < DEADLINE
    assert servers.made >= 4
    with connected(url) as connection:
        assert connection.exec_driver_sql("SELECT format FROM info").scalar() == NEWER
    with ms.open(url) as store:
        names = {name for said in told.values() for name in said["made"]}
        assert set(store.tables.names("m.c.s")) == names | {"counter", "turns"}
        assert {one.target_path.rpartition(".")[2] for one in store.tags.targets("m.seen")} == names
        assert store.tables.load("m.c.s.counter").properties["n"] == str(sum(said["rounds"] for said in told.values()))
        assert store.verify() == []


def rounds(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0
