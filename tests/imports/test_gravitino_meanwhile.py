"""Import while the old server goes on writing: each import shows one instant of it, and the last one all of it."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path
from typing import Self

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import sqlalchemy as sa

import metastore as ms
from metastore.imports.gravitino import import_gravitino
from tests.imports.gravitino_tables import VERSIONS, create_tables
from tests.imports.gravitino_world import World

TABLES, KEPT = 300, 20


class Writer:
    """Makes schemas with a table and a tag in one transaction, and drops them, until it is stopped."""

    def __init__(self, address: str) -> None:
        self.engine = sa.create_engine(address)
        self.commits, self.live, self.stopped = 0, set[str](), threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            with self.engine.connect() as connection:
                there = World(connection)
                connection.commit()
                for number in count():
                    if self.stopped.is_set():
                        return
                    self._make(there, number)
                    self._drop(there, number - KEPT)
                    connection.commit()
                    self.commits += 1
        except BaseException as error:  # noqa: BLE001  (the test raises it)
            self.error = error

    def _make(self, there: World, number: int) -> None:
        key, place = 10_000 + number, {"metalake_id": 1, "catalog_id": 10, "schema_id": 10_000 + number}
        there.add("schema_meta", **place, schema_name=f"s{number}", properties={})
        there.add("table_meta", table_id=key, table_name="t", **place)
        there.column(key, 1_000_000 + number, "c", 0, **place)
        there.add("tag_relation_meta", tag_id=50, metadata_object_id=key, metadata_object_type="TABLE")
        self.live.add(f"s{number}")

    def _drop(self, there: World, number: int) -> None:
        if number < 0:
            return
        key = 10_000 + number
        for table, column in (
            ("schema_meta", "schema_id"),
            ("table_meta", "table_id"),
            ("table_column_version_info", "table_id"),
            ("tag_relation_meta", "metadata_object_id"),
        ):
            there.set(table, {column: key}, deleted_at=7)
        self.live.discard(f"s{number}")

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        self.engine.dispose()
        if self.error is not None:
            raise self.error


@pytest.fixture
def source(postgres_url: str) -> str:
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        create_tables(connection, VERSIONS[-1])
        there = World(connection)
        there.fill()
        for number in range(TABLES):
            there.table(2000 + number, f"t{number:03}")
            there.column(2000 + number, 20_000 + number, "c", 0)
    engine.dispose()
    return postgres_url


@pytest.mark.long
def test_what_changes_while_it_reads(sqlite_url: str, source: str, tmp_path: Path) -> None:
    plain = source.replace("postgresql+psycopg", "postgresql")
    with Writer(source) as writer:
        for _ in range(3):
            before = writer.commits
            report = import_gravitino(sqlite_url, plain, file=tmp_path / "import.jsonl")
            assert (report.same, report.findings) == (True, [])
            assert writer.commits > before
            with ms.open(sqlite_url) as store:
                schemas = sorted(int(name[1:]) for name in store.schemas.names("lake.sales") if name[0] == "s")
                tables = sum(one.name == "t" for one in store.find("lake.sales", kind="table"))
            assert schemas == list(range(schemas[0], schemas[-1] + 1)) if schemas else True  # one instant
            assert len(schemas) <= KEPT
            assert tables == len(schemas)
    last = import_gravitino(sqlite_url, plain, file=tmp_path / "import.jsonl")
    assert (last.same, last.findings) == (True, [])
    with ms.open(sqlite_url) as store:
        assert {name for name in store.schemas.names("lake.sales") if name[0] == "s"} == writer.live
        assert list(store.verify()) == []
