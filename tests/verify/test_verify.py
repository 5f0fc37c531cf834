"""verify: silent on a sound database, whatever goes on in it; and each kind of damage is found and named."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import metastore as ms
from tests.migration.schema import run
from tests.verify.planting import A, build, damage, filled, verified, without_constraints

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

VERSION_3 = "entity_id = {a} AND version = 3"
COPY = (
    """INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, time, path_before,
    path_after, changes, scope_version, in_use, doc)
  SELECT writer, operation_id, ordinal + 1, 99, entity_id, 3, kind, action, time, path_before,
    path_after, changes, scope_version, in_use, doc FROM operation WHERE """
    + VERSION_3
)
NEW_GUARD = """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT {id}, {parent}, '{kind}', '{kind}', 'new', 'new', false, 0, true, 1"""

# name: statements, and (invariant, whose, path) of each violation that must be found
DAMAGE: dict[str, tuple[tuple[str, ...], set[tuple[int, str | None, str | None]]]] = {
    "no operation": (
        ("DELETE FROM operation WHERE entity_id = {Fold}",),
        {(1, "Fold", "lake.f.S.Straße"), (8, "Fold", "lake.f.S.Straße")},
    ),
    "gap": (("DELETE FROM operation WHERE entity_id = {a} AND version = 2",), {(1, "a", A)}),
    "beginning lost": (("DELETE FROM operation WHERE entity_id = {a} AND version = 1",), {(1, "a", A), (8, "a", A)}),
    "no place": (
        ("UPDATE operation SET parent_id = NULL, name = NULL, state = NULL WHERE entity_id = {a} AND version = 2",),
        {(15, "a", A)},
    ),
    "no place at the end": (("UPDATE operation SET state = NULL WHERE " + VERSION_3,), {(15, "a", A)}),
    "no name": (("UPDATE operation SET family = NULL, key = NULL WHERE entity_id = {a}",), {(15, "a", A)}),
    "no name of a partition": (
        ("UPDATE operation SET family = NULL, key = NULL WHERE entity_id = {p}",),
        {(15, "p", f"{A}.x=1")},
    ),
    "end lost": (("DELETE FROM operation WHERE " + VERSION_3,), {(1, "a", A)}),
    "fork": (
        (
            *without_constraints("operation"),
            COPY.replace("{seq}", "99").replace("{version}", "3").replace("{action}", "action"),
        ),
        {(1, "a", A), (8, None, None)},
    ),
    "version ahead": (("UPDATE entity SET version = 9 WHERE id = {a}",), {(1, "a", A)}),
    "lost update": (
        ("UPDATE entity SET doc = replace(doc, 'two', 'six') WHERE id = {a}",),
        {(1, "a", A)},
    ),
    "created twice": (("UPDATE operation SET action = 'create' WHERE " + VERSION_3,), {(1, "a", A)}),
    "no version": (("UPDATE operation SET version = NULL WHERE " + VERSION_3,), {(1, "a", A)}),
    "scope version": (("UPDATE guard SET scope_version = 1 WHERE id = {f}",), {(8, "f", "lake.f")}),
    "scope version goes back": (
        ("UPDATE operation SET scope_version = 7 WHERE entity_id = {a} AND version = 2",),
        {(8, "a", A)},
    ),
    "in use": (("UPDATE guard SET in_use = NOT in_use WHERE id = {f}",), {(8, "f", "lake.f")}),
    "renamed silently": (("UPDATE guard SET name = 'z', key = 'z' WHERE id = {a}",), {(8, "a", "lake.c.s.z")}),
    "dropped silently": (("UPDATE guard SET state = 1, dropped_at = 1 WHERE id = {a}",), {(8, "a", A)}),
    "unknown state": (("UPDATE guard SET state = 5, dropped_at = 1 WHERE id = {a}",), {(8, "a", A)}),
    "drop without time": (("UPDATE guard SET dropped_at = NULL WHERE id = {d}",), {(8, "d", "lake.c.s.d")}),
    "orphan": (("UPDATE guard SET parent_id = 777 WHERE id = {a}",), {(2, "a", "a"), (8, "a", "a")}),
    "moved silently": (
        ("UPDATE guard SET parent_id = {lake.c.s.n} WHERE id = {a}",),
        {(8, "a", "lake.c.s.m.a")},
    ),
    "cycle": (
        ("UPDATE guard SET parent_id = {lake.c.s.n} WHERE id = {lake.c.s}",),
        {(2, "lake.c.s", "m.s"), (8, "lake.c.s", "s.m.s")},
    ),
    "table below a table": (("UPDATE guard SET parent_id = {b} WHERE id = {a}",), {(8, "a", "a")}),
    "schema below a metalake": (
        ("UPDATE guard SET parent_id = {lake} WHERE id = {lake.c.s.n}",),
        {(8, "lake.c.s.n", "lake.m")},
    ),
    "name twice": (
        ("DROP INDEX guard_live_name", "UPDATE guard SET name = 'd', key = 'd' WHERE id = {a}"),
        {(3, "d3", "lake.c.s.d"), (8, "a", "lake.c.s.d")},
    ),
    "wrong key": (("UPDATE guard SET key = name WHERE id = {Fold}",), {(3, "Fold", "lake.f.S.Straße")}),
    "not NFC": (
        ("UPDATE guard SET name = 'e\u0301', key = 'e\u0301' WHERE id = {a}",),
        {(3, "a", "lake.c.s.e\u0301"), (8, "a", "lake.c.s.e\u0301")},
    ),
    "tab in a name": (
        ("UPDATE guard SET name = '\t', key = '\t' WHERE id = {a}",),
        {(3, "a", "lake.c.s.`\t`"), (8, "a", "lake.c.s.`\t`")},
    ),
    "wrong family": (("UPDATE guard SET family = 'fileset' WHERE id = {d}",), {(3, "d", "lake.c.s.d")}),
    "fold flag of a catalog": (
        ("UPDATE guard SET fold = true WHERE id = {c}",),
        {(3, "c", "lake.c"), (3, "lake.c.s", "lake.c.s")},
    ),
    "fold flag below": (("UPDATE guard SET fold = true WHERE id = {a}",), {(3, "a", A)}),
    "no entity": (("DELETE FROM entity WHERE id = {a}",), {(8, "a", A)}),
    "no guard": (
        ("DELETE FROM guard WHERE id = {Fold}",),
        {(8, "Fold", None)},
    ),
    "guard from nowhere": (
        (NEW_GUARD.format(id="{p}", parent="{lake.c.s}", kind="table"),),
        {(8, "p", "lake.c.s.a.x=1")},
    ),
    "lost entity": (
        ("DELETE FROM guard WHERE id = {Fold}", "DELETE FROM entity WHERE id = {Fold}"),
        {(8, "Fold", "lake.f.S.Straße")},
    ),
    "lost partition": (("DELETE FROM owned WHERE id = {p}",), {(8, "p", "lake.c.s.a.x=1")}),
    "partition without owner": (("UPDATE owned SET owner_id = 777 WHERE id = {p}",), {(8, "p", "lake.c.s.a.x=1")}),
    "partition ahead": (("UPDATE owned SET version = 2 WHERE id = {p}",), {(1, "p", "lake.c.s.a.x=1")}),
    "partition renamed": (("UPDATE owned SET name = 'x=5' WHERE id = {p}",), {(8, "p", "lake.c.s.a.x=1")}),
    "no JSON": (("UPDATE entity SET doc = '{{' WHERE id = {a}",), {(8, "a", A), (1, "a", A)}),
    "no base": (("UPDATE entity SET doc = '{{}}' WHERE id = {a}",), {(8, "a", A), (1, "a", A)}),
    "unknown type": (
        ("UPDATE entity SET doc = replace(doc, '\"int\"', '\"integr\"') WHERE id = {a}",),
        {(8, "a", A), (1, "a", A)},
    ),
    "partition no JSON": (("UPDATE owned SET doc = 'x' WHERE id = {p}",), {(8, "p", "lake.c.s.a.x=1")}),
    "history no JSON": (("UPDATE operation SET doc = 'x' WHERE entity_id = {a} AND version = 2",), {(8, "a", A)}),
    "changes no JSON": (("UPDATE operation SET changes = 'x' WHERE entity_id = {a} AND version = 2",), {(8, "a", A)}),
    "position twice": (
        (*without_constraints("operation"), "UPDATE operation SET seq = 1 WHERE " + VERSION_3),
        {(8, "a", A)},
    ),
    "position of the future": (("UPDATE operation SET seq = 5000 WHERE " + VERSION_3,), {(8, None, None)}),
    "positions exchanged": (
        ("UPDATE operation SET seq = -1 WHERE " + VERSION_3,),
        {(8, "a", A), (4, "a", A)},
    ),
    "no position": (("UPDATE operation SET seq = NULL WHERE " + VERSION_3,), {(8, "a", A)}),
    "event of nothing": (("UPDATE operation SET entity_id = NULL WHERE " + VERSION_3,), {(8, None, A), (1, "a", A)}),
    "created under what was dropped": (
        ("UPDATE operation SET path_after = 'lake.c.s.n.d' WHERE entity_id = {d3}",),
        {(2, "d3", "lake.c.s.n.d")},
    ),
    "applied and forbidden": (
        (
            "UPDATE operation SET ordinal = 1 WHERE " + VERSION_3,
            "INSERT INTO operation (operation_id, ordinal, action, time) SELECT operation_id, 0, 'forbidden', 1"
            " FROM operation WHERE " + VERSION_3,
        ),
        {(6, "a", A)},
    ),
    "alias of two versions": (
        ("UPDATE owned SET doc = replace(doc, 'best', 'prod') WHERE id = {mv2}",),
        {(3, "mod", "lake.c.s.mod"), (1, "mv2", "lake.c.s.mod.2")},
    ),
    "alias of no version": (
        ("UPDATE entity SET doc = replace(doc, 'best', 'none') WHERE id = {mod}",),
        {(3, "mod", "lake.c.s.mod"), (1, "mod", "lake.c.s.mod")},
    ),
    "version beyond the latest": (
        ("UPDATE entity SET doc = replace(doc, '\"latest_version\":2', '\"latest_version\":1') WHERE id = {mod}",),
        {(3, "mod", "lake.c.s.mod")},
    ),
    "number of a version no integer": (
        ("UPDATE entity SET doc = replace(doc, '\"latest_version\":2', '\"latest_version\":2.0') WHERE id = {mod}",),
        {(8, "mod", "lake.c.s.mod")},
    ),
    "id of the future": (
        (
            "UPDATE operation SET entity_id = 9000 WHERE entity_id = {fs}",
            "UPDATE guard SET id = 9000 WHERE id = {fs}",
            "UPDATE entity SET id = 9000 WHERE id = {fs}",
        ),
        {(8, "9000", None)},
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found(built: tuple[str, dict[str, int]], case: str) -> None:
    url, made = built
    statements, wanted = DAMAGE[case]
    labels = {**made, "9000": 9000}
    damage(url, *filled(labels, statements))
    found = verified(url)
    seen = {(v.invariant, v.entity_id, v.path) for v in found}
    missed = {(n, who and labels[who], path) for n, who, path in wanted} - seen
    assert not missed, "\n".join(map(str, found))
    assert all(v.message for v in found)
    assert len(found) <= 8, "\n".join(map(str, found))


def test_an_alter_by_a_path_that_did_not_lead_there(built: tuple[str, dict[str, int]]) -> None:
    url, made = built
    damage(url, f"UPDATE operation SET path_before = 'lake.c.s.n.a' WHERE entity_id = {made['a']} AND version = 3")
    assert [(v.invariant, v.entity_id, v.path) for v in verified(url)] == [(4, made["a"], "lake.c.s.n.a")]


def test_after_gc_the_rest_is_still_checked(built: tuple[str, dict[str, int]]) -> None:
    url, made = built
    with ms.open(url) as store:
        assert store.gc(retention=timedelta(0), keep_versions=1).versions > 0
        late = store.tables.create("lake.c.s.late").id
        store.tables.alter("lake.c.s.late", ms.SetComment("later"))
        assert store.verify() == []
    damage(
        url,
        f"UPDATE entity SET version = 9 WHERE id = {made['a']}",
        f"DELETE FROM entity WHERE id = {made['b']}",
        f"DELETE FROM operation WHERE entity_id = {late} AND version = 1",
    )
    found = {(v.invariant, v.entity_id, v.path) for v in verified(url)}
    lost = {(1, late, "lake.c.s.late"), (15, late, "lake.c.s.late")}
    assert found == {(1, made["a"], A), (8, made["b"], "lake.c.s.m.b"), *lost}


def test_memory_is_verified_too() -> None:
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.a.b", parents=True)
        store.tables.create("lake.c.a.t")
        store.tables.rename("lake.c.a.t", "lake.c.a.b.t")
        store.schemas.drop("lake.c.a", cascade=True)
        assert store.verify() == []
        store.gc(retention=timedelta(0))
        assert store.verify() == []


@pytest.mark.each_run_on("postgres")
def test_verify_while_others_write_is_silent(url: str) -> None:
    build(url)
    stop = threading.Event()
    broken: list[Exception] = []

    def work(store: ms.Store, number: int) -> None:
        try:
            n = 0
            while not stop.is_set():
                path = f"lake.c.w{number}.t{n}"
                store.tables.create(path, parents=True)
                store.tables.alter(path, ms.SetProperty("n", str(n)))
                store.partitions.create(path, "p", values={"x": "1"})
                if n % 3 == 0:
                    store.schemas.rename(f"lake.c.w{number}", f"v{number}")
                    store.schemas.rename(f"lake.c.v{number}", f"w{number}")
                if n % 5 == 4:
                    store.schemas.drop(f"lake.c.w{number}", cascade=True)
                if n % 17 == 16:
                    store.gc(retention=timedelta(hours=1))
                n += 1
        except Exception as error:  # noqa: BLE001  (whatever it is, the test shows it)
            broken.append(error)

    with ms.open(url) as store:
        threads = [threading.Thread(target=work, args=(store, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            found = [violation for _ in range(15) for violation in store.verify()]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not broken
        assert found == []
        assert store.verify() == []


# --- one damaged row of a drop in steps

DROP_ROW = """INSERT INTO owned (owner_id, kind, name, id, version, doc, created_at, modified_at)
SELECT 0, 'drop', '{name}', 9, 1, '{doc}', 1, 1"""


@pytest.mark.parametrize(
    ("name", "doc", "goes_on"),
    [("nothing", "{}", False), ("99999", "no JSON", True), ("99999", '{"phase": "destroyed"}', True)],
    ids=["a name that is none", "a document that is none", "half a document"],
)
def test_a_damaged_row_of_a_drop_in_steps(url: str, name: str, doc: str, goes_on: bool) -> None:
    """It is reported. gc leaves alone what it may be about; where nobody can say, gc says so and deletes nothing."""
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.metalakes.drop("m")
    run(url, DROP_ROW.format(name=name, doc=doc))
    found = verified(url)
    assert {violation.invariant for violation in found} >= {8}
    with ms.open(url) as store:
        if goes_on:
            assert store.gc(retention=timedelta(0)).entities == 1
        else:
            with pytest.raises(ms.UnreadableRow, match="drop in steps 'nothing'"):
                store.gc(retention=timedelta(0))


def test_what_sqlite_itself_finds_is_reported(sqlite_url: str) -> None:
    """An index from which an entry is missing: SQLite reads it as if there were no such row."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
    run(
        sqlite_url,
        "CREATE TABLE other (parent_id, family, key)",
        "CREATE UNIQUE INDEX other_name ON other (parent_id, family, key)",
        "PRAGMA writable_schema = ON",
        """UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'other_name')
        WHERE name = 'guard_live_name'""",
    )
    found = verified(sqlite_url)
    assert [v.invariant for v in found if "the file is damaged" in v.message] != []
    assert "guard_live_name" in " ".join(v.message for v in found)
