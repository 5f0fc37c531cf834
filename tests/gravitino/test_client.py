"""Gravitino's own Python client works unchanged. It pins pyarrow, so it has a virtual environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.gravitino.conftest import Api

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "gravitino-client" / "bin" / "python"


def test_its_python_client_works_unchanged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    if not PYTHON.exists():
        pytest.skip("needs Gravitino's client in an environment of its own: make gravitino-client")
    monkeypatch.setenv("METASTORE_TEST_S3_KEY", "s3cr3t")
    program = Path(__file__).with_name("client_program.py")
    address = str(api.client.base_url)
    done = subprocess.run([PYTHON, program, address], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
