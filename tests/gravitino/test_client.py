"""Gravitino's own clients work unchanged, in an environment of their own: the Python one pins pyarrow."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.gravitino.conftest import Api

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "gravitino-client" / "bin" / "python"
JAR = ROOT / "build" / "gravitino-java" / "client.jar"


def test_its_python_client_works_unchanged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    if not PYTHON.exists():
        pytest.skip("needs Gravitino's client in an environment of its own: make gravitino-client")
    monkeypatch.setenv("METASTORE_TEST_S3_KEY", "s3cr3t")
    program = Path(__file__).with_name("client_program.py")
    address = str(api.client.base_url)
    done = subprocess.run([PYTHON, program, address], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_its_java_client_works_unchanged(api: Api) -> None:
    if not JAR.exists() or "JAVA_HOME" not in os.environ:
        pytest.skip("needs Gravitino's Java client: make java gravitino-java")
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    program = Path(__file__).with_name("JavaClient.java")
    command = [str(java), "-cp", str(JAR), str(program), str(api.client.base_url).rstrip("/")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "all is well"
    assert api.store.tables.load("java.sales.eu.orders").comment == "changed"
