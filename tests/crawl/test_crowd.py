"""Two crawls of one lake at once, and six people who edit, rename and move tables meanwhile: eight processes.

The judge (test_judge.py) has all of this in one process, at chosen instants; here the instants are real.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument
from tests.concurrency.workers import FORKSERVER
from tests.crawl.conftest import Lake, crawl_here

EDITORS, EDITS, CRAWLS = 6, 12, 3
COLUMNS = {"x": "long", "y": "string", "z": "double"}


@pytest.fixture
def crowded(lake: Lake) -> Lake:
    """Give a lake of 20 data sets: folders, partitioned ones, and a folder whose files are each a table."""
    for number in range(10):
        for part in range(2):
            lake.parquet(f"plain{number % 2}/t{number}/{part}.parquet", {"x": [part], "y": ["a"], "z": [0.5]})
    for number in range(5):
        for month in (1, 2):
            lake.parquet(f"parted/p{number}/month={month}/a.parquet", {"x": [month], "y": ["a"], "z": [0.5]})
    for number in range(5):
        lake.parquet(f"apart/files/f{number}.parquet", {"x": [1], f"own{number}": ["a"], f"two{number}": [2]})
    return lake


def locations(lake: Lake) -> set[str]:
    """Return where the data sets of the lake are."""
    folders = {p.parent for p in lake.root.glob("plain*/*/*")} | set(lake.root.glob("parted/*"))
    return {f"file://{path}" for path in folders | set(lake.root.glob("apart/files/*"))}


def every_table(store: ms.Store) -> Iterator[Any]:
    """Yield all live tables, wherever they are."""

    def below(parent: Any) -> Iterator[Any]:
        yield from store.tables.list(parent) if parent.kind == "schema" else ()
        for schema in store.schemas.list(parent):
            yield from below(schema)

    for catalog in store.catalogs.list("lake"):
        yield from below(catalog)


def crawl_often(url: str, root: str, out: str) -> None:
    failures: list[str] = []
    for _ in range(CRAWLS):
        report = crawl_here(url, [Path(root)], tasks=2)
        failures += [f"{failure.path}: {failure.reason}" for failure in report.failures]
    Path(out).write_text(json.dumps(failures))


def edit_often(url: str, number: int, out: str) -> None:
    """Edit tables at random; write down what was done, by the table's id."""
    chosen, done = random.Random(number), list[tuple[int, str, str]]()
    with ms.open(url, principal=f"editor{number}") as store:
        turn = 0
        while turn < EDITS:
            try:
                tables = list(every_table(store))
                if not tables:
                    continue
                table, mark = chosen.choice(tables), f"e{number}_{turn}"
                turn += 1
                what = chosen.choice(["property", "property", "column", "rename", "move", "away"])
                if what == "property":
                    store.tables.alter(table, ms.SetProperty(mark, "x"))
                elif what == "column":
                    store.tables.alter(table, ms.AddColumn(mark, "int"))
                elif what == "rename":
                    store.tables.rename(table, f"{table.name[:10]}_{mark}")
                else:
                    place = "lake.main.moved" if what == "move" else "lake.other.s"
                    store.tables.rename(table, f"{place}.{table.name[:10]}_{mark}")
                done.append((table.id, what, mark))
            except (EntityNotFound, EntityAlreadyExists, InvalidArgument):
                continue
    Path(out).write_text(json.dumps(done))


@pytest.mark.long
def test_two_crawls_and_six_editors(url: str, crowded: Lake, tmp_path: Path) -> None:
    if url.startswith("postgres"):
        ms.migrate(url)
    with ms.open(url) as store:
        store.metalakes.create("lake")
        for schema in ("lake.main.moved", "lake.other.s"):
            store.catalogs.create(schema.rpartition(".")[0], type="relational")
            store.schemas.create(schema)
    outs = [str(tmp_path / f"out{number}") for number in range(EDITORS + 2)]
    people = [FORKSERVER.Process(target=edit_often, args=(url, n, outs[n])) for n in range(EDITORS)]
    crawls = [FORKSERVER.Process(target=crawl_often, args=(url, str(crowded.root), out)) for out in outs[EDITORS:]]
    for process in crawls + people:
        process.start()
    for process in crawls + people:
        process.join()
    assert [process.exitcode for process in crawls + people] == [0] * (EDITORS + 2)
    assert [json.loads(Path(out).read_text()) for out in outs[EDITORS:]] == [[], []]
    edits = [edit for out in outs[:EDITORS] for edit in json.loads(Path(out).read_text())]
    assert len(edits) > EDITORS * EDITS / 2
    with ms.open(url) as store:
        check_tables(store, crowded, edits)
        before = sum(1 for _ in store.changes())
        report = crawl_here(url, [crowded.root])
        assert (report.unchanged, report.attempts, report.failures) == (20, 0, ())
        assert sum(1 for _ in store.changes()) == before
        assert list(store.verify()) == []


def check_tables(store: ms.Store, lake: Lake, edits: list[tuple[int, str, str]]) -> None:
    """Each data set is one live table, with its own columns and those of people, in any place, with all edits."""
    tables = {table.id: table for table in every_table(store)}
    assert Counter(table.location for table in tables.values()) == Counter(locations(lake))
    added: dict[int, set[str]] = {table: set() for table in tables}
    for table, what, mark in edits:
        assert table in tables, f"the table of {what} {mark} is gone"
        if what == "property":
            assert tables[table].properties[mark] == "x"
        elif what == "column":
            added[table].add(mark)
    moves = Counter(table for table, what, _ in edits if what in ("rename", "move", "away"))
    for table in tables.values():
        names = {column.name for column in table.columns}
        assert names == file_columns(table) | added[table.id]
        assert (moves[table.id] > 0) == ("_e" in table.name), table.path
        assert len(list(store.partitions.list(table))) == (2 if "/parted/" in table.location else 0)


def file_columns(table: Any) -> set[str]:
    """Return the columns that the files of a table have."""
    if "/parted/" in table.location:
        return {*COLUMNS, "month"}
    number = table.location[-9:-8] if table.location.endswith(".parquet") else None
    return set(COLUMNS) if number is None else {"x", f"own{number}", f"two{number}"}
