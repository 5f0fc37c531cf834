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


def _suite(folder: Path) -> Path:
    """Download the source package of the installed PyIceberg and unpack its tests; skip where that is not possible."""
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


@pytest.mark.timeout(600)
def test_the_suite_passes(tmp_path: Path) -> None:
    root = _suite(tmp_path)
    shutil.copy(HERE / "behaviour.py", root / "tests" / "catalog" / "conftest.py")
    command = [sys.executable, "-m", "pytest", SUITE, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "default"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=580, check=False)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, done.stdout[-3000:]
    assert "failed" not in last
    assert int(last.split(" passed")[0].split()[-1]) >= 200, last
