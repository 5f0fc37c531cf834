"""Names and paths."""

from __future__ import annotations

import random
import unicodedata
from typing import Any

import pytest

import metastore as ms
from tests.bad_input.refusal import refused

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

BAD_NAMES: dict[str, Any] = {
    "empty": "",
    "256 code points": "x" * 256,
    "256 astral code points": "\U0001f600" * 256,
    "NUL": "a\0b",
    "a control character": "a\tb",
    "a newline": "a\nb",
    "DEL": "a\x7fb",
    "a C1 control": "a\x85b",
    "a lone high surrogate": "a\ud800b",
    "a lone low surrogate": "\udfff",
    "bytes": b"a",
    "an integer": 1,
    "None": None,
    "a list": ["a"],
    "a bool": True,
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_names(kept: ms.Store, name: Any) -> None:
    parent = kept.schemas.load("m.c.s")
    table = kept.tables.load("m.c.s.t")
    refused(ms.InvalidArgument, lambda: kept.metalakes.create((name,)))
    refused(ms.InvalidArgument, lambda: kept.tables.create(("m", "c", "s", name)))
    refused(ms.InvalidArgument, lambda: kept.tables.create(("m", "c", name, "t")))
    refused(ms.InvalidArgument, lambda: kept.tables.create(name, parent=parent))
    refused(ms.InvalidArgument, lambda: kept.tables.create_many("m.c.s", [{"name": "ok"}, {"name": name}]))
    refused(ms.InvalidArgument, lambda: kept.tables.rename(table, (name,)))
    refused(ms.InvalidArgument, lambda: kept.tables.rename(table, ("m", "c", "s", name)))
    refused(ms.InvalidArgument, lambda: kept.schemas.restore("m.c.gone", to=("m", "c", name)))
    refused(ms.InvalidArgument, lambda: kept.tables.load(("m", "c", "s", name)))
    refused(ms.InvalidArgument, lambda: kept.tables.exists(("m", "c", "s", name)))
    refused(ms.InvalidArgument, lambda: kept.tables.load_many([("m", "c", "s", name)]))
    refused(ms.InvalidArgument, lambda: kept.tables.drop(("m", "c", "s", name)))
    refused(ms.InvalidArgument, lambda: kept.tables.purge(("m", "c", "s", name)))
    refused(ms.InvalidArgument, lambda: kept.tables.list(("m", "c", name)))
    refused(ms.InvalidArgument, lambda: kept.partitions.create(table, name, values={}))
    refused(ms.InvalidArgument, lambda: kept.partitions.drop(table, name))
    if not isinstance(name, bytes):  # see test_values
        refused(ms.InvalidArgument, lambda: kept.tables.alter(table, ms.RenameColumn("id", name)))
    refused(ms.InvalidArgument, lambda: ms.Column(name, "int"))


BAD_PATHS = {
    "nothing": "",
    "only dots": "...",
    "a name missing": "m.c..t",
    "a dot at the end": "m.c.s.",
    "a dot in front": ".m.c.s",
    "never closed": "m.c.s.`t",
    "only an opening": "`",
    "an odd number": "m.c.s.`a``",
    "text after the closing": "m.c.s.`a`b",
    "inside a name": "m.c.s.a`b`",
    "empty between": "m.c.s.``",
    "no names": (),
    "a tuple of nothing": ("",),
}


@pytest.mark.parametrize("path", BAD_PATHS.values(), ids=BAD_PATHS)
def test_bad_paths(kept: ms.Store, path: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.tables.create(path))
    refused(ms.InvalidArgument, lambda: kept.tables.load(path))
    refused(ms.InvalidArgument, lambda: kept.tables.drop(path))
    refused(ms.InvalidArgument, lambda: kept.schemas.list(path))
    refused(ms.InvalidArgument, lambda: kept.tables.rename("m.c.s.t", path))


WRONG_DEPTHS = {
    "metalakes": ["a.b", "a.b.c"],
    "catalogs": ["a", "a.b.c", "a.b.c.d"],
    "schemas": ["a", "a.b"],
    "tables": ["a", "a.b", "a.b.c"],
    "filesets": ["a", "a.b", "a.b.c"],
}


@pytest.mark.parametrize(("manager", "path"), [(m, p) for m, paths in WRONG_DEPTHS.items() for p in paths])
def test_wrong_depth(kept: ms.Store, manager: str, path: str) -> None:
    more = {"type": "relational"} if manager == "catalogs" else {}
    of_kind = getattr(kept, manager)
    refused(ms.InvalidArgument, lambda: of_kind.create(path, **more), "name", manager[:-1])
    refused(ms.InvalidArgument, lambda: of_kind.load(path), "name")
    refused(ms.InvalidArgument, lambda: of_kind.drop(path), "name")
    refused(ms.InvalidArgument, lambda: of_kind.load_many([path]), "name")


def test_rename_to_a_wrong_depth(kept: ms.Store) -> None:
    refused(ms.InvalidArgument, lambda: kept.tables.rename("m.c.s.t", "m.c.t"))
    refused(ms.InvalidArgument, lambda: kept.schemas.rename("m.c.s", "m.s"))
    refused(ms.InvalidArgument, lambda: kept.catalogs.rename("m.c", "m.x.c"))
    refused(ms.InvalidArgument, lambda: kept.metalakes.rename("m", "x.m"))
    refused(ms.InvalidArgument, lambda: kept.schemas.rename("m.c.s", "m.c.s.inside"), "below itself")


def astral(seed: int) -> str:
    """Return 255 random code points of four bytes each, which nothing can compress."""
    source = random.Random(seed)
    letters = [chr(c) for c in range(0x20000, 0x2A6D0)]
    return "".join(source.choice(letters) for _ in range(255))


LONGEST = {
    "ASCII": "x" * 255,
    "four bytes each": astral(1),
    "emoji": "\U0001f600" * 255,
    "that grow when folded": "\u0390" * 255,
    "that shrink under NFC": "e\u0301" * 255,
    "inner blanks": "a" + " " * 253 + "b",
    "dots and quotes": ".`" * 127 + ".",
}


@pytest.mark.parametrize("fold_case", [False, True])
@pytest.mark.parametrize("name", LONGEST.values(), ids=LONGEST)
def test_255_code_points_everywhere(ground: ms.Store, name: str, fold_case: bool) -> None:
    """In every unique index (PostgreSQL: a row of a btree has at most 2,704 bytes), in paths, history and feed."""
    ground.catalogs.create(("m", name), type="relational", fold_case=fold_case)
    ground.schemas.create(("m", name, name))
    ground.schemas.create(("m", name, name, name))
    table = ground.tables.create(("m", name, name, name, name), columns=[ms.Column(name, "int")])
    ground.partitions.create(table, name, values={name: name})
    clean = unicodedata.normalize("NFC", name)
    assert table.names == ("m", clean, clean, clean, clean)
    assert ground.tables.load(table.path) == ground.tables.load(table.names)
    assert list(ground.partitions.names(table)) == [clean]
    assert ground.tables.load(table.path).columns[0].name == clean
    assert ground.tables.rename(table, "short").name == "short"
    assert ground.tables.rename(table, (name,)).name == clean
    assert ground.tables.drop(table)
    assert [e.name for e in ground.tables.dropped(("m", name, name, name))] == [clean]
    assert ground.tables.restore(("m", name, name, name, name)).id == table.id
    assert next(v.path_after for v in ground.tables.history(table)) == table.path
    assert next(c.path_after for c in ground.changes() if c.entity_id == table.id) == table.path
    assert ground.verify() == []


@pytest.mark.parametrize(("one", "other"), [("\u00e9", "e\u0301"), ("\u212b", "\u00c5"), ("\uac00", "\u1100\u1161")])
def test_names_that_normalise_to_the_same_are_the_same(ground: ms.Store, one: str, other: str) -> None:
    assert one != other
    first = ground.schemas.create(("m", "c", one))
    assert ground.schemas.load(("m", "c", other)) == first
    refused(ms.EntityAlreadyExists, lambda: ground.schemas.create(("m", "c", other)))
    assert ground.schemas.create(("m", "c", other), if_exists="return") == first
    assert ground.schemas.create_many("m.c", [{"name": one}, {"name": other}], if_exists="return") == 0
    with pytest.raises(ms.InvalidArgument, match="two columns"):
        ground.tables.create("m.c.s.x", columns=[ms.Column(one, "int"), ms.Column(other, "int")])
    table = ground.tables.load("m.c.s.t")
    ground.partitions.create(table, one, values={})
    refused(ms.EntityAlreadyExists, lambda: ground.partitions.create(table, other, values={}))


def test_create_many_with_one_name_twice(kept: ms.Store) -> None:
    rows = [{"name": "twice"}, {"name": "once"}, {"name": "twice"}]
    refused(ms.EntityAlreadyExists, lambda: kept.schemas.create_many("m.c", rows, deadline=5.0), "twice")


def test_names_that_look_odd_are_fine(ground: ms.Store) -> None:
    odd = ["a b", "'", '"', "\\", "%s", "%(name)s", ":name", "$1", "{}", "/", "..", "-- x", ";drop", "\ufeff", "\u200b"]
    for name in odd:
        ground.schemas.create(("m", "c", name))
    assert set(odd) <= set(ground.schemas.names("m.c"))
    for name in odd:
        assert ground.schemas.load(("m", "c", name)).name == name
        refused(ms.EntityNotFound, lambda n=name: ground.schemas.load(("m", "c", "no" + n)))  # type: ignore[misc]


BLANKS = (" a", "a ", " ", "  ", "\u00a0a", "a\u3000", "ä\u2003", "a\u2028", " a.b`c ")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def test_names_may_begin_and_end_with_a_blank(ground: ms.Store) -> None:
    """Sources have such names. Everything that shows a path quotes them, so that the blank is seen."""
    for number, name in enumerate(BLANKS):
        clean = unicodedata.normalize("NFC", name)
        ground.schemas.create(("m", "c", name))
        table = ground.tables.create(
            ("m", "c", name, name),
            columns=[ms.Column(name, "int")],
            partitioning=[quoted(name)],
            indexes=[ms.Index(name, (quoted(name),))],
        )
        assert table.names == ("m", "c", clean, clean)
        assert table.path == f"m.c.{quoted(clean)}.{quoted(clean)}"
        assert ground.tables.load(table.path) == table
        assert next(ground.tables.history(table)).path_after == table.path
        assert next(c.path_after for c in ground.changes() if c.entity_id == table.id) == table.path
        missing = refused(ms.EntityNotFound, lambda n=name: ground.tables.load(("m", "c", n, "no")))  # type: ignore[misc]
        assert quoted(clean) in str(missing) or "\u2028" in clean
        moved = ground.tables.rename(table, ("m", "c", "s", f" {number} "))
        assert ground.tables.load(f"m.c.s.` {number} `").id == moved.id == table.id
    assert set(BLANKS) <= set(ground.schemas.names("m.c"))
    assert ground.verify() == []


def test_a_blank_at_an_end_makes_another_name(ground: ms.Store) -> None:
    for name in ("b", " b", "b ", " b "):
        ground.schemas.create(("m", "c", name))
    assert [n for n in ground.schemas.names("m.c") if "b" in n] == [" b", " b ", "b", "b "]
    assert ground.schemas.load("m.c. b ").name == " b "


def test_a_message_about_a_name_with_a_line_separator(kept: ms.Store) -> None:
    refused(ms.EntityNotFound, lambda: kept.schemas.load("m.c.a\u2028b"))


def test_a_path_of_a_hundred_names(ground: ms.Store) -> None:
    """Any depth of nested schemas is allowed."""
    path = "m.c"
    for _ in range(98):
        path += ".s"
        ground.schemas.create(path, if_exists="return")
    assert ground.schemas.load(path).path == path


def test_a_path_of_two_thousand_names(kept: ms.Store) -> None:
    deep = ("m", "c", *["s"] * 1998)
    with pytest.raises((ms.InvalidArgument, ms.EntityNotFound)):
        kept.schemas.load(deep)
