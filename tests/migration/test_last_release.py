"""The last release's program writes while this one migrates: refused or right, never wrong.

The last release is the newest commit of this repository whose programs write another format.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import metastore as ms
from metastore.port.format import SCHEMA_FORMAT
from tests.past.trees import tree
from tests.servers.process import wait_until

pytestmark = [pytest.mark.long, pytest.mark.postgres]

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = """
import sys
import metastore as ms
from metastore.port.backend import SCHEMA_FORMAT

assert SCHEMA_FORMAT == int(sys.argv[2]) - 1, SCHEMA_FORMAT
if sys.argv[3] == "migrate":
    ms.migrate(sys.argv[1])
    sys.exit()
with ms.open(sys.argv[1], principal="old") as store:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    for n in range(100_000):
        try:
            store.tables.create(f"m.c.s.t{n}", parents=True)
            store.tables.alter(f"m.c.s.t{n % 3}", ms.SetComment(str(n)))
        except ms.MetastoreError as error:
            print("refused", type(error).__name__, flush=True)
            break
        print(f"t{n}", flush=True)
"""


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the source tree of the last commit before the newest revision."""
    newest = max((ROOT / "migrations/versions").glob("v*.py")).relative_to(ROOT)
    made = _git("log", "--format=%H", "--diff-filter=A", "--", str(newest)).decode().split()
    archive = _git("archive", f"{made[-1]}^", ":(exclude)docs", ":(exclude)tests") if made else b""
    if not archive:
        pytest.skip("needs the history of this repository: a clone that is not shallow")
    folder = tmp_path_factory.mktemp("last")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="tar")
    return folder


def test_the_last_release_writes_while_this_one_migrates(last_release: Path, empty_postgres_url: str) -> None:
    url = empty_postgres_url
    words = [sys.executable, "-c", _PROGRAM, url, str(SCHEMA_FORMAT)]
    subprocess.run([*words, "migrate"], cwd=last_release, check=True)
    log = last_release / "said"
    with log.open("w") as said, subprocess.Popen([*words, "write"], cwd=last_release, stdout=said) as old:
        try:
            assert wait_until(lambda: len(log.read_text().split()) > 20, 60)
            with pytest.raises(ms.BackendUnavailable, match=r"connected to .*migrate again; or migrate with --force"):
                ms.migrate(url)
            before = len(log.read_text().split())
            assert wait_until(lambda: len(log.read_text().split()) > before, 60), "a refused migration stops nobody"
            ms.migrate(url, force=True)
            assert old.wait(60) == 0
        finally:
            old.kill()
    *told, refused = log.read_text().splitlines()
    assert refused in ("refused MigrationNeeded", "refused InvalidArgument", "refused BackendRefused")
    with ms.open(url) as store:
        there = set(store.tables.names("m.c.s"))
        assert there >= set(told)
        assert len(there) <= len(told) + 1, "only the call that was refused may have made one more: its create"
        assert tree(store.at(store.position())) == tree(store)
        for change in list(store.changes())[::25]:
            store.at(change.position).tables.names("m.c.s")
        assert store.verify() == []
