"""PyIceberg's own behaviour suite passes with this catalog. It is run from PyIceberg's source package, not copied."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SUITE = "tests/catalog/test_catalog_behaviors.py"
NOT_OF_A_REST_CLIENT = (
    "test_create_table_without_namespace",  # PyIceberg's REST client refuses it by another error, before it sends it
    "test_create_tables_idempotency",  # it has no method create_tables
    "test_commit_table[",  # it has no method _parse_metadata_version
    "test_create_namespace_with_null_properties",  # it sends None as null, and raises what the server answers: 400
    "test_create_namespace_with_empty_identifier",  # it raises what the server answers as its own RESTError
    # it adds a second schema of id 0; a REST server numbers schemas itself, as Iceberg's Java library does, because the
    # clients of the protocol hold tables that it does not know
    "test_catalog_commit_table_applies_schema_updates[",
)
"""How the names of tests begin that call methods of other catalogs, or expect errors that the client does not raise."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Download the source package of the installed PyIceberg and unpack its tests; skip where that is not possible."""
    folder = tmp_path_factory.mktemp("suite")
    wanted = f"pyiceberg=={version('pyiceberg')}"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    done = subprocess.run([*pip, wanted, "-d", folder], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"the source package {wanted} cannot be downloaded here: {done.stderr[-200:]}")
    (archive,) = folder.glob("pyiceberg-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    root = folder / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(root / "pyiceberg")  # the installed one is tested
    return root


def _run(suite: Path, fixtures: str, *without: str) -> int:
    """Run the suite with these fixtures, without the tests of these names; return how many have passed."""
    shutil.copy(HERE / fixtures, suite / "tests" / "catalog" / "conftest.py")
    command = [sys.executable, "-m", "pytest", SUITE, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "default"]
    options = [f"--deselect={SUITE}::{name}" for name in without]
    done = subprocess.run([*command, *options], cwd=suite, capture_output=True, text=True, timeout=580, check=False)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, done.stdout[-3000:]
    assert "failed" not in last
    return int(last.split(" passed")[0].split()[-1])


@pytest.mark.only_whole
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("behaviour")
def test_the_suite_passes(suite: Path) -> None:
    assert _run(suite, "behaviour.py") >= 237


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("behaviour")
def test_the_suite_passes_with_the_rest_client(suite: Path) -> None:
    assert _run(suite, "behaviour_rest.py", *NOT_OF_A_REST_CLIENT) >= 215
