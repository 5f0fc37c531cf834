"""The history checker watches a lock-tree catalog through its stages."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra [spark]")

from pyspark.sql import SparkSession

import metastore as ms
from metastore import bridge
from metastore.checker.check import check
from metastore.checker.gather import gather, position
from metastore.checker.recorder import Recorder
from metastore.checker.records import Outcome, Seen
from tests.concurrency.checks import seed

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
HOT = "lake.cat.s.hot"
ROUNDS = 25


class Client:
    """Counts a table up as a lock-tree catalog does, and records what it read and wrote."""

    def __init__(self, url: str, folder: Path, name: str, stage: bridge.Stage, meet: threading.Barrier) -> None:
        self._store = ms.open(url)
        self._tree = bridge.Bridge(self._store, stage, ttl=20.0)
        self._recorder = Recorder(folder, name)
        self._meet = meet

    def work(self) -> None:
        with self._store:
            for _ in range(ROUNDS):
                self._count_up()
        self._recorder.close()

    def _count_up(self) -> None:
        operation = self._recorder.begin("transaction", "table", HOT)
        with self._tree.tree_lock(HOT, "write") as section:
            table = self._store.tables.load(HOT)
            if section.lease is None:
                self._meet.wait(60)
            count = int(table.properties.get("n", "0")) + 1
            self._store.tables.alter(
                HOT, ms.SetProperty("n", str(count)), lease=section.lease, principal=operation.principal
            )
        operation.reads = [Seen(HOT, True, table.id, table.version)]
        outcome: Outcome = "applied"
        self._recorder.end(operation, outcome)


def _run(url: str, folder: Path, stage: bridge.Stage) -> int:
    """Let two servers count up; return the count."""
    seed(url)
    with ms.open(url) as store:
        store.tables.create(HOT)
        (folder / "run.json").write_text(json.dumps({"since": position(url)}))
        meet = threading.Barrier(2)
        clients = [Client(url, folder, f"c{n}", stage, meet) for n in range(2)]
        threads = [threading.Thread(target=client.work) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return int(store.tables.load(HOT).properties["n"])


def test_bridged_sections_are_serializable(spark: SparkSession, url: str, tmp_path: Path) -> None:
    assert _run(url, tmp_path, "bridged") == 2 * ROUNDS
    gather(spark, tmp_path, url)
    checked = check(spark, tmp_path)
    assert checked.clean, checked.findings
    assert checked.operations == 2 * ROUNDS


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_checker_sees_what_the_lock_tree_lets_through(spark: SparkSession, url: str, tmp_path: Path) -> None:
    assert _run(url, tmp_path, "lock") == ROUNDS
    gather(spark, tmp_path, url)
    assert not check(spark, tmp_path).clean
