"""A damaged row that a call reads on the way to another one: the error names it, and is one of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

import metastore as ms
from metastore.secrets.keyring import new_key
from tests.bad_input.conftest import TABLE, prepare

NO_TEXT = "CAST(x'41ff42' AS TEXT)"
"""SQLite takes any bytes for text."""
DAMAGE = {"no JSON": "'{'", "an empty object": "'{}'", "not UTF-8": NO_TEXT}
Call = Callable[[ms.Store, str], object]

CALLS: dict[str, tuple[str, Call]] = {
    "attach a tag": (
        "UPDATE entity SET doc = {} WHERE id IN (SELECT id FROM guard WHERE kind = 'tag')",
        lambda store, _: store.tags.attach(TABLE, "m.pii", kind="table"),
    ),
    "attach a policy": (
        "UPDATE entity SET doc = {} WHERE id IN (SELECT id FROM guard WHERE kind = 'policy')",
        lambda store, _: store.policies.attach(TABLE, "m.keep", kind="table"),
    ),
    "set a statistic": (
        "UPDATE owned SET doc = {} WHERE kind = 'statistic'",
        lambda store, _: store.statistics.set(TABLE, {"custom-rows": 2}),
    ),
    "load a version of a model": (
        "UPDATE owned SET doc = {} WHERE kind = 'model_version'",
        lambda store, _: store.models.load_version("m.c.s.model", "newest"),
    ),
    "load a version of a damaged model": (
        "UPDATE entity SET doc = {} WHERE id IN (SELECT id FROM guard WHERE kind = 'model')",
        lambda store, _: store.models.load_version("m.c.s.model", "newest"),
    ),
    "tags of a column": (
        "UPDATE entity SET doc = {} WHERE id IN (SELECT id FROM guard WHERE name = 't')",
        lambda store, _: store.tags.attach(TABLE, "m.other", kind="table", column="id"),
    ),
    "set a property below a damaged catalog": (
        "UPDATE entity SET doc = {} WHERE id IN (SELECT id FROM guard WHERE kind = 'catalog')",
        lambda store, _: store.tables.alter(TABLE, ms.SetProperty("a", "b")),
    ),
    "compare documents of a tag's steps": (
        "UPDATE operation SET doc = {} WHERE kind = 'tag_on'",
        lambda store, start: list(store.diff(start)),
    ),
    "compare changes": (
        "UPDATE operation SET changes = {} WHERE kind = 'table' AND version = 2",
        lambda store, start: list(store.diff(start)),
    ),
    "revert": (
        "UPDATE entity SET doc = {} WHERE id IN (SELECT id FROM guard WHERE name = 't')",
        lambda store, start: store.revert("m.c.s", to=start, kind="schema", dry_run=True),
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """Give the bytes of a sound SQLite database, and a position in it."""
    file = tmp_path_factory.mktemp("sound") / "sound.db"
    with ms.open(f"sqlite:///{file}") as store:
        prepare(store)
        start = store.position()
        store.tags.attach(TABLE, store.tags.create("m.other"), kind="table")
        store.tags.create("m.pii", allowed_values=())
        store.policies.create("m.keep", content={})
        store.tables.alter(TABLE, ms.SetComment("second"))
        store.statistics.set(TABLE, {"custom-rows": 1})
        store.models.create("m.c.s.model")
        store.models.add_version("m.c.s.model", uris={"a": "s3://b/c"}, aliases=("newest",))
        store.backup(copy := file.with_suffix(".copy"))
    return Path(copy).read_bytes(), start


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("name", CALLS)
def test_the_error_is_typed(sound: tuple[bytes, str], tmp_path: Path, name: str, damage: str) -> None:
    (content, start), (statement, call) = sound, CALLS[name]
    file = tmp_path / "damaged.db"
    file.write_bytes(content)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        assert connection.execute(statement.format(damage)).rowcount > 0
    with ms.open(f"sqlite:///{file}") as store:
        with pytest.raises(ms.UnreadableRow) if damage != "'{}'" else suppress(ms.MetastoreError):
            call(store, start)  # it may not need a field that an empty object lacks
        assert store.tables.exists(TABLE)


@pytest.mark.parametrize("damage", [*DAMAGE.values(), "'null'"], ids=[*DAMAGE, "no object"])
def test_an_import_a_rotation_and_gc_meet_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    file, cleaned = tmp_path / "damaged.db", list[str]()
    with ms.open(f"sqlite:///{file}") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational", properties={"metastore.secret-properties": "password"})
        for name in ("t", "sound"):
            store.tables.create(f"m.c.s.{name}", parents=True, properties={"password": "x"})
        store.export_to(tmp_path / "export.jsonl")
        with store.leases.acquire("work") as lease:
            lease.stage(store.tables.load(TABLE), "file", "of a damaged table")
            lease.stage(store.tables.load("m.c.s.sound"), "file", "of a sound table")
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(f"UPDATE entity SET doc = {damage} WHERE id IN (SELECT id FROM guard WHERE name = 't')")
        for call in (
            lambda: store.import_from(tmp_path / "export.jsonl", if_exists="replace"),
            lambda: store.secrets.rotate(reencrypt=True),
            store.secrets.scrub,
        ):
            with pytest.raises(ms.UnreadableRow, match="of the table with the id"):
                call()
        store.gc(retention=timedelta(0), clean_up=lambda work: cleaned.append(work.value))
        readable = damage == DAMAGE["an empty object"]
        # in the order of their ids, which is that of time only from one millisecond to the next
        assert sorted(cleaned) == [*(["of a damaged table"] if readable else []), "of a sound table"], "gc goes on"
