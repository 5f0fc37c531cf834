"""An export is one instant, whatever others write meanwhile; and it takes no more memory for a larger database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import metastore as ms
from metastore.transaction.transaction import Transaction
from tests.bench.transfer import COLUMNS
from tests.concurrency.workers import Job, Team, Turn
from tests.transfer.world import opened

NewUrl = Callable[[str], str]
PAIRS, EXPORTS = 40, 8
ROOT = Path(__file__).resolve().parents[2]


def change_pairs(turn: Turn, number: int) -> int:
    """Change both halves of a pair in one transaction: their comments, the rows that they own, where they are."""
    turn.meet()
    n = 0
    while turn.go_on() or not n:
        n += 1
        pair, text = (n * 7 + number) % PAIRS, f"{number}-{n}"

        def change(tx: Transaction, pair: int = pair, text: str = text) -> None:
            for half in ("left", "right"):
                path = f"lake.c.{half}.t{pair}"
                tx.tables.alter(path, ms.SetComment(text))
                tx.partitions.drop(path, "old") or tx.partitions.create(path, "old", values={"a": text})

        turn.store.run(change, deadline=60)
    return n


def export_it(turn: Turn, folder: Path) -> list[str]:
    """Export now and again; return the files, each with the position that it names."""
    turn.meet()
    found = []
    for n in range(EXPORTS):
        file = folder / f"{n}.jsonl"
        turn.store.export_to(file, history=n % 2 == 0)
        found.append(str(file))
    return found


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_while_four_processes_write(new_url: NewUrl, team: Team, tmp_path: Path, kind: str) -> None:
    """In every export the halves of a pair are equal, and the feed goes on exactly from its position."""
    url = new_url(kind)
    with opened(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        for half in ("left", "right"):
            store.schemas.create(f"lake.c.{half}")
            store.tables.create_many(f"lake.c.{half}", [{"name": f"t{n}", "comment": ""} for n in range(PAIRS)])
        writers = [Job(change_pairs, n, background=True) for n in range(4)]
        files, *counts = team.run(url, [Job(export_it, tmp_path), *writers])
        assert min(counts) > 0
        states = [halves(Path(file)) for file in files]
        assert all(left == right for left, right in states)
        assert len({json.dumps(left, sort_keys=True) for left, _ in states}) > 1, "nothing was written meanwhile"
        for file, (left, _) in zip(files, states, strict=True):
            follow(store, Path(file), left)
    with opened(new_url(kind)) as restored:
        restored.import_from(files[-2])
        assert restored.verify() == []


Half = dict[str, tuple[str, list[str]]]


def halves(file: Path) -> tuple[Half, Half]:
    """Return comment and partitions of each table, by its name, of both schemas."""
    found: dict[str, Half] = {"left": {}, "right": {}}
    owned: list[str] = []
    for line in map(json.loads, file.read_bytes().splitlines()):
        if line.get("kind") == "table" and "path" in line:
            owned = []
            found[line["path"][2]][line["path"][3]] = (line["doc"]["comment"], owned)
        elif isinstance(line.get("owned"), str):
            owned.append(line["doc"]["values"]["a"])
    return found["left"], found["right"]


def follow(store: ms.Store, file: Path, left: Half) -> None:
    """Take the export, and the changes after its position: that gives the tables as they are."""
    with file.open("rb") as lines:
        position = json.loads(next(lines))["position"]
    if position is None:
        return
    for change in store.changes(after=position):
        if change.kind == "table" and (change.path_after or "").startswith("lake.c.left.") and change.entity:
            left[change.entity.name] = (change.entity.comment or "", left[change.entity.name][1])
    now = {t.name: t.comment for t in store.tables.list("lake.c.left")}
    assert {name: comment for name, (comment, _) in left.items()} == now


MEMORY = """
import sys, psutil, metastore as ms
url, file, what = sys.argv[1:]
def run():
    if what == "restore":
        ms.restore(url, file)
        return
    with ms.open(url) as store:
        if what == "export":
            store.export_to(file, history=True)
        else:
            store.import_from(file)
own = psutil.Process()
with ms.open(url if what != "restore" else "memory://") as store:
    store.ping()
from metastore.transfer import calls
before = own.memory_info().rss
run()
import resource
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / 2**20)
"""


def growth(what: str, url: str, file: Path) -> float:
    """Return by how many megabytes a process grows at most (its peak against what it had when it began)."""
    command = [sys.executable, "-c", MEMORY, url, str(file), what]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.long
@pytest.mark.slow
def test_memory_is_bounded(new_url: NewUrl, tmp_path: Path) -> None:
    """From 2,000 to 10,000 tables, which are 15 MB of lines, neither side grows by more than a few megabytes."""
    peaks: dict[str, list[float]] = {"export": [], "import": [], "restore": []}
    for count in (2_000, 10_000):
        url, history, plain = new_url("postgres"), tmp_path / f"h{count}.jsonl", tmp_path / f"p{count}.jsonl"
        with opened(url) as store:
            store.metalakes.create("lake")
            store.catalogs.create("lake.c", type="relational")
            store.schemas.create("lake.c.s")
            rows = ({"name": f"t{n}", "columns": COLUMNS, "comment": "x" * 200} for n in range(count))
            store.tables.create_many("lake.c.s", rows)
            store.export_to(plain)
        peaks["export"].append(growth("export", url, history))
        peaks["import"].append(growth("import", new_url("postgres"), plain))
        peaks["restore"].append(growth("restore", new_url("postgres"), history))
    assert (tmp_path / "h10000.jsonl").stat().st_size > 12 << 20
    assert all(large - small < 8 for small, large in peaks.values()), peaks
