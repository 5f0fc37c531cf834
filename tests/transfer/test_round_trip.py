"""A database goes through a file into another backend and back, and nothing differs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metastore as ms
from metastore.store import Store
from tests.migration.schema import run
from tests.past.trees import tree
from tests.strategies import names, texts
from tests.traces.test_traces import apply, read_trace, start
from tests.transfer.world import build, collect, difference, opened

pytestmark = pytest.mark.one_in(3)

NewUrl = Callable[[str], str]
CIRCLE = ("postgres", "sqlite", "postgres")


def exported(store: Store, target: Any = None, **options: bool) -> tuple[io.BytesIO, ms.Exported]:
    stream, wanted = io.BytesIO(), {"ids": False, "history": False} | options
    return stream, store.export_to(stream, target, ids=wanted["ids"], history=wanted["history"])


def events(store: Store) -> list[dict[str, Any]]:
    """The feed, without the epoch. Its fields, whatever else an entry holds: it makes its entity when it is asked."""
    of_all = ({field.name: getattr(change, field.name) for field in fields(change)} for change in store.changes())
    return [one | {"position": one["position"].rpartition("-")[2]} for one in of_all]


def epoch(store: Store) -> str:
    header = json.loads(exported(store)[0].getvalue().splitlines()[0])
    found: str = header["position"].partition("-")[0]
    return found


@pytest.mark.parametrize("collected", [False, True])
def test_with_history_nothing_differs(new_url: NewUrl, collected: bool) -> None:
    """PostgreSQL, SQLite, PostgreSQL, memory: every row of every table is the same, and verify finds nothing."""
    with ExitStack() as stack:
        first = stack.enter_context(opened(new_url("postgres")))
        epochs = {epoch(first)}
        build(first)
        if collected:
            collect(first)
        stream, said = exported(first, history=True)
        for kind in (*CIRCLE[1:], "memory"):
            store = stack.enter_context(opened(new_url(kind)))
            done = store.import_from(stream)
            assert (done.restored, done.hash, done.checksum) == (True, said.hash, said.checksum)
            assert difference(first, store) == []
            assert store.verify() == first.verify() == []
            assert events(store) == events(first)
            stream, again = exported(store, history=True)
            assert (again.hash, again.checksum, again.lines) == (said.hash, said.checksum, said.lines)
            assert epoch(store) not in epochs
            epochs.add(epoch(store))


@pytest.mark.parametrize("kind", [*CIRCLE[:2], "memory"])
def test_what_an_older_program_left_unnamed(new_url: NewUrl, kind: str) -> None:
    """In the file no step that is kept took the names: the past that begins with the restore has all rows."""
    url = new_url("postgres")
    with opened(url) as first:
        build(first)
        collect(first)
        run(url, "UPDATE operation SET family = NULL, key = NULL WHERE state = 0")
        assert {violation.invariant for violation in first.verify()} == {15}
        stream, _ = exported(first, history=True)
        with opened(new_url(kind)) as store:
            store.import_from(stream)
            assert store.verify() == []
            assert tree(store.at(store.position())) == tree(store)


def test_it_goes_on_where_it_was(new_url: NewUrl) -> None:
    """What was restored is used like any other database: new ids and positions are new, old positions are refused."""
    with opened(new_url("sqlite")) as first, opened(new_url("postgres")) as second:
        build(first)
        position = list(first.changes())[-1].position
        second.import_from(exported(first, history=True)[0])
        with pytest.raises(ms.InvalidArgument, match="of another database"):
            list(second.changes(after=position))
        last = list(second.changes())[-1].position
        restored = second.schemas.restore("lake.c.gone")
        assert [t.name for t in second.tables.list(restored)] == ["with_it"]
        made = second.tables.create("lake.c.gone.new")
        assert made.id not in {c.entity_id for c in first.changes()}
        assert [c.action for c in second.changes(after=last)] == ["restore", "create"]
        second.metalakes.enable("closed")
        second.metalakes.create("another")
        versions = [v.version for v in second.tables.history("lake.c.s.t")]
        assert versions == [v.version for v in first.tables.history("lake.c.s.t")] == [1, 2, 3]
        assert second.verify() == []


def test_with_ids_only(new_url: NewUrl) -> None:
    """What is live keeps its ids and versions, and has its present version as its history."""
    with opened(new_url("postgres")) as first, opened(new_url("sqlite")) as second:
        build(first)
        stream, said = exported(first, ids=True)
        assert second.import_from(stream).restored
        assert exported(second)[1].hash == said.hash
        assert second.verify() == []
        for path in ("lake.c.s.t", "lake.newer.deep.er.moved.n3"):
            one, other = first.tables.load(path), second.tables.load(path)
            assert one == other
            assert [v.version for v in second.tables.history(path)] == [one.version]
        assert list(second.schemas.dropped("lake.c")) == []
        table = second.tables.alter("lake.c.s.t", ms.SetComment("on"))
        assert table.version == one.version + 3 or table.version == 4
        assert second.verify() == []


def related(store: Store) -> list[object]:
    """Return the relations that a reader sees."""
    path = "lake.governed.s.t"
    tags = [(one.name, one.value, one.column) for one in store.tags.targets("lake.pii")]
    owner, reader = store.owners.of(path), store.roles.load("lake.reader")
    grants = [(grant.privilege, grant.effect, grant.path) for grant in store.roles.grants(reader)]
    members = [m.path for m in store.roles.members(reader)], [u.path for u in store.groups.members("lake.staff")]
    return [tags, owner and owner.path, grants, members, store.statistics.of(path, partition="day=1")]


@pytest.mark.parametrize("kinds", [("postgres", "sqlite"), ("sqlite", "postgres"), ("sqlite", "memory")])
def test_without_ids(new_url: NewUrl, kinds: tuple[str, str]) -> None:
    """Through the managers: new ids, one version each, the same content; a second time nothing is written."""
    with opened(new_url(kinds[0])) as first, opened(new_url(kinds[1])) as second:
        build(first)
        second.metalakes.create("of others")
        second.metalakes.purge("of others")
        stream, said = exported(first)
        done = second.import_from(stream)
        assert (done.written, done.left, done.restored) == (said.entities + said.owned + said.relations, 0, False)
        assert exported(second)[1].hash == said.hash
        assert second.verify() == []
        before = list(second.changes())
        again = second.import_from(stream)
        assert (again.written, again.left) == (0, said.entities + said.owned + said.relations)
        assert list(second.changes()) == before
        assert not second.metalakes.load("closed").in_use
        assert {c.principal for c in before} == {"tester"}
        assert second.tables.load("lake.c.s.t").id != first.tables.load("lake.c.s.t").id
        assert said.relations == 6
        assert related(second) == related(first)


def test_one_byte_of_one_document(new_url: NewUrl) -> None:
    """Negative control: the hash sees a change of what a user sees, and no other."""
    with opened(new_url("sqlite")) as store:
        build(store)
        hashes = [exported(store)[1].hash]

        def changed() -> str:
            hashes.append(exported(store)[1].hash)
            return hashes[-1]

        store.tables.alter("lake.c.s.t", ms.SetComment("changee"))
        assert changed() not in hashes[:-1]
        store.tables.alter("lake.c.s.t", ms.SetComment("changed"))
        assert changed() == hashes[0]  # versions and times are not content
        store.partitions.drop("lake.c.s.t", "day=1")
        assert changed() not in hashes[:-1]
        store.metalakes.enable("closed")
        assert changed() not in hashes[:-1]
        store.tables.rename("lake.c.s.t", "u")
        assert changed() not in hashes[:-1]
        store.tables.create("lake.c.s.dropped")
        store.tables.drop("lake.c.s.dropped")
        assert changed() == hashes[-2]
        store.tables.create("lake.c.s.ordered", properties={"a": "1", "b": "2"})
        before = changed()
        store.tables.alter("lake.c.s.ordered", ms.RemoveProperty("a"))
        assert changed() not in hashes[:-1]
        store.tables.alter("lake.c.s.ordered", ms.SetProperty("a", "1"))
        assert list(store.tables.load("lake.c.s.ordered").properties) == ["b", "a"]
        assert changed() == before  # the order of properties is not content


@pytest.mark.parametrize("history", [False, True])
def test_a_trace(new_url: NewUrl, shared_data: Path, tmp_path: Path, history: bool) -> None:
    """The history of a real repository, from SQLite to PostgreSQL and back."""
    url = new_url("sqlite")
    start(url)
    with opened(url) as first, opened(new_url("postgres")) as second, opened(new_url("sqlite")) as third:
        for operation in read_trace(shared_data, "tenacity").operations:
            apply(first, operation)
        said = first.export_to(tmp_path / "1.jsonl", history=history)
        second.import_from(tmp_path / "1.jsonl")
        assert second.export_to(tmp_path / "2.jsonl", history=history).hash == said.hash
        third.import_from(tmp_path / "2.jsonl")
        assert third.export_to(tmp_path / "3.jsonl", history=history).hash == said.hash
        assert [s.verify() for s in (first, second, third)] == [[], [], []]
        if history:
            assert difference(first, second) == difference(first, third) == []


@st.composite
def _trees(draw: st.DrawFn) -> list[tuple[str, dict[str, str], list[str], bool]]:
    """Tables by name: properties, partitions, whether they are dropped."""
    found = draw(
        st.dictionaries(names, st.tuples(st.dictionaries(texts.filter(bool), texts), st.lists(names)), max_size=6)
    )
    return [(name, properties, parts, draw(st.booleans())) for name, (properties, parts) in found.items()]


@given(tree=_trees(), fold=st.booleans())
@settings(max_examples=settings().max_examples // 3)
def test_whatever_is_in_it(tree: list[tuple[str, dict[str, str], list[str], bool]], fold: bool) -> None:
    """Any names, properties and partitions, through a file and back, with history and without."""
    with ms.open("memory://") as first, ms.open("sqlite://") as second, ms.open("memory://") as third:
        first.metalakes.create("m")
        first.catalogs.create("m.c", type="relational", fold_case=fold)
        schema = first.schemas.create("m.c.s")
        for name, properties, parts, gone in tree:
            try:
                table = first.tables.create(name, parent=schema, properties=properties)
            except ms.EntityAlreadyExists:  # equal but for case
                continue
            for part in dict.fromkeys(parts):
                first.partitions.create(table, part, values={part: name})
            if gone:
                first.tables.drop(table)
        second.import_from(exported(first, history=True)[0])
        assert difference(first, second) == []
        stream, said = exported(second)
        third.import_from(stream)
        assert exported(third)[1].hash == said.hash == exported(first)[1].hash
