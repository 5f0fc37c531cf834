"""Requests that schemathesis makes of Iceberg's specification: no answer is a defect, each has the right shape.

``make iceberg-spec`` fetches the specification and schemathesis. The test runs it as a program of its own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest

from tests.iceberg.server import served
from tests.iceberg.test_rest import SCHEMA

FOLDER = Path("build/iceberg-spec")
DOCUMENT = FOLDER / "rest-catalog-open-api.yaml"
PROGRAM = FOLDER / "env/bin/st"
CHECKS = "not_a_server_error,status_code_conformance,response_schema_conformance,content_type_conformance"
NOT_SERVED = "functions|oauth|/sign$|unregister|/plan|/tasks"
"""Optional parts, which ``/v1/config`` does not offer: the answer is 404, or 406 with the reason."""
ENOUGH = 25
"""How many requests of random content each operation gets, beside those of each boundary of the specification."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (DOCUMENT.exists() and PROGRAM.exists()), reason="needs Iceberg's specification: make iceberg-spec"
    ),
]


def _document() -> str:
    """Return the specification. Some errors of it lack the member ``error`` that its text and all clients have."""
    bare, whole = (f"'#/components/schemas/{name}'" for name in ("ErrorModel", "IcebergErrorResponse"))
    before, name, after = DOCUMENT.read_text().partition("\n    IcebergErrorResponse:\n")
    assert after, "the specification has its error in another place now"
    return before.replace(bare, whole) + name + after.replace(bare, whole).replace(whole, bare, 1)


# PyIceberg takes a snapshot without an operation for an overwrite, and warns of it
@pytest.mark.filterwarnings("ignore:Encountered invalid snapshot summary")
def test_each_answer_is_as_the_specification_says(sqlite_url: str, tmp_path: Path) -> None:
    specification, settings = tmp_path / "specification.yaml", tmp_path / "schemathesis.toml"
    specification.write_text(_document())
    names = {"prefix": "lake.ice", "namespace": "a", "table": "t", "view": "v"}
    settings.write_text("[parameters]\n" + "".join(f'"path.{key}" = "{name}"\n' for key, name in names.items()))
    with served(sqlite_url, tmp_path / "warehouse") as address:
        with httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client:
            client.post("/namespaces", json={"namespace": ["a"]})
            assert client.post("/namespaces/a/tables", json={"name": "t", "schema": SCHEMA}).status_code == 200
        command: list[str | Path] = [PROGRAM.absolute(), "--config-file", settings, "run", specification, "-u", address]
        command += ["--phases", "examples,coverage,fuzzing", "-n", str(ENOUGH), "--continue-on-failure", "--no-color"]
        command += ["--checks", CHECKS, "--exclude-path-regex", NOT_SERVED, "--suppress-health-check", "all"]
        # a DELETE of the one table, the view or the namespace would leave nothing to test
        command += ["--exclude-method", "DELETE", "--request-timeout", "60"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
