"""What every manager promises: loading, listing, names by code point."""

from __future__ import annotations

import pytest

import metastore as ms
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


class TestFind:
    def test_load_many(self, ground: Ground) -> None:
        found = ground.store.tables.load_many(["m.c.one.t", "m.c.one.u", "m.x.y.z", ("m", "c", "one", "t")])
        assert found == [ground.table, None, None, ground.table]
        assert ground.store.tables.load_many([]) == []

    def test_a_search_has_a_timeout(self, ground: Ground) -> None:
        assert [one.path for one in ground.store.find("m", name="t", timeout=60.0)] == ["m.c.one.t"]
        with pytest.raises(ms.DeadlineExceeded):
            list(ground.store.find("m", name="nothing", timeout=1e-9))
        with pytest.raises(ms.InvalidArgument):
            ground.store.find("m", timeout=0)

    def test_exists(self, ground: Ground) -> None:
        assert ground.store.tables.exists("m.c.one.t")
        for path in ("m.c.one.u", "m.c.none.t", "m.c.old.t", "m.c.one.t.t"):
            assert not ground.store.tables.exists(path)

    @pytest.mark.parametrize("page_size", [1, 2, 3, 1000])
    def test_listing(self, ground: Ground, page_size: int) -> None:
        """By code point, over all page borders: U+FFFF stands before U+1F600, unlike in UTF-16."""
        names = ["B", "a", "ä", "\uffff", "\U0001f600", "10", "9", "Z"]
        for name in names:
            ground.store.tables.create(name, parent=ground.two)
            ground.store.filesets.create(name, parent=ground.two)
        assert list(ground.store.tables.names("m.c.two", page_size=page_size)) == sorted(names)
        listed = list(ground.store.tables.list(ground.two, page_size=page_size))
        assert [t.name for t in listed] == sorted(names)
        assert listed == ground.store.tables.load_many([t.path for t in listed])

    def test_listings_are_of_direct_children_of_a_kind(self, ground: Ground) -> None:
        ground.store.schemas.create("m.c.one.inner")
        ground.store.filesets.create("m.c.one.f")
        assert list(ground.store.tables.names("m.c.one")) == ["t"]
        assert list(ground.store.schemas.names("m.c.one")) == ["inner"]
        assert list(ground.store.schemas.names("m.c")) == ["one", "two"]
        assert list(ground.store.catalogs.names(ground.lake)) == ["c"]
        assert [m.name for m in ground.store.metalakes.list()] == ["m"]

    def test_listing_what_is_not_there(self, ground: Ground) -> None:
        for missing in ("m.c.none", "m.none.one", "m.c.old", ground.old):
            with pytest.raises(ms.EntityNotFound):
                list(ground.store.tables.names(missing))
        for wrong in (None, "m.c", ground.catalog, ground.table):
            with pytest.raises(ms.InvalidArgument):
                list(ground.store.tables.list(wrong))
        with pytest.raises(ms.InvalidArgument):
            list(ground.store.tables.list("m.c.one", page_size=0))

    def test_parent_renamed_or_dropped_midway(self, ground: Ground) -> None:
        for n in range(3):
            ground.store.tables.create(f"t{n}", parent=ground.two)
        names = ground.store.tables.names("m.c.two", page_size=2)
        assert next(names) == "t0"
        ground.store.schemas.rename("m.c.two", "zwei")
        assert next(names) == "t1"
        with pytest.raises(ms.EntityNotFound):
            next(names)
        names = ground.store.tables.names("m.c.zwei", page_size=1)
        assert next(names) == "t0"
        ground.store.schemas.drop("m.c.zwei", cascade=True)
        with pytest.raises(ms.EntityNotFound):
            next(names)

    def test_listing_goes_on_when_the_parent_stands_where_it_stood(self, ground: Ground) -> None:
        for n in range(3):
            ground.store.tables.create(f"t{n}", parent=ground.two)
        names = ground.store.tables.names("m.c.two", page_size=1)
        assert next(names) == "t0"
        ground.store.catalogs.disable("m.c")
        assert list(names) == ["t1", "t2"]
