"""The judge of the crawler: what people did stands, and nothing that exists is gone.

People edit, rename, move and drop tables; files come and go; crawls overlap, are killed, run their tasks again and see
broken listings. All of it happens in one process, between any two steps of a crawl, as a seed says. At the end every
edit is there, every data set has one table with all its partitions and rows, and a further crawl writes nothing. Until
then the crawler has dropped or marked nothing whose files were there all the time.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

import metastore as ms
from metastore.crawl.write.plan import MISSING
from tests.crawl.conftest import INTO, Lake
from tests.crawl.disorder import Disorder, Killed
from tests.crawl.people import THEIRS, People

_DEEPEST = 3
"""How many crawls are under way at once."""
VOLATILE = 50
"""The files of months from here to those of people come and go; the others stay."""


@dataclass
class Files:
    """The files of a lake: some stay, others come and go."""

    lake: Lake
    random: Random
    written: int = 0

    def fill(self) -> None:
        """Write all that stays."""
        for name in ("s/a", "s/b", "s/p/month=1", "s/p/month=2", "t/q/month=1", "s/p/month=50", "t/q/month=51"):
            self._write(f"{name}/1.parquet")
        for name in ("u/apart/one", "u/apart/two", "v/gone0/1", "v/gone1/1", "v/gone2/1"):
            self._write(f"{name}.parquet")

    def act(self) -> None:
        """Change some files."""
        what = self.random.randrange(5)
        if what == 0:
            shutil.rmtree(self.lake.root / self._volatile(), ignore_errors=True)
        elif what == 1:
            self._write(f"{self._volatile()}/{self.random.randrange(3)}.parquet")
        elif what == 2:
            self._write(f"s/{self.random.choice('ab')}/{self.random.randrange(9)}.parquet")
        elif what == 3:
            self._write(f"{self._parted()}/month={self.random.randrange(1, 4)}/1.parquet")
        else:
            self._write(f"u/apart/{self.random.choice(['one', 'two', 'three'])}.parquet")

    def _volatile(self) -> str:
        return self.random.choice(
            [f"v/gone{self.random.randrange(3)}", f"{self._parted()}/month={VOLATILE + self.random.randrange(3)}"]
        )

    def _parted(self) -> str:
        return self.random.choice(("s/p", "t/q"))

    def _write(self, name: str) -> None:
        self.written += 1
        rows = self.written % 7 + 1
        own = {"one": "a", "two": "b", "three": "c"}.get(Path(name).stem)
        rest = {"y": "a", "z": 0.5} if own is None else {f"own{own}": 1, f"its{own}": 1}
        columns = {column: [value] * rows for column, value in {"x": 1, **rest}.items()}
        beside = self.lake.parquet("_writing/next.parquet", columns)  # no crawl sees half a file
        (self.lake.root / name).parent.mkdir(parents=True, exist_ok=True)
        beside.replace(self.lake.root / name)

    # --- what is there

    def datasets(self) -> dict[str, list[Path]]:
        """Return the files of each data set by its location."""
        found: dict[str, list[Path]] = {}
        for file in self.lake.root.glob("[!_]*/**/*.parquet"):
            place = file if "apart" in file.parts else file.parent
            place = place.parent if place.name.startswith("month=") else place
            found.setdefault(f"file://{place}", []).append(file)
        return found


class Judge:
    """A lake, people, and crawls. ``step`` is what may happen between two steps of a crawl."""

    def __init__(self, url: str, crawler: ms.Store, people: ms.Store, lake: Lake, seed: int) -> None:
        self.store, self.random = people, Random(seed)
        self.files, self.people = Files(lake, self.random), People(people, self.random)
        self.disorder = Disorder(url, crawler, lake.root, self.random, self.step, INTO)
        self.calm, self.depth = True, 0

    def run(self, crawls: int) -> None:
        """Let it all happen, and then see that a crawl finds all, and a further one nothing new."""
        self.files.fill()
        self.people.prepare()
        with self.disorder.held_up():
            self.disorder.crawl()
            self.calm = False
            for _ in range(crawls):
                for act in (self.people.act, self.files.act) * 2:
                    act()
                self._nested(self.crawl)
            self.calm = True
            while self.people.pending:
                self.people.end_drop()
            assert self.disorder.crawl().failures == ()
            before = self.store.position()
            report = self.disorder.crawl()
        assert (report.attempts, report.failures, self.store.position()) == (0, (), before)

    def step(self) -> None:
        """Let something happen, or nothing."""
        if self.calm:
            return
        chance = self.random.random()
        if chance < 0.10:
            self.people.act()
        elif chance < 0.16:
            self.files.act()
        elif chance < 0.19 and self.depth < _DEEPEST:
            self._nested(self.crawl)
        elif chance < 0.21 and self.depth < _DEEPEST:
            self._nested(self.disorder.run_again)
        elif chance < 0.23:
            raise Killed

    def _nested(self, act: Callable[[], object]) -> None:
        self.depth += 1
        with suppress(Killed):
            act()
        self.depth -= 1

    def crawl(self) -> None:
        """Crawl in any way, and see perhaps only a part of the lake."""
        options = [("on_missing", ("keep", "mark", "drop", "drop")), ("max_missing", (0.2, 1, 1))]
        options.append(("on_type_change", ("report", "widen")))
        self.disorder.crawl(breaks=self.random.random() < 0.3, **{k: self.random.choice(some) for k, some in options})

    # --- the verdict

    def check(self) -> None:
        """Say what is wrong."""
        assert self.people.lost() == []
        assert list(self._taken()) == []
        tables = {table.location: table for table in self._tables() if MISSING not in table.properties}
        datasets = self.files.datasets()
        for place in [place for place in datasets if place not in tables]:
            if place.rpartition("/")[0] in tables:  # a listing showed only this file of its folder: it was one table
                del datasets[place]
        found = Counter(table.location for table in self._tables() if table.location in datasets)
        assert found == Counter(list(datasets))
        for location, files in datasets.items():
            table = tables[location]
            months = {file.parent.name for file in files if file.parent.name.startswith("month=")}
            there = set(self.store.partitions.names(table))
            assert months <= there <= months | self.people.months.get(table.id, set()), table
            rows = sum(pq.read_metadata(file).num_rows for file in files)
            assert self.store.statistics.load(table, "crawl").values["rows"] == rows, table
        assert list(self.store.verify()) == []

    def _tables(self) -> list[Any]:
        return list(self.store.find("lake", kind="table"))

    def _taken(self) -> Iterator[str]:
        """Yield what the crawler dropped or marked although its files were there all the time.

        So is what an older listing wrote over a newer one.
        """
        places, listed = dict[int, str](), dict[str, int]()
        for change in self.store.changes(kinds=["table", "partition", "source"]):
            row: Any = change.entity
            if change.kind == "source" and row is not None:
                if row.listed < listed.get(row.name, 0):
                    yield f"{row.name}: an older listing was written over a newer one"
                listed[row.name] = row.listed
            if change.kind == "partition" and change.action == "drop" and change.principal == "crawler":
                month = int(str(change.path_before).rpartition("month=")[2].strip("`"))
                if not VOLATILE <= month < THEIRS:
                    yield f"{change.path_before} was removed"
            if change.kind != "table":
                continue
            places.setdefault(change.entity_id, "" if row is None else row.location)
            place = places[change.entity_id]
            if change.principal == "crawler" and "/v/gone" not in place:
                if change.action == "drop":
                    yield f"{place} was dropped"
                elif row is not None and MISSING in row.properties:
                    yield f"{place} was marked"


def judged(url: str, lake: Lake, seed: int, crawls: int, *, in_steps: bool = False) -> None:
    with ms.open(url, principal="crawler") as crawler, ms.open(url, principal="people") as people:
        judge = Judge(url, crawler, people, lake, seed)
        judge.people.in_steps = in_steps
        judge.run(crawls)
        judge.check()


def test_what_people_did_stands(sqlite_url: str, lake: Lake) -> None:
    judged(sqlite_url, lake, 5, 8)  # a seed that finds three planted faults: not asked, overtaken, tagged


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_what_people_did_stands_for_long(url: str, lake: Lake, seed: int) -> None:
    if url.startswith("postgres"):
        ms.migrate(url)
    judged(url, lake, seed, 20, in_steps=seed % 2 == 1)
