"""The whole check on Spark: histories that are as they should be, faults planted into them, and one of a real store."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra [spark]")

from pyspark.sql import SparkSession

import metastore as ms
from metastore.checker.check import check
from metastore.checker.gather import _path, gather, position
from metastore.checker.recorder import Recorder
from metastore.checker.spark_paths import readable
from metastore.errors import InvalidArgument
from tests.checker.client import Client
from tests.checker.folders import write

pytestmark = pytest.mark.timeout(300)


@pytest.mark.long
@pytest.mark.parametrize("operations", [1_000, 20_000])
def test_a_clean_history(spark: SparkSession, tmp_path: Path, operations: int) -> None:
    write(spark, tmp_path, operations, 4)
    checked = check(spark, tmp_path)
    assert checked.clean, checked.findings
    assert checked.operations == operations
    assert checked.events > operations / 8


@pytest.mark.long
def test_a_planted_fault_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """One of them on Spark: test_planted has them all."""
    write(spark, tmp_path, 1_000, 2, fault="skewed pair")
    assert check(spark, tmp_path).counts == {"cycle": 1}


@pytest.fixture
def history(url: str, tmp_path: Path) -> Path:
    """What four clients of one store recorded."""
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.s")
        for n in range(2):
            store.tables.create(f"lake.c.s.t{n}")
    (tmp_path / "run.json").write_text(json.dumps({"since": position(url)}))
    clients = [Client(url, tmp_path, f"c{n}") for n in range(4)]
    threads = [threading.Thread(target=client.work, args=(40,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tmp_path


@pytest.mark.only_whole
@pytest.mark.parametrize("url", [pytest.param("sqlite", marks=pytest.mark.long), "postgres"], indirect=True)
def test_what_clients_of_a_store_recorded(spark: SparkSession, url: str, history: Path) -> None:
    gather(spark, history, url)
    checked = check(spark, history)
    assert checked.clean, checked.findings
    assert checked.operations == 4 * 40 * 5
    operations = spark.read.parquet(str(history / "operations"))
    assert operations.where("outcome = 'applied' and position is null").count() == 0
    assert operations.where("size(conflicts) > 0").count() > 0, "they never met"


@pytest.mark.long
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_one_who_was_killed_before_he_was_told(spark: SparkSession, url: str, history: Path) -> None:
    """A killed client's operation is open: applied, or not. One that the client never noted must not be there."""
    log = history / "log" / "c0.jsonl"
    lines = log.read_text().splitlines()
    at = max(n for n, line in enumerate(lines) if line.startswith('{"end"') and '"applied"' in line)
    begun, told = [json.loads(line) for line in lines[at - 1 : at + 1]]
    assert begun["begin"]["number"] == told["end"]["number"]
    log.write_text("\n".join([*lines[:at], *lines[at + 1 :]]) + '\n{"begin": {"client": "c0", "num')  # a torn line
    gather(spark, history, url)
    checked = check(spark, history)
    assert checked.clean, checked.findings
    assert spark.read.parquet(str(history / "operations")).where("outcome = 'open'").count() == 1
    log.write_text("\n".join([*lines[: at - 1], *lines[at + 1 :]]) + "\n")
    gather(spark, history, url)
    assert check(spark, history).counts == {"once": 1}
    log.write_text("\n".join([*lines[:at], lines[at][:-30], *lines[at + 1 :]]) + "\n")
    with pytest.raises(InvalidArgument, match=f"{log.name} is damaged: 1 of its lines are not records"):
        gather(spark, history, url)


@pytest.mark.parametrize("name", ["", "_hidden", ".hidden", "a/b"])
def test_names_that_no_log_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="a client's name begins with neither"):
        Recorder(tmp_path, name)


def test_a_folder_whose_name_is_a_pattern() -> None:
    """Spark reads patterns; what it is given must mean the folder itself."""
    assert readable(Path("run[1]/{a}*?")) == r"run\[1\]/\{a\}\*\?"


def test_what_stands_below_itself_has_no_path() -> None:
    assert _path({1: (2, "schema", "a"), 2: (1, "schema", "b")}, 1) is None
