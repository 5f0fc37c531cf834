"""The judge of imports from Gravitino: what people made here stands, and what is live there comes over.

There, tables are made, renamed, moved, tagged and dropped. Here, people make tables of the same names, rename and drop
theirs and imported ones, and tag theirs: between any two steps of an import, as a seed says. An import may be refused
then, or killed. At the end each table of people is as they left it, each name of both sides is there, and a further
import writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip("starlette", reason="needs the extra [serve]")

import metastore as ms
from metastore.errors import EntityAlreadyExists, EntityNotFound, MetastoreError
from metastore.imports.gravitino import follow, import_gravitino, run
from metastore.imports.gravitino.target import contents_of_store
from metastore.transfer import chunks, importer, relations
from tests.imports.gravitino_tables import VERSIONS
from tests.imports.test_gravitino import world

SCHEMAS = {"eu": 100, "us": 101}
NAMES = [f"n{number}" for number in range(6)]


class Killed(BaseException):
    """The import was killed here."""


@dataclass
class There:
    """Tables in Gravitino's database, by their ids: schema and name."""

    source: str
    random: Random
    tables: dict[int, tuple[str, str]] = field(default_factory=dict)
    last: int = 2000
    metadata: sa.MetaData | None = None

    def act(self) -> None:
        """Change something."""
        free = [(schema, name) for schema in SCHEMAS for name in NAMES if (schema, name) not in self.tables.values()]
        what = self.random.randrange(4)
        with world(self.source, metadata=self.metadata) as there:
            self.metadata = there.metadata
            if free and (what == 0 or not self.tables):
                self.last += 1
                schema, name = self.tables[self.last] = self.random.choice(free)
                there.table(self.last, name, schema_id=SCHEMAS[schema])
                there.column(self.last, 10 * self.last, "c", 0)
                return
            key = self.random.choice(list(self.tables))
            if free and what == 1:
                schema, name = self.tables[key] = self.random.choice(free)
                there.set("table_meta", {"table_id": key}, table_name=name, schema_id=SCHEMAS[schema])
            elif what == 2:
                there.set("table_meta", {"table_id": key}, deleted_at=7)
                del self.tables[key]
            else:
                there.add("tag_relation_meta", tag_id=50, metadata_object_id=key, metadata_object_type="TABLE")


@dataclass
class Here:
    """What people made here, by its id: the path, and whether it is tagged."""

    store: ms.Store
    random: Random
    own: dict[int, tuple[str, bool]] = field(default_factory=dict)

    def act(self) -> None:
        """Make, rename, drop or tag something."""
        path = f"lake.sales.{self.random.choice(list(SCHEMAS))}.{self.random.choice(NAMES)}"
        tables = self.store.tables
        with suppress(MetastoreError):
            what = self.random.randrange(5)
            if what < 2:
                self.own[tables.create(path, comment="mine").id] = (path, False)
                return
            entity = tables.load(path)
            if what == 2:
                new = f"{path.rpartition('.')[0]}.{self.random.choice(NAMES)}"
                tables.rename(entity, new)
                if entity.id in self.own:
                    self.own[entity.id] = (new, self.own[entity.id][1])
            elif what == 3:
                tables.drop(entity)
                self.own.pop(entity.id, None)
            elif entity.id in self.own:
                self.store.tags.attach(entity, "lake.pii")
                self.own[entity.id] = (path, True)


class Judge:
    """Both sides, and what happens between two steps of an import."""

    def __init__(self, url: str, store: ms.Store, source: str, file: Path, seed: int) -> None:
        self.url, self.source, self.file, self.random = url, source, file, Random(seed)
        self.there, self.here = There(source, self.random), Here(store, self.random)
        self.calm = True

    def run(self, imports: int) -> None:
        """Import beside people, and then in peace; say what is wrong."""
        with world(self.source, VERSIONS[-1]) as there:
            there.fill()
        self.there.tables[1000] = ("eu", "orders")
        self._import()
        with self._held_up():
            for _ in range(imports):
                for act in (self.there.act, self.here.act) * 3:
                    act()
                self.calm = False
                with suppress(EntityAlreadyExists, EntityNotFound, Killed):
                    self._import()
                self.calm = True
        assert self._import().same
        self._check()
        before = self.here.store.position()
        assert self._import().same
        written = {one.kind for one in self.here.store.changes(after=before)}
        assert written == {"lease"}  # the import's own

    def _import(self) -> Any:
        return import_gravitino(self.url, self.source, file=self.file)

    def step(self) -> None:
        """Let people act, or kill the import."""
        if not self.calm:
            chance = self.random.random()
            if chance < 0.3:
                self.here.act()
            elif chance < 0.32:
                raise Killed

    @contextmanager
    def _held_up(self) -> Iterator[None]:
        places: list[tuple[Any, str]] = [
            (run, "contents_of_store"),
            (run, "drop_the_gone"),
            (run, "rename_the_moved"),
            (run, "detach_the_gone"),
            (follow, "_standing"),
            (importer._Importer, "write"),
            (importer._Importer, "_look"),
            (relations, "_there"),
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunks, "_CHUNK", 5)
            for place, name in places:
                patch.setattr(place, name, self._stepped(getattr(place, name)))
            yield

    def _stepped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            self.step()
            answer = call(*args, **options)
            self.step()
            return answer

        return stepped

    def _check(self) -> None:
        store = self.here.store
        for key, (path, tagged) in self.here.own.items():
            table = store.tables.load(path)
            assert (table.id, table.comment) == (key, "mine"), path
            assert bool(store.tags.on(table, inherited=False)) == tagged, path
        ours = {(path.split(".")[2], path.split(".")[3]) for path, _ in self.here.own.values()}
        imported = contents_of_store(store, ["lake"]).names
        stay = {
            names[2:]
            for (kind, key), names in imported.items()
            if kind == "table" and self.there.tables.get(key) in ours
        }
        for schema in SCHEMAS:  # where people have the new name of an imported table, it keeps its old one
            wanted = {name for at, name in {*ours, *self.there.tables.values(), *stay} if at == schema}
            assert set(store.tables.names(f"lake.sales.{schema}")) == wanted
        assert list(store.verify()) == []


def judged(url: str, tmp_path: Path, seed: int, imports: int) -> None:
    with ms.open(url, principal="people") as store:
        Judge(url, store, f"sqlite:///{tmp_path}/gravitino.db", tmp_path / "import.jsonl", seed).run(imports)


def test_what_people_made_stands(sqlite_url: str, tmp_path: Path) -> None:
    judged(sqlite_url, tmp_path, 0, 2)


@pytest.mark.long
@pytest.mark.timeout(900)  # 23 imports: half a minute of processor time, three minutes on a machine that is shared
@pytest.mark.parametrize("seed", range(1, 31))
def test_what_people_made_stands_for_long(url: str, tmp_path: Path, seed: int) -> None:
    judged(url, tmp_path, seed, 20)
