"""Spark with Iceberg's own runtime, against the REST server, with SQL and concurrent writers.

The newest runtime is for Spark 4.1, and does not load in Spark 4.3 (``IncompatibleClassChangeError``), so
``make iceberg-spark`` makes an environment with PySpark 4.1 and that runtime.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="needs the extra [iceberg]")

import metastore as ms
from tests.iceberg.server import served

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "iceberg-spark"
PROGRAM = Path(__file__).with_name("spark_program.py")
WRITERS, APPENDS = 2, 5

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def start(address: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    """Start the program in its own environment; ``settings``: more of the catalog, with ``_`` for ``-``."""
    jars = sorted(HOME.glob("iceberg-spark-runtime-*.jar"))
    java = ROOT / "build" / "java_home"
    if not jars or not java.exists():
        pytest.skip("needs Spark with Iceberg's runtime in an environment of its own: make iceberg-spark")
    environment = {**os.environ, "JAVA_HOME": java.read_text().strip(), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_HOME", None)
    environment["ICEBERG_SETTINGS"] = json.dumps({name.replace("_", "-"): value for name, value in settings.items()})
    command = [str(HOME / "bin" / "python"), str(PROGRAM), address, str(jars[-1]), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_statements_of_each_sort(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path / "warehouse") as address:
        out, errors = start(address).communicate(timeout=300)
    said = dict(json.loads(line) for line in out.splitlines())
    assert "DROP NAMESPACE ice.a.n" in said, errors[-3000:]
    assert said["SELECT * FROM ice.a.t ORDER BY id"] == [[1, "x", 3], [5, "m", 0]]
    assert said["SELECT count(*) FROM ice.a.t.snapshots"] == [[4]]
    assert said["SHOW TABLES IN ice.a"] == [["a", "t", False], ["a", "v", False]]
    assert said["SELECT count(*) FROM ice.a.w"] == [[2]]
    assert said["SHOW VIEWS IN ice.a"] == [["a", "w", False]]
    assert said["SELECT count(*) FROM ice.a.t VERSION AS OF 'b'"] == [[3]]
    assert said["SHOW NAMESPACES IN ice.a"] == [["a.n"]]
    with ms.open(url) as store:
        table = store.tables.load("lake.ice.a.t")
        assert [column.name for column in table.columns] == ["id", "name", "z"]
        assert list(store.tables.names("lake.ice.a")) == ["t"]
        assert store.verify() == []


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_every_append_of_two_sparks_is_there_once(url: str, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    with served(url, tmp_path / "warehouse") as address:
        catalog = load_catalog("rest", type="rest", uri=address, warehouse="lake.ice")
        catalog.create_namespace("hot")
        fields = NestedField(1, "writer", StringType(), required=False), NestedField(2, "n", LongType(), required=False)
        catalog.create_table("hot.t", Schema(*fields))
        running = [start(address, f"w{n}", str(APPENDS)) for n in range(WRITERS)]
        for one in running:
            _, errors = one.communicate(timeout=300)
            assert one.returncode == 0, errors[-3000:]
        rows = catalog.load_table("hot.t").scan().to_arrow().to_pylist()
    assert sorted((row["writer"], row["n"]) for row in rows) == [
        (f"w{writer}", n) for writer in range(WRITERS) for n in range(APPENDS)
    ]
