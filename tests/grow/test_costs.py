"""What grew with more than its answer, and does not any more: by statements, steps, and memory at two sizes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.relations import check
from metastore.backends.postgres.settings import SESSION
from metastore.backends.sqlite.connect import DRIVER
from metastore.feed.stood import tracked
from metastore.governance import decision, privileges
from metastore.managers import models
from metastore.managers.purge import delete_trees
from metastore.managers.relations.writes import column_paths
from metastore.port.conditions import Relations
from tests.grow.counting import Cost, SqliteCounter, measured

pytestmark = pytest.mark.one_in(2)


@pytest.fixture
def counter() -> Iterator[SqliteCounter]:
    with (one := SqliteCounter()).installed():
        yield one


@pytest.fixture
def store(counter: SqliteCounter, sqlite_url: str) -> Iterator[ms.Store]:
    with ms.open(sqlite_url, principal="tester") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.schemas.create("m.c.small")
        yield store


def _tables(store: ms.Store, schema: str, begin: int, end: int, **more: Any) -> None:
    store.tables.create_many(schema, [{"name": f"t{n:05}", **more} for n in range(begin, end)])


def _noted(name: str, method: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    def noted(*args: Any) -> Any:
        asked.append(name)
        return method(*args)

    return noted


def _grown(counter: SqliteCounter, grow: Callable[[int, int], None], call: Callable[[], Any]) -> tuple[Cost, Cost]:
    """Return what a call costs before and after the store has grown tenfold beside its answer."""
    grow(0, 300)
    small = measured(counter, call)
    grow(300, 3000)
    return small, measured(counter, call)


@pytest.mark.parametrize(
    "wanted", [{"name": "t0000*"}, {"kind": "model"}, {"name": "t00001", "kind": "table"}], ids=str
)
def test_a_search_costs_what_is_in_its_scope(store: ms.Store, counter: SqliteCounter, wanted: dict[str, str]) -> None:
    _tables(store, "m.c.small", 0, 5)
    store.models.create("m.c.small.model")
    found: Callable[[], Any] = partial(store.find, "m.c.small", **wanted)  # type: ignore[arg-type]
    small, large = _grown(counter, lambda a, b: _tables(store, "m.c.s", a, b), found)
    assert small.answer == large.answer > 0
    assert large.blocks <= 1.3 * small.blocks
    assert large.statements == small.statements


def test_a_search_for_a_rare_kind_passes_by_the_others(store: ms.Store, counter: SqliteCounter) -> None:
    store.models.create("m.c.s.model")
    for under in (None, "m"):
        counter.reset()
        assert [one.path for one in store.find(under, kind="model")] == ["m.c.s.model"]
    found = lambda: store.find("m", kind="model")  # noqa: E731
    small, large = _grown(counter, lambda a, b: _tables(store, "m.c.s", a, b), found)
    assert large.blocks <= 1.3 * small.blocks


@pytest.mark.parametrize(
    "wanted", [{"kind": "topic"}, {"name": "*1"}, {"properties": {"no": "one"}}], ids=["kind", "name", "properties"]
)
def test_a_search_below_many_small_containers_asks_for_many_at_once(
    store: ms.Store, counter: SqliteCounter, wanted: dict[str, Any]
) -> None:
    store.catalogs.create("m.wide", type="relational")
    store.schemas.create_many("m.wide", [{"name": f"x{n:04}_"} for n in range(1500)])
    found = measured(counter, lambda: store.find("m.wide", **wanted))
    assert (found.answer, found.statements < 40) == (0, True)


def test_a_search_by_properties_reads_no_documents_that_cannot_fit(store: ms.Store, counter: SqliteCounter) -> None:
    store.tables.create("m.c.s.it", properties={"team": "x", "kept": ms.secret("env:HERE")})
    _tables(store, "m.c.s", 0, 1000, properties={"team": "y"})
    found = partial(store.find, properties={"team": "x"})
    assert [one.path for one in found()] == ["m.c.s.it"]
    assert [one.path for one in store.find(properties={"kept": "env:HERE"})] == ["m.c.s.it"]
    assert measured(counter, found).peak < 1_000_000


def test_pages_of_names_that_find_little_become_longer(store: ms.Store, counter: SqliteCounter) -> None:
    for n in range(6):
        store.schemas.create(f"m.c.s{n}")
        _tables(store, f"m.c.s{n}", 0, 1000)
    assert measured(counter, lambda: store.find(name="t*", properties={"no": "one"})).statements <= 12


def test_a_search_reads_what_a_user_does_not_see_once(
    store: ms.Store, counter: SqliteCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.managers.find._PAGE", 50)
    store.users.create("m.ann")
    _tables(store, "m.c.s", 0, 1000)
    whole = measured(counter, lambda: store.find(properties={}))
    seen = measured(counter, lambda: store.as_user("ann").find())
    assert seen.answer < 5 < whole.answer
    assert seen.blocks < 3 * whole.blocks


@pytest.mark.parametrize("of", ["tables", "partitions"])
def test_a_page_of_the_past_is_read_up_to_its_end(store: ms.Store, counter: SqliteCounter, of: str) -> None:
    """In the middle, and of what got its name twice."""
    on = {"tables": "m.c.s", "partitions": "m.c.s.hub"}[of]
    store.tables.create("m.c.s.hub", columns=[ms.Column("p", "string")], partitioning=["p"])

    def grow(begin: int, end: int) -> None:
        names = [f"t{n:04}" for n in range(begin // 5, end // 5)]
        if of == "tables":
            store.tables.create_many(on, [{"name": name} for name in names])
            return
        with store.transaction() as tx:
            for name in names:
                tx.partitions.create(on, name, values={"p": name})

    def page() -> ms.Page[Any]:
        then = getattr(store.at(store.position()), of)
        return then.page(on, size=20, token=then.page(on, size=20).next_token)

    def names() -> list[str]:
        return [one.name for one in page().items]

    small, large = _grown(counter, grow, page)
    assert names() == [f"t{n:04}" for n in range(20 - (of == "tables"), 40 - (of == "tables"))]
    assert large.blocks <= 1.3 * small.blocks
    if of == "tables":
        store.tables.drop("m.c.s.t0030")
        store.tables.restore("m.c.s.t0030")
        store.tables.drop("m.c.s.t0031")
        store.tables.create("m.c.s.t0031")
        store.tables.drop("m.c.s.t0032")
        assert names() == [f"t{n:04}" for n in range(19, 40) if n != 32]


def test_paths_of_the_past_are_followed_in_one_statement(store: ms.Store, counter: SqliteCounter) -> None:
    _tables(store, "m.c.s", 0, 300)
    then = store.at(store.position())
    paths = [f"m.c.s.t{n:05}" for n in range(300)]
    counter.reset()
    found = then.tables.load_many([*paths, "m.c.s.none", "m.none.s.t"])
    assert [one.path if one else None for one in found] == [*paths, None, None]
    assert counter.statements <= 3


def test_rows_of_the_past_are_read_in_one_statement(store: ms.Store, counter: SqliteCounter) -> None:
    store.models.create("m.c.s.model")
    for n in range(30):
        store.models.add_version("m.c.s.model", uris={"u": f"{n}"})
    then = store.at(store.position())
    store.models.drop_version("m.c.s.model", 7)
    counter.reset()
    assert [one.number for one in then.models.versions("m.c.s.model")] == [*range(1, 31)]
    assert counter.statements <= 8


def test_versions_of_a_model_come_page_by_page(
    store: ms.Store, counter: SqliteCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.models.create("m.c.s.model")
    for n in range(30):
        store.models.add_version("m.c.s.model", uris={"u": f"{n}"})
    asked, backend = list[int](), type(store._session.backend)
    by_name = backend.owned_by_name

    def noted(self: Any, owner_ids: Any, kind: str, names: Any) -> Any:
        asked.extend(map(int, names))
        return by_name(self, owner_ids, kind, names)

    monkeypatch.setattr(backend, "owned_by_name", noted)
    monkeypatch.setattr(models, "_FIRST", 2)
    monkeypatch.setattr(models, "_PAGE", 10)
    assert [one.number for one in store.models.versions("m.c.s.model")] == [*range(1, 31)]
    assert asked[:30] == [*range(1, 31)]
    monkeypatch.undo()
    store.models.create("m.c.s.gaps")
    with store.transaction() as tx:
        for _ in range(300):
            tx.models.add_version("m.c.s.gaps", uris={"u": "x"})
    with store.transaction() as tx:
        for number in range(2, 299):
            tx.models.drop_version("m.c.s.gaps", number)
    counter.reset()
    assert [one.number for one in store.models.versions_page("m.c.s.gaps", size=3).items] == [1, 299, 300]
    assert counter.statements < 40
    for number in (1, 2, 3, 17):
        store.models.drop_version("m.c.s.model", number)
    monkeypatch.setattr(models, "_PAGE", 4)
    counter.reset()
    versions = store.models.versions("m.c.s.model")
    assert next(versions).number == 4
    first = counter.statements
    assert [one.number for one in versions] == [n for n in range(5, 31) if n != 17]
    assert first * 4 < counter.statements
    versions = store.models.versions("m.c.s.model")
    next(versions)
    store.models.rename("m.c.s.model", "other")
    with pytest.raises(ms.EntityNotFound):
        list(versions)


def test_a_restore_and_a_commit_after_a_listing_read_no_other_entities(store: ms.Store, counter: SqliteCounter) -> None:
    """On SQLite a partial index serves only statements that say its condition."""
    store.tags.create("m.tag")
    store.tables.create("m.c.small.t")

    def calls() -> None:
        store.tags.drop("m.tag")
        store.tags.restore("m.tag")
        with store.transaction() as tx:
            assert [*tx.tables.names("m.c.small"), *tx.tables.dropped("m.c.small")] == ["t"]
            tx.tables.alter("m.c.small.t", ms.SetComment(f"{counter.statements}"))

    small, large = _grown(counter, lambda a, b: _tables(store, "m.c.s", a, b), calls)
    assert large.blocks <= 1.3 * small.blocks


def test_a_purge_goes_down_in_batches(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(60):
        store.schemas.create(f"m.c.s.s{n}")
        store.tables.create(f"m.c.s.s{n}.t")
    store.schemas.drop(top := store.schemas.load("m.c.s"), cascade=True)
    backend, asked = type(store._session.backend), list[str]()
    for name in ("below", "delete_relations", "delete_entities"):
        monkeypatch.setattr(backend, name, _noted(name, getattr(backend, name), asked))
    store.schemas.purge(top)
    assert len(asked) < 15
    assert store.verify() == []
    store.schemas.create("m.c.s")


def test_gc_passes_once_over_what_is_gone(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(begin: int, end: int) -> None:
        _tables(store, "m.c.s", begin, end)
        for n in range(begin, end):
            store.tables.drop(f"m.c.s.t{n:05}")

    backend = store._session.backend
    asked = list[int]()
    before = backend.dropped_before

    def noted(time: int, after: Any, limit: int) -> Any:
        found = before(time, after, limit)
        asked.append(len(found))
        return found

    gone(0, 250)
    deletions = list[str]()
    for name in ("below", "delete_relations", "delete_entities"):
        monkeypatch.setattr(type(backend), name, _noted(name, getattr(type(backend), name), deletions))
    backend.dropped_before = noted  # type: ignore[method-assign]
    assert store.gc(retention=timedelta(0), keep_versions=1).entities == 250
    assert sum(asked) == 250
    assert len(deletions) <= 9  # three for each hundred
    assert delete_trees(backend, [10**9]) == 0


def test_what_another_process_holds_does_not_keep_gc_from_the_rest(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many roots, one is below another one, and below a third one is a row that another process deletes."""
    roots = [store.schemas.create(f"m.c.s.r{n}").id for n in range(3)]
    store.tables.create("m.c.s.r0.t")
    held = store.tables.create("m.c.s.r1.t").id
    roots.append(store.schemas.create("m.c.s.r2.inner").id)
    backend = store._session.backend
    delete = type(backend).delete_entities
    monkeypatch.setattr(
        type(backend), "delete_entities", lambda self, ids: delete(self, [one for one in ids if one != held])
    )
    assert delete_trees(backend, roots) == 4
    assert [one is None for one in backend.by_id(roots)] == [True, False, True, True]


def test_the_table_of_privileges_is_built_once(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.roles.create("m.r")
    store.roles.grant("m.r", "use_schema", "m.c.s", kind="schema")

    def above(kind: str) -> Any:
        raise AssertionError(f"it builds the table again, for {kind}")

    monkeypatch.setattr(privileges, "_above", above)
    store.roles.grant("m.r", "create_table", "m.c.s", kind="schema")


def test_a_follower_remembers_no_commits_of_others(store: ms.Store) -> None:
    follower = tracked(store._session, "m.c.small", "schema", None)
    for n in range(5):
        _tables(store, "m.c.s", 10 * n, 10 * n + 10)
    follower.see(store._session.backend.feed(0, 500).rows)
    assert follower._begun == set()


def test_a_difference_below_a_place_holds_nothing_of_what_changed_elsewhere(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.feed.feed._PAGE", 50)
    monkeypatch.setattr("metastore.past.diff._AT_ONCE", 50)

    def peak(count: int) -> int:
        since = store.position()
        for n in range(count):
            store.tables.alter("m.c.s.t00000", ms.SetProperty("k", f"{n:04}" * 500))
        store.tables.alter("m.c.small.t00000", ms.SetComment(f"{count}"))
        tracemalloc.start()
        try:
            assert [one.path_after for one in store.diff(since, under="m.c.small", kind="schema")] == [
                "m.c.small.t00000"
            ]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    _tables(store, "m.c.s", 0, 1)
    _tables(store, "m.c.small", 0, 1)
    pages = peak(150)
    assert peak(600) < 1.2 * pages


def test_a_difference_below_a_place_asks_of_the_rest_only_where_it_stood(
    store: ms.Store, counter: SqliteCounter
) -> None:
    """Of each change elsewhere it reads one version at each position, and not those of all that is above."""
    since = store.position()
    _tables(store, "m.c.s", 0, 1000)
    _tables(store, "m.c.small", 0, 1)
    for found in (
        lambda: store.diff(since, under="m.c.small", kind="schema"),
        lambda: store.revert("m.c.small", to=since, kind="schema", dry_run=True),
    ):
        cost = measured(counter, found)
        assert cost.answer == 1
        assert cost.blocks < 300 * 1000


def test_relations_of_one_object_go_back_together(store: ms.Store, counter: SqliteCounter) -> None:
    """The past of an object with many tags was read again for each of them."""
    store.tables.create("m.c.small.t")
    store.tags.create_many("m", [{"name": f"tag{n}"} for n in range(330)])
    since = store.position()

    def cost(begin: int, end: int) -> float:
        with store.transaction() as tx:
            for n in range(begin, end):
                tx.tags.attach("m.c.small.t", f"m.tag{n}", kind="table")
        found = measured(counter, lambda: store.revert("m.c.small.t", to=since, kind="table", dry_run=True))
        assert found.answer == end
        return found.blocks / found.answer

    few = cost(0, 30)
    assert cost(30, 330) < 1.3 * few


def test_relations_of_many_objects_go_back_in_few_statements(store: ms.Store, counter: SqliteCounter) -> None:
    store.tags.create("m.tag")
    store.users.create_many("m", [{"name": "ann"}, {"name": "bob"}])
    _tables(store, "m.c.small", 0, 100)
    paths = [f"m.c.small.t{n:05}" for n in range(100)]
    with store.transaction() as tx:
        for path in paths:
            tx.owners.set(path, "m.ann", kind="table")
    since = store.position()
    store.tags.attach_many("m.tag", [{"target": path, "kind": "table"} for path in paths])
    with store.transaction() as tx:
        for path in paths:
            tx.owners.set(path, "m.bob", kind="table")
    for call in (
        lambda: store.diff(since, under="m.c.small", kind="schema"),
        lambda: store.revert("m.c.small", to=since, kind="schema", dry_run=True),
    ):
        found = measured(counter, call)
        assert found.answer == 200
        assert found.statements < 60


def test_a_difference_reads_no_documents(store: ms.Store) -> None:
    _tables(store, "m.c.s", 0, 1, properties={"long": "x" * 200_000})
    since = store.position()
    for n in range(50):
        store.tables.alter("m.c.s.t00000", ms.SetProperty("k", f"{n}"))
    tracemalloc.start()
    try:
        (found,) = store.diff(since)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert len(found.changes) == 50


@pytest.mark.postgres
def test_many_targets_of_any_kind_are_found_in_a_statement_for_each_family(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[str]()
    execute = psycopg.Connection.execute

    def noted(self: Any, text: Any, *args: Any, **options: Any) -> Any:
        sent.append(str(text))
        return execute(self, text, *args, **options)

    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.tags.create("m.tag")
        _tables(store, "m.c.s", 0, 200)
        monkeypatch.setattr(psycopg.Connection, "execute", noted)
        assert store.tags.attach_many("m.tag", [{"target": f"m.c.s.t{n:05}"} for n in range(200)]) == 200
        assert len([text for text in sent if "guard g1" in text]) < 20
        monkeypatch.undo()
        assert len(store.tags.on("m.c.s.t00001")) == 1


def test_hidden_changes_are_read_in_pages_that_double(
    store: ms.Store, counter: SqliteCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times as many hidden changes take a few statements more, and no document is read of them."""
    monkeypatch.setattr("metastore.feed.feed._PAGE", 25)
    store.users.create("m.ann")
    since = store.position()

    def grow(begin: int, end: int) -> None:
        _tables(store, "m.c.s", begin, end, properties={"long": "x" * 1000})

    small, large = _grown(counter, grow, lambda: store.as_user("ann").changes(after=since, limit=5))
    assert (small.answer, large.answer) == (0, 0)
    assert large.statements <= small.statements + 12
    assert large.peak < 3_000_000
    store.users.alter("m.ann", ms.SetComment("now"))
    (seen,) = store.as_user("ann").changes(after=since, limit=5)
    (last,) = list(store.changes(after=since))[-1:]
    assert (seen.to_dict(), seen.entity) == (last.to_dict(), last.entity)
    assert list(store.changes(after=since, kinds=["user"])) == [last]
    store.users.create_many("m", [{"name": f"u{n}"} for n in range(60)])
    asked, backend = list[int](), type(store._session.backend)
    read = backend.steps_at

    def noted(self: Any, positions: Any) -> Any:
        asked.append(len(positions))
        return read(self, positions)

    monkeypatch.setattr(backend, "steps_at", noted)
    assert len(list(store.changes(after=since, kinds=["user"]))) > 60
    assert max(asked) == 25  # documents, as many at once as a usual page has


def test_a_change_that_gc_removed_while_hidden_ones_were_read_is_not_passed_over(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.feed.feed._PAGE", 25)
    store.users.create("m.ann")
    since = store.position()
    _tables(store, "m.c.s", 0, 100)
    for n in range(3):
        store.users.alter("m.ann", ms.SetComment(f"{n}"))
    backend = store._session.backend
    read = type(backend).steps_at

    def late(self: Any, positions: Any) -> Any:
        store.gc(retention=timedelta(0), keep_versions=1)
        return read(self, positions)

    monkeypatch.setattr(type(backend), "steps_at", late)
    with pytest.raises(ms.HistoryGone):
        list(store.as_user("ann").changes(after=since))


@pytest.mark.parametrize("sees_all", [True, False])
def test_whether_siblings_are_seen_is_decided_once(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, sees_all: bool
) -> None:
    store.users.create("m.ann")
    store.roles.create("m.r")
    store.roles.assign("m.r", "m.ann")
    for privilege in ("use_catalog", "use_schema"):
        store.roles.grant("m.r", privilege, "m", kind="metalake")
    _tables(store, "m.c.s", 0, 300)
    on, kind = ("m.c.s", "schema") if sees_all else ("m.c.s.t00007", "table")
    store.roles.grant("m.r", "select_table", on, kind=kind)
    decided = list[str]()
    monkeypatch.setattr("metastore.governance.evidence.sees", _noted("sees", decision.sees, decided))
    tables = [one.path_after for one in store.as_user("ann").changes() if one.kind == "table"]
    assert tables == [f"m.c.s.t{n:05}" for n in (range(300) if sees_all else [7])]
    assert len(decided) < 40


def test_the_names_and_grants_of_a_users_roles_are_gathered_once_for_many_objects(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were for each object: 1,666 roles of a user took 176 MB when it listed them, and a page of them 8 s."""
    store.users.create("m.ann")
    store.roles.create_many("m", [{"name": f"r{n}"} for n in range(300)])
    with store.transaction() as tx:
        for n in range(300):
            tx.roles.assign(f"m.r{n}", "m.ann")
            tx.roles.grant(f"m.r{n}", "use_schema", "m", kind="metalake")
    tracemalloc.start()
    try:
        assert len(store.as_user("ann").roles.of("m.ann")) == 300
        assert tracemalloc.get_traced_memory()[1] < 2_500_000
    finally:
        tracemalloc.stop()
    store.roles.grant("m.r0", "use_catalog", "m", kind="metalake")
    _tables(store, "m.c.s", 0, 20)
    sizes, holds = list[int](), decision._holds

    def held(facts: decision.Facts, *at: Any) -> Any:
        sizes.append(len(facts.grants))
        return holds(facts, *at)

    monkeypatch.setattr(decision, "_holds", held)
    assert [one.path for one in store.as_user("ann").find("m.c", kind="schema")] == ["m.c.s", "m.c.small"]
    assert max(sizes) == 2


def test_the_document_of_a_table_is_read_once_for_all_its_columns(
    store: ms.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came with each column that has a tag: 1,000 columns of a table took 3.5 s, and 100 MB."""
    store.tags.create("m.tag")
    names = [f"c{n:03}" for n in range(200)]
    for table in ("m.c.s.t", "m.c.small.t"):
        store.tables.create(table, columns=[ms.Column(name, "int") for name in names], comment="x" * 20_000)
        store.tags.attach(table, "m.tag", kind="table")
    rows = [{"target": t, "kind": "table", "column": c} for t in ("m.c.s.t", "m.c.small.t") for c in names]
    store.tags.attach_many("m.tag", rows)
    store.tables.alter("m.c.small.t", ms.DropColumn("c007"))
    parsed = list[str | None]()

    def noted(doc: str | None, *more: Any, **options: Any) -> dict[int, tuple[str, ...]]:
        parsed.append(doc)
        return column_paths(doc, *more, **options)

    for where in ("managers.relations.reads", "transfer.relations", "gc"):
        monkeypatch.setattr(f"metastore.{where}.column_paths", noted)
    tracemalloc.start()
    try:
        found = [(one.target_path, one.column) for one in store.tags.targets("m.tag")]
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert sorted(found, key=str) == sorted(
        [(t, c) for t in ("m.c.s.t", "m.c.small.t") for c in (None, *names) if (t, c) != ("m.c.small.t", "c007")],
        key=str,
    )
    assert len(parsed) <= 4
    store.export_to(tmp_path / "all")
    store.gc(retention=timedelta(0), keep_versions=1)
    assert len(parsed) <= 12
    assert len(list(store.tags.targets("m.tag"))) == len(found)
    assert store.verify() == []


def test_relations_of_one_are_looked_up(store: ms.Store, counter: SqliteCounter) -> None:
    store.users.create("m.ann")
    store.tags.create("m.tag")

    def grow(begin: int, end: int) -> None:
        _tables(store, "m.c.s", begin, end)
        store.tags.attach_many("m.tag", [{"target": f"m.c.s.t{n:05}", "kind": "table"} for n in range(begin, end)])

    small, large = _grown(counter, grow, lambda: store.roles.of("m.ann"))
    assert large.blocks <= 1.3 * small.blocks


def test_a_users_rights_cost_the_same_in_a_larger_store(store: ms.Store, counter: SqliteCounter) -> None:
    store.users.create("m.ann")
    store.roles.create("m.r")
    store.roles.assign("m.r", "m.ann")
    for privilege in ("use_catalog", "use_schema", "select_table"):
        store.roles.grant("m.r", privilege, "m", kind="metalake")
    _tables(store, "m.c.small", 0, 5)
    page: Callable[[], Any] = lambda: store.as_user("ann").tables.page("m.c.small")  # noqa: E731
    small, large = _grown(counter, lambda a, b: _tables(store, "m.c.s", a, b), page)
    assert small.answer == large.answer == 5
    assert large.blocks <= 1.3 * small.blocks


@pytest.mark.parametrize("kind", ["owner", "grant"])
def test_a_page_of_few_does_not_read_all_that_the_user_has(
    store: ms.Store, counter: SqliteCounter, sqlite_url: str, kind: str
) -> None:
    """A service's user owns what it creates, wherever that is."""
    user, role = store.users.create("m.ann"), store.roles.create("m.r")
    store.roles.assign("m.r", "m.ann")
    for privilege in ("use_catalog", "use_schema"):
        store.roles.grant("m.r", privilege, "m", kind="metalake")
    large = store.schemas.load("m.c.s").id
    ends = {"owner": f"id, 0, '', {user.id}", "grant": f"{role.id}, id, 'allow:select_table', id"}[kind]
    rows = f"""INSERT INTO relation (from_id, slot, value, to_id, kind, column_id, id, version, created_at, modified_at)
      SELECT {ends}, '{kind}', 0, 1000000 + id, 1, 0, 0 FROM guard WHERE parent_id = {large}
      ON CONFLICT DO NOTHING"""

    def grow(begin: int, end: int) -> None:
        _tables(store, "m.c.s", begin, end)
        with closing(DRIVER.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as database:
            database.execute(rows)

    _tables(store, "m.c.small", 0, 3)
    page: Callable[[], Any] = lambda: store.as_user("ann").tables.page("m.c.small")  # noqa: E731
    few, many = _grown(counter, grow, page)
    assert few.answer == many.answer == 0
    assert many.blocks <= 1.3 * few.blocks
    assert len(list(store.as_user("ann").tables.names("m.c.s"))) == 3000


@pytest.mark.postgres
def test_a_detach_reads_the_relations_in_its_slot(postgres_url: str) -> None:
    """The object with most tags loses the tag that is on most objects: the server expects thousands of rows there."""
    rows = """INSERT INTO relation (from_id, kind, slot, column_id, value, id, to_id, version, created_at, modified_at)
      SELECT {0}, '{4}', {1}, 0, '', {2} + n, {1}, 1, 0, 0 FROM generate_series(1, {3}) n"""
    read = Relations(1, "tag_on", frozenset({(1, 1)}), 2)
    text, values, *_ = check(read)
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        for of in (
            ("1", "2", 0, 1, "tag_on"),
            ("1", "100000 + n", 100_000, 4_000, "tag_on"),
            ("200000 + n", "2", 200_000, 12_000, "tag_on"),
            ("200000 + n", "2 + n", 300_000, 4_000, "grant"),
        ):
            connection.execute(rows.format(*of))
        connection.execute("ANALYZE")
        connection.execute(SESSION)
        explain: Any = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"
        told = psycopg.ClientCursor(connection).execute(explain, values).fetchall()
    plan = told[0][0][0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 40
