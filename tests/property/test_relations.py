"""Relations against a plain model: sets of ends, and which of them are live. Readers see what the model says."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import metastore as ms
from metastore import Store
from tests.servers.postgres import Databases

TABLES, TAGS, USERS, VALUES = ("t0", "t1"), ("g0", "g1"), ("u0", "u1"), (None, "x", "y")
COLUMNS = ("a", "b")
Key = tuple[str, str, str | None, str | None]


@dataclass
class Model:
    """What is live, the tags by (table, tag, column, value), the owners; a column is its first name."""

    live: dict[str, bool] = field(default_factory=lambda: dict.fromkeys([*TABLES, *TAGS, *USERS, "s"], True))
    tags: set[Key] = field(default_factory=set)
    owners: dict[str, str] = field(default_factory=dict)

    def sees(self, *names: str) -> bool:
        return all(self.live[name] for name in names)

    def tagged(self, table: str) -> set[tuple[str, str | None]]:
        """Return (tag, value) of the table's own tags."""
        return {(g, v) for t, g, c, v in self.tags if t == table and c is None and self.sees("s", t, g)}

    def targets(self, tag: str) -> set[tuple[str, str | None, str | None]]:
        return {(t, c, v) for t, g, c, v in self.tags if g == tag and self.sees("s", t, g)}


def path_of(name: str) -> str:
    """Return where something stands."""
    return {"t": f"lake.c.s.{name}", "s": "lake.c.s"}.get(name[0], f"lake.{name}")


def manager_of(store: Any, name: str) -> Any:
    """Return the manager of its kind."""
    return {"t": store.tables, "g": store.tags, "u": store.users, "s": store.schemas}[name[0]]


def attach(store: Any, model: Model, table: str, tag: str, column: str | None, value: str | None) -> None:
    key = (table, tag, column, value)
    expected: type[Exception] | None = None
    if not model.sees("s", table, tag):
        expected = ms.EntityNotFound
    elif key in model.tags and value is None:
        expected = ms.EntityAlreadyExists
    with pytest.raises(expected) if expected else contextlib.nullcontext():
        store.tags.attach(path_of(table), path_of(tag), column=column, value=value)
    if expected is None:
        model.tags.add(key)


def detach(store: Any, model: Model, table: str, tag: str, column: str | None, value: str | None) -> None:
    key = (table, tag, column, value)
    done = store.tags.detach(path_of(table), path_of(tag), column=column, value=value)
    assert done == (key in model.tags and model.sees("s", table, tag))
    if done:
        model.tags.discard(key)


def own(store: Any, model: Model, table: str, user: str) -> None:
    if model.sees("s", table, user):
        store.owners.set(path_of(table), path_of(user))
        model.owners[table] = user
    else:
        with pytest.raises(ms.EntityNotFound):
            store.owners.set(path_of(table), path_of(user))


def flip(store: Any, model: Model, name: str) -> None:
    """Drop what is live, restore what is not."""
    if name[0] == "t" and not model.live["s"]:
        return
    if model.live[name]:
        assert manager_of(store, name).drop(path_of(name), cascade=True)
    else:
        manager_of(store, name).restore(path_of(name))
    model.live[name] = not model.live[name]


def collect(store: Any, model: Model) -> None:
    """Let gc delete what was dropped; make it again, without its relations."""
    if isinstance(store, Store):
        store.gc(retention=timedelta(0))
        if not model.live["s"]:
            for table in TABLES:
                model.live[table] = False
        gone = [name for name, live in model.live.items() if not live]
        model.tags = {key for key in model.tags if key[0] not in gone and key[1] not in gone}
        model.owners = {t: u for t, u in model.owners.items() if t not in gone and u not in gone}
        for name in sorted(gone, key=lambda name: name != "s"):
            options = {"columns": [ms.Column(c, "int") for c in COLUMNS]} if name[0] == "t" else {}
            manager_of(store, name).create(path_of(name), **options)
            model.live[name] = True


ATTACHED = (st.sampled_from(TABLES), st.sampled_from(TAGS), st.sampled_from((None, *COLUMNS)), st.sampled_from(VALUES))
STEPS = st.one_of(
    st.tuples(st.just(attach), *ATTACHED),
    st.tuples(st.just(detach), *ATTACHED),
    st.tuples(st.just(own), st.sampled_from(TABLES), st.sampled_from(USERS)),
    st.tuples(st.just(flip), st.sampled_from([*TABLES, *TAGS, *USERS, "s"])),
    st.tuples(st.just(collect)),
)
PLAN = st.lists(st.tuples(st.booleans(), st.lists(STEPS, min_size=1, max_size=4)), max_size=8)
"""Steps, some of them in transactions."""


def prepare(store: Store) -> Model:
    """Make everything that the steps name."""
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    store.schemas.create("lake.c.s")
    for table in TABLES:
        store.tables.create(path_of(table), columns=[ms.Column(c, "int") for c in COLUMNS])
    for name in (*TAGS, *USERS):
        manager_of(store, name).create(path_of(name))
    return Model()


def compare(store: Any, model: Model) -> None:
    """Check both directions of the tags, and the owners."""
    for table in TABLES:
        if model.sees("s", table):
            seen = {(one.name, one.value) for one in store.tags.on(path_of(table))}
            assert seen == model.tagged(table)
            owner, wanted = store.owners.of(path_of(table)), model.owners.get(table)
            assert (owner and owner.name) == (wanted if wanted and model.live[wanted] else None)
    for tag in TAGS:
        if model.live[tag]:
            targets = {(one.target_path[-2:], one.column, one.value) for one in store.tags.targets(path_of(tag))}
            assert targets == model.targets(tag)


def play(store: Store, plan: list[tuple[bool, list[tuple[Any, ...]]]]) -> None:
    """Follow a plan on a store and on the model."""
    model = prepare(store)
    for in_transaction, steps in plan:
        with store.transaction() if in_transaction else contextlib.nullcontext(store) as managers:
            for act, *arguments in steps:
                act(managers, model, *arguments)
                compare(managers, model)
        compare(store, model)
    assert store.verify() == []


ROUNDS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@ROUNDS
@given(PLAN)
def test_in_memory(plan: list[tuple[bool, list[tuple[Any, ...]]]]) -> None:
    with ms.open("memory://") as store:
        play(store, plan)


@pytest.mark.only_whole
@settings(ROUNDS, max_examples=25)
@given(plan=PLAN)
def test_on_sqlite(
    plan: list[tuple[bool, list[tuple[Any, ...]]]], sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fresh = shutil.copy(sqlite_template, tmp_path_factory.mktemp("relations"))
    with ms.open(f"sqlite:///{fresh}") as store:
        play(store, plan)


@settings(ROUNDS, max_examples=10)
@given(plan=PLAN)
def test_on_postgres(
    plan: list[tuple[bool, list[tuple[Any, ...]]]], postgres_databases: Databases, postgres_template: str
) -> None:
    url = postgres_databases.create_database(template=postgres_template.rpartition("/")[2])
    with ms.open(url) as store:
        play(store, plan)
    postgres_databases.drop_database(url)


def test_a_model_that_forgets_an_end_is_found() -> None:
    """The negative control: a reader that shows relations of dropped tags differs from the model."""

    class Careless(Model):
        def sees(self, *names: str) -> bool:
            return super().sees(*[name for name in names if name[0] != "g"])

    with ms.open("memory://") as store:
        prepare(store)
        model: Any = Careless()
        attach(store, model, "t0", "g0", None, None)
        flip(store, model, "g0")
        with pytest.raises(AssertionError):
            compare(store, model)
