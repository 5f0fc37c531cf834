"""What ``make dist`` builds: the archive, the wheel, and what runs where nothing else is installed."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path
from threading import Event

import pytest

from tests.packaging.test_packages import LINKS, ROOT
from tests.sample.lake import build as build_lake
from tests.servers.process import free_port

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("dist")]

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
DATA = ROOT.parent / "shared" / "data"
EPOCH = "1790000000"

IMPORTS = {
    "arrow": "import metastore.columns.arrow",
    "object-store": "import metastore.leases.objects.client",
    "metrics": "import metastore.prometheus, prometheus_client",
    "async": "import asyncio, metastore.aio as a; asyncio.run(a.open_async('memory://'))",
    "iceberg": "import metastore.pyiceberg",
    "http": "import metastore.http",
    "mysql": "import sqlalchemy as sa; sa.create_engine('mysql+pymysql://a@b/c')",
    "secrets": "from metastore.secrets.keyring import cipher; cipher(bytes(64))",
    "oidc": "import cryptography, httpx, jwt",
    "relay": "from metastore.past.relay import cloud_event; import cloudevents.core.v1.event",
    "opentelemetry": "import metastore.telemetry.spans, opentelemetry.trace",
    "sqlite": "import pysqlite3.dbapi2",
}
"""What each extra is there for, where no command shows it."""

NEEDS = {
    "serve": "serve",
    "console --no-browser": "serve",
    "crawl . --into lake.a": "spark",
    "loadtest --scenario hot-table --seconds 1": "loadtest",
    "relay r --once --start beginning": "relay",
    "export gravitino --to http://127.0.0.1:1": "serve",
    "import gravitino --from sqlite:///x.db": "serve",
    "import iceberg --from x --into lake.a": "iceberg",
    "import spark --from x --into lake.a": "spark",
}
"""The commands that need an extra, and which one their message names."""


def made(command: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    """Run a command; return what it printed. Fails with all of that."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel and the archive of this tree, which passed the checks of ``make dist``."""
    folder = tmp_path_factory.mktemp("dist")
    made(["make", "dist", f"DIST={folder}"], ROOT, SOURCE_DATE_EPOCH=EPOCH)
    return folder


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_archive_is_the_tree_and_its_wheel_needs_no_links(built: Path, tmp_path: Path) -> None:
    """A wheel that is built from the archive without its links is equal byte for byte."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    listed = made(["git", "ls-files"], ROOT).split()
    assert [name for name in listed if not (tree / name).is_file() and Path(name).name not in LINKS] == []
    assert {file.name for file in (tree / "metastore").iterdir() if file.is_symlink()} == set(LINKS)
    shared = {hashlib.sha256(file.read_bytes()).digest() for file in DATA.rglob("*") if file.is_file()}
    inside = {hashlib.sha256(file.read_bytes()).digest(): file for file in tree.rglob("*") if file.is_file()}
    known = {inside[digest].name for digest in inside.keys() & shared if inside[digest].stat().st_size}
    assert known <= {"LICENSE"}  # Apache's text, which others have too
    for name in LINKS:
        (tree / "metastore" / name).unlink()
    build: list[str | Path] = [
        ROOT / "build/dist/bin/python",
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        tmp_path / "again",
    ]
    made([*build, tree], tmp_path, SOURCE_DATE_EPOCH=EPOCH)
    assert wheel_of(tmp_path / "again").read_bytes() == wheel_of(built).read_bytes()


def test_the_description_has_no_link_into_the_repository(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS.keys()
    links = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def environment(folder: Path, wheel: Path, extras: str) -> Path:
    """Return the folder of commands of a new environment that has the wheel, with these extras, and no more."""
    made([sys.executable, "-m", "venv", folder], folder.parent)
    what = f"{wheel}[{extras}]" if extras else str(wheel)
    pip: list[str | Path] = [
        folder / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        what,
    ]
    made(pip, folder.parent, PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    return folder / "bin"


def test_alone_it_makes_a_catalog_and_names_each_extra_that_is_not_there(built: Path, tmp_path: Path) -> None:
    bin_ = environment(tmp_path / "env", wheel_of(built), "")
    (example,) = re.findall(r"## Ten lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    made([bin_ / "python", "-c", example], tmp_path)
    url = {"METASTORE_URL": "sqlite:///catalog.db"}
    assert "orders" in made([bin_ / "metastore", "ls", "lake.sales", "--recursive"], tmp_path, **url)
    made([bin_ / "metastore", "verify"], tmp_path, **url)
    for command, extra in NEEDS.items():
        words = [str(bin_ / "metastore"), *command.split()]
        done = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **url}, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0, command
        assert len(done.stderr.splitlines()) == 1, (command, done.stderr)
        assert f"pip install 'versioned-metastore[{extra}]'" in done.stderr, command


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.nightly
def test_an_extra_brings_what_it_needs(extra: str, built: Path, tmp_path: Path) -> None:
    """Each in an environment of its own: what another extra brings would hide what is missing."""
    bin_ = environment(tmp_path / "env", wheel_of(built), extra)
    url = {"METASTORE_URL": "sqlite:///catalog.db", "SPARK_LOCAL_IP": "127.0.0.1"}
    if extra == "spark":
        lake = build_lake(tmp_path / "lake")
        made([bin_ / "metastore", "crawl", lake, "--into", "lake.nyc"], tmp_path, **url)
        assert "flights" in made([bin_ / "metastore", "ls", "lake.nyc", "--recursive"], tmp_path, **url)
    elif extra == "loadtest":
        made([bin_ / "metastore", "migrate"], tmp_path, **url)
        options = ["--scenario", "hot-table", "--clients", "2", "--seconds", "2", "--out", "report"]
        made([bin_ / "metastore", "loadtest", *options], tmp_path, **url)
        assert {"index.html", "throughput.png"} <= {file.name for file in (tmp_path / "report").iterdir()}
    elif extra == "serve":
        port = free_port()
        words = [str(bin_ / "metastore"), "serve", "--port", str(port), "--warehouse", f"lake.ice={tmp_path}/ice"]
        with subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **url}) as server:
            try:
                for path in ("api/version", "iceberg/v1/config?warehouse=lake.ice", "console/"):
                    assert answered(f"http://127.0.0.1:{port}/{path}") == 200, path
            finally:
                server.terminate()
    else:
        made([bin_ / "python", "-c", IMPORTS[extra]], tmp_path)


def answered(url: str) -> int:
    """Return the status of an answer; ask again until the server listens, for a minute."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(url) as answer:
                return int(answer.status)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
        Event().wait(0.1)
    raise AssertionError(f"nothing listens at {url}")
