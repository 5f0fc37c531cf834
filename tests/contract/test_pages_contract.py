"""Pages: all of a listing, each item once, in order; tokens that survive renames and restarts, and nothing else."""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metastore as ms
from metastore.managers.pages.page import just_before
from tests.contract.ground import Ground, prepare

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NAMES = [
    "a",
    "a%",
    "a%b",
    "a_",
    "a_b",
    "ab",
    "abc",
    "A",
    "b",
    "é",
    "éa",
    "z",
    "\U0010fffdx",
    "a\U0010ffff",
    "a b",
    "a.b",
]
PREFIXES = ["", "a", "a%", "a_", "ab", "A", "é", "zz", "z", "a\U0010ffff", "\ue000", "\U0010fffd", "a.", "%", "_"]


def drain(page: Callable[[str | None], ms.Page[Any]], most: int | None = None) -> list[Any]:
    """Return the items of all pages, which but for the last are full."""
    found: list[Any] = []
    token = None
    while True:
        one = page(token)
        found += one.items
        if one.next_token is None:
            return found
        assert most is None or len(one.items) == most
        assert isinstance(one.next_token, str)
        assert set(one.next_token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        token = one.next_token


@pytest.fixture
def many(ground: Ground) -> Ground:
    """Give a schema with tables of many names, some dropped, and partitions of the same names."""
    tables = ground.store.tables
    tables.create_many("m.c.two", [{"name": name} for name in NAMES])
    for name in NAMES[::2]:
        for _ in range(2):
            gone = tables.create(f"d{name}", parent=ground.two)
            assert tables.drop(gone)
    rows = [ground.store.partitions.row(name, {}, {}) for name in NAMES]
    ground.store.partitions.put_many(ground.table, rows)
    return ground


@pytest.mark.parametrize("size", [1, 2, 3, 16, 100])
def test_all_pages_are_the_listing(many: Ground, size: int) -> None:
    tables, partitions = many.store.tables, many.store.partitions
    whole = list(tables.list("m.c.two"))
    assert drain(lambda t: tables.page("m.c.two", size=size, token=t), size) == whole
    assert drain(lambda t: tables.page(many.two, size=size, token=t), size) == whole
    assert drain(lambda t: tables.names_page("m.c.two", size=size, token=t), size) == [one.name for one in whole]
    gone = list(tables.dropped("m.c.two"))
    assert len(gone) == 2 * len(NAMES[::2])
    assert drain(lambda t: tables.dropped_page("m.c.two", size=size, token=t), size) == gone
    rows = list(partitions.list(many.table))
    assert drain(lambda t: partitions.page(many.table, size=size, token=t), size) == rows
    assert drain(lambda t: partitions.names_page("m.c.one.t", size=size, token=t), size) == [row.name for row in rows]
    assert drain(lambda t: many.store.metalakes.page(size=size, token=t)) == list(many.store.metalakes.list())


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_taken_as_it_is(many: Ground, prefix: str) -> None:
    store = many.store
    expected = sorted(name for name in NAMES if name.startswith(prefix))
    for size in (1, 4, 50):
        page = drain(lambda t, s=size: store.tables.page("m.c.two", size=s, token=t, prefix=prefix), size)  # type: ignore[misc]
        assert [one.name for one in page] == expected
        names = drain(lambda t, s=size: store.tables.names_page(many.two, size=s, token=t, prefix=prefix), size)  # type: ignore[misc]
        assert names == expected
        rows = drain(lambda t, s=size: store.partitions.page(many.table, size=s, token=t, prefix=prefix), size)  # type: ignore[misc]
        assert [row.name for row in rows] == sorted(n for n in [*NAMES, "p"] if n.startswith(prefix))
        gone = drain(lambda t, s=size: store.tables.dropped_page("m.c.two", size=s, token=t, prefix="d" + prefix), size)  # type: ignore[misc]
        assert [one.name for one in gone] == sorted(f"d{n}" for n in NAMES[::2] * 2 if n.startswith(prefix))


def test_a_prefix_in_a_folding_catalog(ground: Ground) -> None:
    store = ground.store
    store.catalogs.create("m.f", type="relational", fold_case=True)
    store.schemas.create("m.f.s")
    for name in ("Straße", "STRASSENBAHN", "stroh", "Apfel"):
        store.tables.create(("m", "f", "s", name))
    found = store.tables.page("m.f.s", prefix="STRA")
    assert [one.name for one in found.items] == ["Straße", "STRASSENBAHN"]
    assert list(store.tables.names_page("m.f.s", prefix="stras", size=1).items) == ["Straße"]
    rows = [store.partitions.row(name, {}, {}) for name in ("P=1", "p=1")]
    store.partitions.put_many("m.f.s.stroh", rows)  # owned rows are never folded
    assert [row.name for row in store.partitions.page("m.f.s.stroh", prefix="P").items] == ["P=1"]


@pytest.mark.parametrize("last", ["a", "\x01", "\x02", "\ue000", "\U00010000", "\U0010ffff", "%"])
def test_nothing_with_the_prefix_comes_before_it(last: str) -> None:
    for prefix in (last, f"x{last}"):
        before = just_before(prefix)
        assert before < prefix
        before.encode()  # no lone surrogate


def test_history_and_changes(many: Ground) -> None:
    store = many.store
    for n in range(7):
        store.tables.alter("m.c.one.t", ms.SetComment(str(n)))
    whole = list(store.tables.history("m.c.one.t"))
    assert len(whole) == 8
    for size in (1, 3, 8, 9):
        assert drain(lambda t, s=size: store.tables.history_page("m.c.one.t", size=s, token=t), size) == whole  # type: ignore[misc]
        feed = drain(lambda t, s=size: store.changes_page(after=t, size=s))  # type: ignore[misc]
        assert feed == list(store.changes())
    assert [c.to_dict() for c in store.changes_page(size=2).items] == store.changes_page(size=2).to_dict()["items"]
    assert store.tables.drop("m.c.one.t")
    assert len(drain(lambda t: store.tables.history_page(many.table, size=2, token=t))) == 9


def test_versions_of_a_model(ground: Ground) -> None:
    """By number, not by text; those that were dropped leave gaps."""
    models = ground.store.models
    model = models.create("m.c.two.model")
    assert models.versions_page(model) == ms.Page((), None)
    for n in range(1, 24):
        models.add_version(model, uris={"default": f"s3://b/{n}"})
    for n in (1, 5, 6, 7, 8, 9, 10, 23):
        assert models.drop_version(model, n)
    whole = list(models.versions(model))
    assert [one.number for one in whole] == [2, 3, 4, *range(11, 23)]
    for size in (1, 2, 5, 15, 16, 100):
        assert drain(lambda t, s=size: models.versions_page("m.c.two.model", size=s, token=t), size) == whole  # type: ignore[misc]
    first = models.versions_page(model, size=4)
    moved = models.rename(model, "renamed")
    for target in (model, moved, "m.c.two.model", "m.c.two.renamed"):
        rest = models.versions_page(target, token=first.next_token)
        assert [*first.items, *rest.items] == whole
    with pytest.raises(ms.InvalidArgument, match="another listing"):
        models.history_page(moved, token=first.next_token)
    assert models.drop(moved)
    with pytest.raises(ms.EntityNotFound):
        models.versions_page(moved, token=first.next_token)


def test_changes_of_some_kinds_and_below_a_path(many: Ground) -> None:
    store = many.store
    store.tables.rename("m.c.two.z", "m.c.one.moved")
    store.schemas.create("m.c.one_more")  # its path begins as that of another schema
    every = list(store.changes())

    def below(change: ms.Change, scope: str) -> bool:
        paths = (change.path_before or "", change.path_after or "")
        return any(p == scope or p.startswith(scope + ".") for p in paths)

    for size in (1, 5, 1000):
        schemas = drain(lambda t, s=size: store.changes_page(after=t, size=s, kinds=["schema", "catalog"]))  # type: ignore[misc]
        assert schemas == [c for c in every if c.kind in ("schema", "catalog")]
        for scope in ("m.c.one", "m.c", "m.c.one.t"):
            found = drain(lambda t, s=size, u=scope: store.changes_page(after=t, size=s, under=u))  # type: ignore[misc]
            assert found == [c for c in every if below(c, scope)]
        both = drain(lambda t, s=size: store.changes_page(after=t, size=s, kinds=["table"], under=many.one))  # type: ignore[misc]
        assert both == [c for c in every if c.kind == "table" and below(c, "m.c.one")]
    with pytest.raises(ms.EntityNotFound, match="there are no changes below it"):
        store.changes_page(under="m.c.nothing")
    with pytest.raises(ms.InvalidArgument):
        store.changes_page(kinds="table")
    with pytest.raises(ms.InvalidArgument):
        store.changes_page(after="nonsense")


def test_a_token_survives_a_rename_of_what_is_listed(many: Ground) -> None:
    """The same call goes on, although its path leads nowhere; the new path and the entity do as well."""
    store = many.store
    whole = store.tables.names_page("m.c.two", size=100).items
    first = store.tables.names_page("m.c.two", size=5)
    rows = store.partitions.page("m.c.one.t", size=5)
    store.tables.alter("m.c.one.t", ms.SetComment("more"))
    steps = store.tables.history_page("m.c.one.t", size=1)
    moved = store.schemas.rename("m.c.two", "renamed")
    store.schemas.rename("m.c.one", "uno")
    for parent in ("m.c.two", "m.c.renamed", many.two, moved):
        rest = store.tables.names_page(parent, size=100, token=first.next_token)
        assert first.items + rest.items == whole
    assert (
        store.tables.page("m.c.two", token=store.tables.page(moved, size=5).next_token)
        .items[0]
        .path.startswith("m.c.renamed.")
    )
    assert len(store.partitions.page("m.c.one.t", size=100, token=rows.next_token).items) == len(NAMES) + 1 - 5
    assert [v.version for v in store.tables.history_page("m.c.one.t", token=steps.next_token).items] == [2]
    store.schemas.create("m.c.two")  # now the path leads to another schema
    with pytest.raises(ms.InvalidArgument, match="the path leads elsewhere"):
        store.tables.names_page("m.c.two", token=first.next_token)
    assert store.schemas.drop(moved, cascade=True)
    with pytest.raises(ms.EntityNotFound):
        store.tables.names_page("m.c.renamed", token=first.next_token)
    with pytest.raises(ms.EntityNotFound):
        store.tables.names_page(moved, token=first.next_token)


@pytest.mark.parametrize("chosen", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_token_survives_a_restart(chosen: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{chosen}_url")
    with ms.open(url) as store:
        ground = prepare(store)
        store.tables.create_many(ground.two, [{"name": name} for name in NAMES])
        first = store.tables.names_page("m.c.two", size=5)
    with ms.open(url) as store:
        rest = store.tables.names_page("m.c.two", token=first.next_token)
        assert [*first.items, *rest.items] == sorted(NAMES)


def _with(tables: Any, parent: Any, token: Any) -> Callable[[], Any]:
    return lambda: tables.page(parent, token=token)


def _foreign(ground: Ground) -> Iterator[tuple[str, Callable[[], Any]]]:
    tables, two = ground.store.tables, ground.two
    token = tables.page(two, size=2).next_token
    assert token is not None
    yield "another listing", lambda: tables.names_page(two, token=token)
    yield "another listing", lambda: tables.dropped_page(two, token=token)
    yield "another listing", lambda: tables.page(two, token=token, prefix="a")
    yield "another listing", lambda: tables.page(ground.one, token=token)
    yield "another listing", lambda: ground.store.views.page(two, token=token)
    yield "another listing", lambda: ground.store.partitions.page(ground.table, token=token)
    yield "another listing", lambda: tables.history_page(ground.table, token=token)
    for at in range(0, len(token), 7):
        other = "A" if token[at] != "A" else "B"
        broken = token[:at] + other + token[at + 1 :]
        yield "not a token", _with(tables, two, broken)
    for broken in (token[:-1], token + "A", token + "=", "", "a", "x y", "é", "\x00", token.swapcase(), "A" * 400):
        yield "not a token", _with(tables, two, broken)
    body = json.dumps(["children", "table", None, two.id, ["a", 0]]).encode()
    forged = base64.urlsafe_b64encode(b"123456789" + body).decode().rstrip("=")
    yield "not a token", lambda: tables.page(two, token=forged)
    for wrong in (5, b"abc", ["a"]):
        yield "a token must be", _with(tables, two, wrong)


def test_a_foreign_or_damaged_token_is_refused(many: Ground) -> None:
    for words, call in _foreign(many):
        with pytest.raises(ms.InvalidArgument, match=words):
            call()


def test_a_token_of_another_database_is_refused(many: Ground) -> None:
    with ms.open("memory://") as other:
        prepare(other)
        other.tables.create_many("m.c.two", [{"name": name} for name in NAMES])
        token = other.tables.page("m.c.two", size=2).next_token
    with pytest.raises(ms.InvalidArgument, match="not a token of this database's pages"):
        many.store.tables.page("m.c.two", token=token)


@pytest.mark.each_run_on("memory")
@pytest.mark.parametrize("size", [0, -1, 1.5, "1", None, True, 1 << 70, 100_001])
def test_what_is_no_size(ground: Ground, size: Any) -> None:
    for call in (
        lambda: ground.store.tables.page(ground.one, size=size),
        lambda: ground.store.tables.history_page(ground.table, size=size),
        lambda: ground.store.partitions.page(ground.table, size=size),
        lambda: ground.store.changes_page(size=size),
    ):
        with pytest.raises(ms.InvalidArgument):
            call()


@pytest.mark.parametrize("prefix", [5, b"a", "\ud800", "a\x00"])
def test_what_is_no_prefix(ground: Ground, prefix: Any) -> None:
    with pytest.raises(ms.InvalidArgument):
        ground.store.tables.page(ground.one, prefix=prefix)


def test_in_a_transaction(many: Ground) -> None:
    """It shows the transaction's own writes."""
    with many.store.transaction() as tx:
        tx.tables.create("m.c.two.b2")
        assert tx.tables.drop("m.c.two.z")
        seen = drain(lambda t: tx.tables.names_page("m.c.two", size=3, token=t))
    assert seen == sorted({*NAMES, "b2"} - {"z"})


def test_a_missing_parent_is_not_found(ground: Ground) -> None:
    for call in (
        lambda: ground.store.tables.page("m.c.none"),
        lambda: ground.store.partitions.page("m.c.one.none"),
        lambda: ground.store.tables.history_page("m.c.one.none"),
    ):
        with pytest.raises(ms.EntityNotFound):
            call()


def test_pages_while_others_rename_and_drop(ground: Ground) -> None:
    """What stays in place appears exactly once, in order; what comes and goes at most once by id and name."""
    store, tables = ground.store, ground.store.tables
    stays = [f"s{n:03}" for n in range(60)]
    moves = [f"m{n:03}" for n in range(30)]
    tables.create_many(ground.two, [{"name": name} for name in stays + moves])
    done = threading.Event()
    failed: list[BaseException] = []

    def disturb(seed: int) -> None:
        chosen = random.Random(seed)
        try:
            while not done.is_set():
                name = chosen.choice(moves)
                parent = store.schemas.list("m.c")
                at = next(s for s in parent if s.id == ground.two.id)
                if chosen.random() < 0.5:
                    tables.drop((*at.names, name))
                    tables.create((*at.names, name), if_exists="return")
                else:
                    store.schemas.rename(at, chosen.choice(["two", "zwei"]))
        except ms.MetastoreError as error:
            if not isinstance(error, ms.EntityNotFound | ms.EntityAlreadyExists):
                failed.append(error)

    threads = [threading.Thread(target=disturb, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            seen = drain(lambda t: tables.page(ground.two, size=7, token=t))
            names = [one.name for one in seen]
            assert names == sorted(set(names))
            assert [name for name in names if name[0] == "s"] == stays
            assert {one.names[:2] for one in seen} == {("m", "c")}
            assert {one.names[2] for one in seen} <= {"two", "zwei"}
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert store.verify() == []
