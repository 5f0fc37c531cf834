"""Gravitino's own clients work unchanged, in an environment of their own: the Python one pins pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.gravitino.conftest import Api
from tests.gravitino.server import Server

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "gravitino-client" / "bin" / "python"
SUITE = ROOT / "build" / "gravitino-suite" / "clients" / "client-python" / "tests"
JARS = ROOT / "build" / "gravitino-java"


def test_its_python_client_works_unchanged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    if not PYTHON.exists():
        pytest.skip("needs Gravitino's client in an environment of its own: make gravitino-client")
    monkeypatch.setenv("METASTORE_TEST_S3_KEY", "s3cr3t")
    program = Path(__file__).with_name("client_program.py")
    address = str(api.client.base_url)
    done = subprocess.run([PYTHON, program, address], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_its_own_suite_passes(api: Api, tmp_path: Path) -> None:
    """The integration tests of Gravitino's client, but those that need a cloud, HDFS, OAuth or Ray: all of them."""
    if not SUITE.exists() or not PYTHON.exists():
        pytest.skip("needs Gravitino's client and its tests: make gravitino-client gravitino-suite")
    program = Path(__file__).with_name("suite_program.py")
    command = [str(PYTHON), str(program), str(SUITE), str(tmp_path), str(api.client.base_url.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == {}
    assert found["ran"] >= 115


@pytest.mark.long
def test_races_of_its_python_client_on_two_servers(servers: list[Server]) -> None:
    """What may be wrong after each race is counted by a program that takes any server; here it is never wrong."""
    if not PYTHON.exists():
        pytest.skip("needs Gravitino's client in an environment of its own: make gravitino-client")
    program = Path(__file__).with_name("race_program.py")
    command = [str(PYTHON), str(program), "10", *(f"http://127.0.0.1:{server.port}" for server in servers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert len(found) >= 15
    assert {race: count for race, count in found.items() if count} == {}


@pytest.mark.long
def test_its_java_client_works_unchanged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each manager once, and each error by its class of Java."""
    if not any(JARS.glob("*.jar")) or "JAVA_HOME" not in os.environ:
        pytest.skip("needs make java, and the jars of Gravitino's Java client in build/gravitino-java")
    monkeypatch.setenv("METASTORE_TEST_S3_KEY", "s3cr3t")
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    program = Path(__file__).with_name("JavaClient.java")
    command = [str(java), "-cp", f"{JARS}/*", str(program), str(api.client.base_url).rstrip("/")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "all is well"
    assert api.store.tables.load("java.sales.eu.orders").comment == "changed"
