"""What every manager promises: making, finding, listing and altering."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.names import clean_name
from tests.contract.ground import Ground, interrupted

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

COLUMNS = (ms.Column("id", "long", nullable=False), ms.Column("name", "string"))
BAD_NAMES = ["", "a\x00b", "a\nb", "\u0085", "x" * 256, "\ud800", 7, None]


def position(store: Store) -> int:
    """How many changes there were."""
    return sum(1 for _ in store.changes())


class TestCreate:
    def test_what_was_given_comes_back(self, ground: Ground) -> None:
        made = ground.store.tables.create(
            "m.c.two.t",
            columns=COLUMNS,
            comment="ä",
            properties={"k": "v\x00"},
            partitioning=["bucket(16, id)"],
            sort_orders=["name desc nulls last"],
            location="s3://b/t",
            format="parquet",
            indexes=[ms.Index("pk", ("id",), type="primary")],
        )
        for table in (made, ground.store.tables.load("m.c.two.t"), ground.store.tables.load(made)):
            assert (table.path, table.kind, table.version, table.scope_version) == ("m.c.two.t", "table", 1, 1)
            assert (table.comment, table.properties) == ("ä", {"k": "v\x00"})
            assert [(c.name, c.type, c.nullable) for c in table.columns] == [
                ("id", "long", False),
                ("name", "string", True),
            ]
            assert (table.partitioning, table.location, table.format) == (("bucket(16, id)",), "s3://b/t", "parquet")
            assert table == made
        assert made.names == ("m", "c", "two", "t")

    def test_if_exists(self, ground: Ground) -> None:
        tables, first = ground.store.tables, ground.table
        for at in ({"path": "m.c.one.t"}, {"path": "t", "parent": ground.one}):
            with pytest.raises(ms.EntityAlreadyExists) as caught:
                tables.create(**at, comment="x")
            assert caught.value.path == "m.c.one.t"
            assert tables.create(**at, comment="x", if_exists="return") == first
        replaced = tables.create("m.c.one.t", comment="x", if_exists="replace")
        assert (replaced.id, replaced.version, replaced.comment) == (first.id, 2, "x")
        count = position(ground.store)
        assert tables.create("t", parent=ground.one, comment="x", if_exists="replace") == replaced
        assert position(ground.store) == count, "a replacement that is equal writes nothing"
        with pytest.raises(ms.InvalidArgument):
            tables.create("m.c.one.t", if_exists="ignore")  # type: ignore[arg-type]

    def test_if_exists_of_one_that_is_made_at_that_moment(self, ground: Ground) -> None:
        """Field case 7: both callers get the same entity."""
        tables, first = ground.store.tables, list[ms.Table]()
        with interrupted(ground.store, lambda: first.append(tables.create("m.c.one.new", comment="first"))):
            assert tables.create("m.c.one.new", comment="second", if_exists="return") == first[0]
        assert tables.load("m.c.one.new").comment == "first"

    def test_parents(self, ground: Ground) -> None:
        made = ground.store.tables.create("m.c.a.b.d.t", parents=True)
        assert made.names == ("m", "c", "a", "b", "d", "t")
        assert list(ground.store.schemas.names("m.c.a.b")) == ["d"]
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.create("m.missing.a.t", parents=True)
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.create("m.c.missing.t")

    @pytest.mark.parametrize(
        ("path", "missing"), [("m.no.s.t", "m.no"), ("m.c.one.no.t", "m.c.one.no"), ("m.c.one.no", None)]
    )
    def test_an_error_names_the_first_that_is_missing(self, ground: Ground, path: str, missing: str | None) -> None:
        with pytest.raises(ms.EntityNotFound, match=f"there is no {missing}" if missing else "not exist") as caught:
            ground.store.tables.load(path)
        assert (caught.value.path, caught.value.missing) == (path, missing)

    @pytest.mark.parametrize("depth", [40, 80])
    def test_any_depth_of_schemas(self, ground: Ground, depth: int) -> None:
        path = ("m", "c", *["s"] * depth, "t")
        assert ground.store.tables.create(path, parents=True) == ground.store.tables.load(path)

    def test_parent_in_hand(self, ground: Ground) -> None:
        assert ground.store.tables.create("u", parent=ground.one).path == "m.c.one.u"
        ground.store.schemas.rename(ground.one, "uno")
        assert ground.store.tables.create("w", parent=ground.one).path == "m.c.uno.w", "an entity means its id"
        for wrong in (ground.catalog, ground.table, ground.lake):
            with pytest.raises(ms.InvalidArgument):
                ground.store.tables.create("u", parent=wrong)
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.create("u", parent=ground.old)

    @pytest.mark.each_run_on("memory")
    @pytest.mark.parametrize(
        ("kind", "path"),
        [("tables", "m.c.t"), ("schemas", "m.c"), ("catalogs", "c"), ("catalogs", "m.c.d"), ("metalakes", "m.n")],
    )
    def test_wrong_depth(self, ground: Ground, kind: str, path: str) -> None:
        manager: Any = getattr(ground.store, kind)
        more = {"type": "model"} if kind == "catalogs" else {}
        with pytest.raises(ms.InvalidArgument):
            manager.create(path, **more)
        for call in (manager.load, manager.exists, manager.drop):
            with pytest.raises(ms.InvalidArgument):
                call(path)

    @pytest.mark.each_run_on("memory")
    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_names(self, ground: Ground, name: Any) -> None:
        count = position(ground.store)
        with pytest.raises(ms.InvalidArgument):
            ground.store.tables.create(("m", "c", "one", name))
        with pytest.raises(ms.InvalidArgument):
            ground.store.tables.create(name, parent=ground.one)
        with pytest.raises(ms.InvalidArgument):
            ground.store.tables.rename(ground.table, ("m", "c", "one", name))
        with pytest.raises(ms.InvalidArgument):
            ground.store.tables.create_many("m.c.one", [{"name": "fine"}, {"name": name}])
        assert position(ground.store) == count

    @pytest.mark.each_run_on("memory")
    @pytest.mark.parametrize("path", ["", "m.c.one.`t", "m.c.one.t`", "m..one.t", "m.c.one.`t`x", ()])
    def test_bad_paths(self, ground: Ground, path: Any) -> None:
        with pytest.raises(ms.InvalidArgument):
            ground.store.tables.load(path)

    def test_odd_names(self, ground: Ground) -> None:
        """Field case 27: % and _ are literal; a dot and a back-quote are back-quoted."""
        odd = ["a%", "a_", "ab", "a.b", "a`b", "x" * 255, "é", "a\\", "'\"", "\U0001f600", "A"]
        for name in odd:
            ground.store.tables.create(("m", "c", "two", name))
        for name in odd:
            table = ground.store.tables.load(("m", "c", "two", name))
            assert table.name == name
            assert ground.store.tables.load(table.path) == table
        assert list(ground.store.tables.names("m.c.two")) == sorted(odd)
        assert ground.store.tables.load("m.c.two.e\u0301").name == "é", "names are in NFC"
        assert ground.store.tables.drop("m.c.two.a%")
        assert ground.store.tables.exists("m.c.two.ab")


class TestFolding:
    @pytest.mark.parametrize(
        ("made", "same", "other"),
        [
            ("Straße", "STRASSE", "Strase"),
            ("ΣΑΣ", "σας", "σα"),
            ("I", "i", "ı"),
            ("İ", "i̇", "i"),
            ("É", "e\u0301", "e"),
        ],
    )
    def test_folding_catalog(self, ground: Ground, made: str, same: str, other: str) -> None:
        ground.store.catalogs.create("m.f", type="relational", fold_case=True)
        schema = ground.store.schemas.create(("m", "f", made))
        table = ground.store.tables.create("T", parent=schema)
        assert ground.store.schemas.load(("m", "f", same)) == schema
        assert ground.store.tables.load(("m", "f", same, "t")) == table
        assert not ground.store.schemas.exists(("m", "f", other))
        for taken in (
            lambda: ground.store.schemas.create(("m", "f", same)),
            lambda: ground.store.tables.create("t", parent=schema),
        ):
            with pytest.raises(ms.EntityAlreadyExists):
                taken()
        ground.store.schemas.create(("m", "f", other))
        assert ground.store.schemas.rename(schema, same).name == clean_name(same)

    def test_other_catalogs_do_not_fold(self, ground: Ground) -> None:
        ground.store.schemas.create("m.c.ONE")
        assert list(ground.store.schemas.names("m.c")) == ["ONE", "one", "two"]
        assert not ground.store.catalogs.exists("m.C")

    def test_fold_is_fixed(self, ground: Ground) -> None:
        with pytest.raises(ms.InvalidArgument):
            ground.store.catalogs.create("m.c", type="relational", fold_case=True, if_exists="replace")


class TestCreateMany:
    def test_chunks(self, ground: Ground) -> None:
        rows = [{"name": f"t{n:04}", "comment": str(n)} for n in range(1, 1203)]
        assert ground.store.tables.create_many("m.c.two", rows) == 1202
        assert list(ground.store.tables.names("m.c.two")) == [r["name"] for r in rows]
        assert ground.store.tables.load("m.c.two.t0700").comment == "700"
        assert ground.store.tables.create_many(ground.two, []) == 0

    def test_if_exists(self, ground: Ground) -> None:
        tables = ground.store.tables
        rows = [{"name": "a"}, {"name": "t", "comment": "new"}, {"name": "b"}]
        before = ground.dump()
        with pytest.raises(ms.EntityAlreadyExists):
            tables.create_many("m.c.one", rows)
        assert ground.dump() == before
        assert tables.create_many(ground.one, rows, if_exists="return") == 2
        assert tables.create_many("m.c.one", rows, if_exists="return") == 0
        assert tables.load("m.c.one.t") == ground.table
        assert tables.create_many("m.c.one", rows, if_exists="replace") == 1
        replaced = tables.load("m.c.one.t")
        assert (replaced.id, replaced.version, replaced.comment) == (ground.table.id, 2, "new")

    def test_twice_the_same_name(self, ground: Ground) -> None:
        """Two rows of one name: an error at once; the first stays; the last replaces it."""
        ground.store.catalogs.create("m.f", type="relational", fold_case=True)
        schema = ground.store.schemas.create("m.f.s")
        rows = [{"name": "x", "comment": "1"}, {"name": "y"}, {"name": "X", "comment": "2"}]
        with pytest.raises(ms.EntityAlreadyExists):
            ground.store.tables.create_many(schema, rows, deadline=5)
        assert list(ground.store.tables.names(schema)) == []
        assert ground.store.tables.create_many(schema, rows, if_exists="return") == 2
        assert ground.store.tables.load("m.f.s.x").comment == "1"
        assert ground.store.tables.create_many(schema, rows, if_exists="replace", deadline=5) == 1
        assert ground.store.tables.load("m.f.s.x").comment == "2"

    def test_metalakes_and_wrong_parents(self, ground: Ground) -> None:
        assert ground.store.metalakes.create_many(None, [{"name": "n"}, {"name": "o"}]) == 2
        assert list(ground.store.metalakes.names()) == ["m", "n", "o"]
        for parent, error in ((None, ms.InvalidArgument), ("m.c", ms.InvalidArgument), ("m.c.no", ms.EntityNotFound)):
            with pytest.raises(error):
                ground.store.tables.create_many(parent, [{"name": "x"}])
        for row in ({}, {"name": "x", "nonsense": 1}, 7):
            with pytest.raises(ms.InvalidArgument):
                ground.store.tables.create_many("m.c.one", [row])  # type: ignore[list-item]
