"""``store.revert`` with relations and owned rows, in chunks, and what it refuses."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import BackendUnavailable, EntityAlreadyExists, InvalidArgument, MetastoreError
from metastore.kinds.entity import Owned
from metastore.kinds.kind import OwnedKind, to_json
from metastore.kinds.registry import KINDS
from metastore.kinds.statistic import STATISTIC
from metastore.managers.owned import OwnedManager
from metastore.managers.owned_rows import Row
from metastore.past import revert as reverting
from metastore.past.undo import Undoing
from tests.contract import boards
from tests.operation.ground import session_of
from tests.past import test_relations as relations
from tests.past.test_as_of import grown
from tests.past.test_diff import shown
from tests.past.trees import tree

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@pytest.fixture
def lake(store: Store) -> Store:
    """Give the store with a catalog."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    return store


def test_what_moved_into_something_new_moves_back(lake: Store) -> None:
    """The new schema goes only after what moved into it has left."""
    table = lake.tables.create("m.c.s.t", parents=True)
    before = lake.position()
    lake.tables.rename("m.c.s.t", ("m", "c", "s", "u"))
    lake.schemas.create("m.c.new")
    lake.tables.rename("m.c.s.u", "m.c.new.u")
    lake.tables.create("m.c.new.other")
    lake.revert("m.c", to=before)
    assert [(t.path, t.id) for t in lake.tables.list("m.c.s")] == [("m.c.s.t", table.id)]
    assert not lake.schemas.exists("m.c.new")
    assert lake.verify() == []


def test_a_newcomer_that_has_the_name_and_what_was_there(lake: Store) -> None:
    """The schema was renamed, another took its name, and the table moved into that one."""
    table = lake.tables.create("m.c.s.t", parents=True)
    before = lake.position()
    lake.schemas.rename("m.c.s", "x")
    lake.schemas.create("m.c.s")
    lake.tables.rename("m.c.x.t", "m.c.s.t")
    lake.revert("m.c", to=before)
    assert [s.name for s in lake.schemas.list("m.c")] == ["s"]
    assert lake.tables.load("m.c.s.t").id == table.id
    assert lake.verify() == []


def test_what_stands_below_something_that_is_dropped_comes_back_with_it(lake: Store) -> None:
    """The table moved into a schema that was dropped: that schema comes back first, then the table leaves it."""
    table = lake.tables.create("m.c.s.t", parents=True)
    lake.schemas.create("m.c.s.deep")
    before = lake.position()
    lake.tables.rename("m.c.s.t", "m.c.s.deep.t")
    lake.schemas.drop("m.c.s.deep", cascade=True)
    lake.revert("m.c", to=before)
    assert lake.tables.load("m.c.s.t").id == table.id
    assert list(lake.tables.names("m.c.s.deep")) == []
    assert lake.verify() == []


def test_a_disabled_catalog_goes_back(lake: Store) -> None:
    lake.tables.create("m.c.s.t", parents=True)
    before = lake.position()
    lake.tables.alter("m.c.s.t", ms.SetComment("1"))
    lake.catalogs.disable("m.c")
    after = lake.position()
    lake.revert("m", to=before)
    assert lake.catalogs.load("m.c").in_use
    assert lake.tables.load("m.c.s.t").comment is None
    lake.revert("m", to=after)
    assert not lake.catalogs.load("m.c").in_use
    assert lake.tables.load("m.c.s.t").comment == "1"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_relations_go_back(store: Store, seed: int) -> None:
    """Tags with values, on columns and on dropped tables, and owners are what they were, in both directions."""
    found = relations.history(store, 400 + seed, 50)
    choose, tried = random.Random(seed), 0
    for position in choose.sample(sorted(found), 5):
        planned = store.revert("m", to=position, dry_run=True)
        assert store.revert("m", to=position) == planned
        assert ends(relations.shown(store)) == ends(found[position])
        assert list(store.revert("m", to=store.position())) == []
        assert store.verify() == []
        tried += bool(planned)
    assert tried >= 3


def ends(found: dict[tuple[Any, ...], Any]) -> dict[tuple[Any, ...], Any]:
    """Return what relations show without ids of rows and times, which a relation that is made again does not keep."""
    return {key: sorted(map(_end, value)) if isinstance(value, list) else _end(value) for key, value in found.items()}


def _end(one: Any) -> Any:
    if one is None or isinstance(one, str):
        return str(one)
    if isinstance(one, ms.Attached):
        return (one.path, one.value or "", str(one.column), one.target_path, str(one.inherited_from))
    return (one.path, one.id)


def test_grants_and_memberships_go_back(lake: Store) -> None:
    lake.tables.create("m.c.s.t", parents=True)
    role, user, group = lake.roles.create("m.r"), lake.users.create("m.ann"), lake.groups.create("m.g")
    lake.roles.grant(role, "select_table", lake.tables.load("m.c.s.t"))
    lake.roles.assign(role, user)
    before = lake.position()
    lake.roles.revoke(role, "select_table", lake.tables.load("m.c.s.t"))
    lake.roles.grant(role, "modify_table", lake.tables.load("m.c.s.t"))
    lake.roles.unassign(role, user)
    lake.groups.add(group, user)
    assert {(one.kind, one.action) for one in lake.diff(before)} == {
        ("grant", "dropped"),
        ("grant", "created"),
        ("membership", "dropped"),
        ("membership", "created"),
    }
    found = [(one.kind, one.path_before, one.other_path) for one in lake.revert("m.c.s", to=before)]
    assert sorted(found, key=str) == [("grant", "m.c.s.t", "m.r"), ("grant", None, "m.r")]
    assert [grant.privilege for grant in lake.roles.grants(role)] == ["select_table"]
    assert lake.roles.of(user) == []  # what is not below the schema stays
    lake.revert("m", to=before)
    assert [role.name for role in lake.roles.of(user)] == ["r"]
    assert list(lake.groups.members(group)) == []
    assert lake.verify() == []


def test_relations_whose_other_end_was_gone_do_not_come_back(lake: Store) -> None:
    """The owner and the tag were dropped then. Since, the table got another owner, and the tag came back to it."""
    table = lake.tables.create("m.c.s.t", parents=True)
    ann, bob = lake.users.create("m.ann"), lake.users.create("m.bob")
    tag = lake.tags.create("m.tag")
    lake.owners.set(table, ann)
    lake.tags.attach(table, tag)
    lake.users.drop(ann)
    lake.tags.drop(tag)
    then = lake.position()
    lake.owners.set(table, bob)
    lake.users.restore("m.ann")
    lake.tags.restore("m.tag")
    lake.tags.detach(table, tag)
    lake.tags.attach(table, tag)
    assert {(one.kind, one.action) for one in lake.revert("m.c.s", to=then)} == {
        ("owner", "dropped"),
        ("tag_on", "dropped"),
    }
    assert lake.owners.of(table) is None
    assert lake.tags.on(table) == []
    assert lake.revert("m.c.s", to=then) == []


def test_what_a_diff_says_of_relations(lake: Store) -> None:
    lake.tables.create("m.c.s.t", parents=True)
    for tag in ("m.red", "m.blue"):
        lake.tags.create(tag)
    for user in ("m.ann", "m.bob"):
        lake.users.create(user)
    lake.owners.set("m.c.s.t", "m.ann", kind="table")
    lake.tags.attach("m.c.s.t", "m.red", value="1", kind="table")
    before = lake.position()
    lake.owners.set("m.c.s.t", "m.bob", kind="table")
    lake.tags.attach("m.c.s.t", "m.blue", kind="table")
    lake.tags.detach("m.c.s.t", "m.red", kind="table")
    lake.tags.attach("m.c.s.t", "m.red", value="1", kind="table")  # as before: no difference
    lake.tags.attach("m.c.s", "m.blue", kind="schema")
    lake.tags.detach("m.c.s", "m.blue", kind="schema")
    found = [(d.action, d.kind, d.path_before, d.path_after, d.other_path, d.value) for d in lake.diff(before)]
    assert found == [
        ("altered", "owner", "m.c.s.t", "m.c.s.t", "m.bob", None),
        ("created", "tag_on", None, "m.c.s.t", "m.blue", None),
    ]
    (back, _) = lake.diff(lake.position(), before, under="m.c.s.t")
    assert (back.action, back.other_path, back.to_dict()["other_path"]) == ("altered", "m.ann", "m.ann")


def test_owned_rows_go_back(lake: Store) -> None:
    """Statistics of filesets and of partitions, and the versions of a model with their aliases."""
    table = lake.tables.create("m.c.s.t", parents=True, columns=[ms.Column("d", "date")], partitioning=["d"])
    for name in ("d=1", "d=2"):
        lake.partitions.create(table, name, values={"d": name[2:]})
        lake.statistics.set(table, {"custom-a": 1, "custom-b": 2}, partition=name)
    lake.catalogs.create("m.f", type="fileset")
    fileset = lake.filesets.create("m.f.s.files", parents=True)
    lake.statistics.set(fileset, {"custom-size": 1})
    lake.catalogs.create("m.ml", type="model")
    model = lake.models.create("m.ml.s.model", parents=True)
    lake.models.add_version(model, uris={"a": "file:///1"}, aliases=["best"])
    before = lake.position()
    lake.tables.alter(table, ms.AddColumn("ssn", "string"))
    lake.partitions.drop(table, "d=1")
    lake.partitions.create(table, "d=1", values={"d": "1"})  # another partition of this name, without statistics
    lake.statistics.remove(table, ["custom-b"], partition="d=2")
    lake.partitions.create(table, "d=3", values={"d": "3"})
    lake.statistics.set(table, {"custom-a": 3}, partition="d=3")
    lake.statistics.set(fileset, {"custom-size": 2, "custom-new": 1})
    lake.models.add_version(model, uris={"a": "file:///2"}, aliases=["best"])
    lake.models.drop_version(model, 1)
    for path in ("m.c.s", "m.f", "m.ml"):
        assert lake.revert(path, to=before)
        assert lake.revert(path, to=before) == []  # rows that were made again have other ids
    city = lake.tables.alter("m.c.s.t", ms.AddColumn("city", "string")).columns[-1]
    assert (city.name, city.id) == ("city", 3)  # no number of a column is used again, either
    assert list(lake.partitions.names(table)) == ["d=1", "d=2"]
    for name in ("d=1", "d=2"):
        assert lake.statistics.of(table, partition=name) == {"custom-a": 1, "custom-b": 2}
    assert lake.statistics.of(fileset) == {"custom-size": 1}
    assert [(v.number, v.aliases) for v in lake.models.versions(model)] == [(1, ("best",))]
    assert lake.models.load_version(model, "best").number == 1
    assert lake.models.add_version(model, uris={"a": "file:///3"}).number == 3  # no number is used again
    assert lake.verify() == []


@pytest.mark.only_whole(on="sqlite")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_in_chunks_it_comes_to_the_same(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is a commit of a few steps; the tree at the end is the one of then."""
    trees = grown(store, 500 + seed, 60)
    monkeypatch.setattr(reverting, "_ATOMIC", 0)
    monkeypatch.setattr(reverting, "_CHUNK", 3)
    choose, tried = random.Random(seed), 0
    for position in choose.sample(list(trees), 8):
        try:
            store.revert("m.c", to=position, dry_run=True)
        except InvalidArgument:  # something was purged
            continue
        done = store.revert("m.c", to=position)
        assert shown(tree(store)) == shown(trees[position])
        assert store.verify() == []
        assert store.pins() == []
        assert store.revert("m.c", to=position) == []
        tried += len(done) > 3
    assert tried >= 2


def test_chunks_that_failed_are_done_by_the_next_call(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays, and nobody sees half of a chunk."""
    lake.schemas.create("m.c.s")
    lake.tables.create_many("m.c.s", [{"name": f"t{n}"} for n in range(12)])
    before = lake.position()
    then = tree(lake)
    for n in range(12):
        lake.tables.alter(f"m.c.s.t{n}", ms.SetComment("later"))
    monkeypatch.setattr(reverting, "_ATOMIC", 10)
    monkeypatch.setattr(reverting, "_CHUNK", 5)
    run, calls = Undoing.run, list[int]()

    def fails(self: Undoing, steps: Any) -> None:
        run(self, steps)
        calls.append(len(steps))
        if len(calls) == 4:
            raise RuntimeError

    monkeypatch.setattr(Undoing, "run", fails)
    with pytest.raises(RuntimeError):
        lake.revert("m.c.s", to=before)
    left = {t.name for t in lake.tables.list("m.c.s") if t.comment is not None}
    assert 0 < len(left) < 12
    half = lake.position()
    lake.revert("m.c.s", to=before)
    assert {(change.path_after or "")[6:] for change in lake.changes(after=half)} == left  # the others stay as they are
    assert {key: row[2] for key, row in tree(lake).items()} == {key: row[2] for key, row in then.items()}
    assert [t.comment for t in lake.tables.list("m.c.s")] == [None] * 12


def test_a_revert_that_is_done_is_no_error(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away when the pin is to be removed: the pin expires."""
    before = lake.position()
    schema = lake.schemas.create("m.c.s")
    monkeypatch.setattr(reverting, "_ATOMIC", 0)

    def away(*_: Any) -> bool:
        raise BackendUnavailable("the network is down")

    monkeypatch.setattr(type(session_of(lake).backend.readers), "unpin", away)
    lake.revert("m.c", to=before)
    assert not lake.schemas.exists(schema.path)
    assert [pin.expires_at is None for pin in lake.pins()] == [False]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("server", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_more_than_ten_thousand(server: str, request: pytest.FixtureRequest) -> None:
    """12,000 tables were altered, dropped and made."""
    with ms.open(request.getfixturevalue(f"{server}_url"), principal="ada") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.tables.create_many("m.c.s", [{"name": f"t{n}"} for n in range(8_000)])
        before, then = store.position(), list(store.tables.list("m.c.s"))
        for begin in range(0, 8_000, 1000):
            with store.bind(deadline=300).transaction() as tx:
                for n in range(begin, begin + 1000):
                    if n % 2:
                        tx.tables.alter(f"m.c.s.t{n}", ms.SetComment("x"))
                    else:
                        tx.tables.drop(f"m.c.s.t{n}")
        store.tables.create_many("m.c.s", [{"name": f"t{n}"} for n in range(0, 8_000, 2)])
        assert len(store.bind(deadline=300).revert("m.c.s", to=before)) == 12_000
        assert [(t.name, t.id, t.doc) for t in store.tables.list("m.c.s")] == [(t.name, t.id, t.doc) for t in then]
        assert store.verify() == []


def test_what_cannot_come_back_is_listed(lake: Store) -> None:
    """Purged tables, a place and another end that are gone: all of them are named, and nothing is written."""
    for name in ("a", "b", "tagged", "kept"):
        lake.tables.create(f"m.c.s.{name}", parents=True)
    lake.tags.create("m.red")
    lake.tags.attach("m.c.s.tagged", "m.red", kind="table")
    lake.tables.create("m.c.away.t", parents=True)
    before = lake.position()
    lake.tables.alter("m.c.s.kept", ms.SetComment("1"))
    for name in ("a", "b"):
        lake.tables.purge(f"m.c.s.{name}")
    with pytest.raises(InvalidArgument, match=r"what was purged or destroyed cannot come back: m\.c\.s\.a, m\.c\.s\.b"):
        lake.revert("m.c.s", to=before)
    before = lake.position()
    lake.tables.alter("m.c.s.kept", ms.SetComment("2"))
    lake.tables.rename("m.c.away.t", "m.c.s.t")
    lake.schemas.drop("m.c.away")
    lake.tags.detach("m.c.s.tagged", "m.red", kind="table")
    lake.tags.drop("m.red")
    with pytest.raises(InvalidArgument, match=r"do not exist: m\.c\.away\.t, m\.c\.s\.tagged; restore what is"):
        lake.revert("m.c.s", to=before)
    assert lake.tables.load("m.c.s.kept").comment == "2"
    lake.tags.restore("m.red")
    lake.schemas.restore("m.c.away")
    lake.revert("m.c.s", to=before)
    assert lake.tables.load("m.c.s.kept").comment == "1"
    assert lake.tables.exists("m.c.away.t")
    assert [tag.name for tag in lake.tags.on("m.c.s.tagged", kind="table")] == ["red"]


def test_what_moved_into_something_that_is_gone_is_listed(lake: Store) -> None:
    lake.tables.create("m.c.s.t", parents=True)
    before = lake.position()
    lake.schemas.create("m.c.away")
    lake.tables.rename("m.c.s.t", "m.c.away.t")
    lake.schemas.drop("m.c.away", cascade=True)
    with pytest.raises(InvalidArgument, match=r"do not exist: m\.c\.s\.t; restore what is missing first"):
        lake.revert("m.c.s", to=before)
    lake.schemas.restore("m.c.away")
    lake.revert("m.c.s", to=before)
    assert lake.tables.exists("m.c.s.t")


def test_an_old_name_that_a_stranger_has_is_refused(lake: Store) -> None:
    """The table goes back to a schema that is not part of the revert, where another one has its name now."""
    lake.tables.create("m.c.away.t", parents=True)
    lake.schemas.create("m.c.s")
    before = lake.position()
    lake.tables.rename("m.c.away.t", "m.c.s.t")
    lake.tables.create("m.c.away.t")
    lake.tables.create("m.c.s.new")
    with pytest.raises(MetastoreError, match=r"m\.c\.away\.t") as refused:
        lake.revert("m.c.s", to=before)
    assert refused.value.code == "entity_already_exists"
    assert sorted(lake.tables.names("m.c.s")) == ["new", "t"]


def test_jobs_stay(lake: Store) -> None:
    """A job says what ran: going back must not let it run again."""
    before = lake.position()
    job = lake.jobs.create("m.run", template="copy", command={"executable": "true"})
    assert lake.revert("m", to=before) == []
    assert lake.jobs.load("m.run").id == job.id


STAMP = OwnedKind("stamp", Owned)


def stamp(store: Store, owner: Any, kind: OwnedKind) -> None:
    rows: OwnedManager[Any] = OwnedManager(store._session, kind, KINDS[owner.kind])
    rows.put_many(owner, [Row("r", to_json({"comment": None, "properties": {}, "values": {}}))])


@pytest.mark.parametrize("what", ["row", "row of an entity", "entity"])
def test_a_kind_that_this_program_does_not_know(lake: Store, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Neither the dry run nor the call tells something as put back that is not, and nothing is put back in part."""
    table = lake.tables.create("m.c.s.t", parents=True)
    board = lake.manager("board").create("m.c.s.b", owner="ann")
    before = lake.position()
    if what == "entity":
        lake.manager("board").alter(board, boards.SetOwner("bob"))
    else:
        stamp(lake, *((table, STAMP) if what == "row" else (board, STATISTIC)))
    lake.tables.alter(table, ms.SetComment("now"))
    monkeypatch.delitem(KINDS, "board")
    for dry_run in (True, False):
        with pytest.raises(InvalidArgument, match=r"does not know the kind (stamp|board).* m\.c\.s\.(t\.r|b\.r|b);"):
            lake.revert("m.c.s", to=before, dry_run=dry_run)
    assert lake.tables.load("m.c.s.t").comment == "now"


def test_an_unknown_row_goes_with_its_new_owner(lake: Store) -> None:
    lake.schemas.create("m.c.s")
    before = lake.position()
    stamp(lake, lake.tables.create("m.c.s.t"), STAMP)
    lake.revert("m.c.s", to=before)
    assert not lake.tables.exists("m.c.s.t")
    assert lake.revert("m.c.s", to=before) == []


def test_what_was_made_since_and_is_gone_again_is_no_difference(lake: Store) -> None:
    """Neither is a tag of it; what comes back with its parent is dropped."""
    lake.tags.create("m.tag")
    lake.tables.create("m.c.s.deep.t", parents=True)
    before = lake.position()
    for path in ("m.c.s.one", "m.c.s.deep.two"):
        table = lake.tables.create(path)
        lake.statistics.put_many(table, [lake.statistics.row("rows", {"n": 1})])
        lake.tags.attach(path, "m.tag", kind="table")
    lake.tables.drop("m.c.s.one")
    lake.schemas.drop("m.c.s.deep", cascade=True)
    planned = lake.revert("m.c.s", to=before, dry_run=True)
    assert [(one.action, one.kind) for one in planned if one.kind in ("schema", "table")] == [
        ("restored", "schema"),
        ("dropped", "table"),
    ]
    assert not any("m.c.s.one" in str(one.path_before) for one in planned)
    assert lake.revert("m.c.s", to=before) == planned
    assert [t.name for t in lake.tables.list("m.c.s.deep")] == ["t"]
    assert lake.revert("m.c.s", to=before) == []


@pytest.mark.only_whole(on="sqlite")
@pytest.mark.parametrize("many", [0, 300])
def test_it_does_not_starve_beside_a_writer(lake: Store, url: str, many: int) -> None:
    """Another process alters one table all the time, and makes others: what it makes meanwhile comes after the revert.

    With ``many`` differences there are more entities than a transaction takes tickets for.
    """
    lake.schemas.create("m.c.s")
    lake.tables.create_many("m.c.s", [{"name": f"t{n}"} for n in range(8 + many)])
    before = lake.position()
    with lake.transaction() as tx:
        for n in range(8 + many):
            tx.tables.alter(f"m.c.s.t{n}", ms.SetComment("later"))
    lake.tables.create("m.c.s.new")
    other = lake if url == "memory://" else ms.open(url, principal="other")
    rounds, stop, begun = 0, threading.Event(), threading.Event()

    def write() -> None:
        nonlocal rounds
        while not stop.is_set():
            other.tables.alter("m.c.s.t3", ms.SetComment(f"busy {rounds}"))
            other.tables.create(f"m.c.s.late{rounds}")
            rounds += 1
            if rounds == 3:
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(20)
        done = lake.revert("m.c.s", to=before)
    finally:
        stop.set()
        writer.join()
        if other is not lake:
            other.close()
    assert len(done) >= 9 + many
    assert not lake.tables.exists("m.c.s.new")
    assert {lake.tables.load(f"m.c.s.t{n}").comment for n in range(8) if n != 3} == {None}
    assert lake.verify() == []


@pytest.mark.parametrize("why", ["taken", "disabled", "in a drop"])
def test_the_dry_run_refuses_what_the_call_refuses(lake: Store, why: str) -> None:
    lake.tables.create("m.c.s.t", parents=True, columns=[ms.Column("a", "int"), ms.Column("b", "int")])
    lake.tables.create("m.c.other.x", parents=True)
    before = lake.position()
    lake.tables.alter("m.c.s.t", ms.SetComment("later"))
    error: type[MetastoreError] = EntityAlreadyExists
    if why == "taken":  # by one that is not below what is reverted
        lake.tables.rename("m.c.other.x", "m.c.s.x")
        lake.tables.create("m.c.other.x")
    elif why == "disabled":
        lake.catalogs.disable("m.c")
        error = ms.NotInUse
    else:
        lake.tables.begin_drop("m.c.s.t", column="b")
        error = ms.DropPending
    seen, was = lake.position(), shown(tree(lake))
    for dry_run in (True, False):
        with pytest.raises(error):
            lake.revert("m.c.s", to=before, dry_run=dry_run)
    assert (lake.position(), shown(tree(lake))) == (seen, was)


def test_what_was_dropped_then_and_lives_elsewhere_now_stays(lake: Store) -> None:
    """It is not below what is reverted: neither now, nor as something live then."""
    table = lake.tables.create("m.c.s.t", parents=True)
    lake.schemas.create("m.c.other")
    lake.tables.drop(table)
    before = lake.position()
    lake.tables.restore("m.c.s.t", to="m.c.other.t")
    assert lake.revert("m.c.s", to=before) == []
    assert lake.tables.load("m.c.other.t").id == table.id


def test_what_was_made_below_something_that_left_goes_when_it_comes_back(lake: Store) -> None:
    """Also what was moved there from elsewhere returns to where it was."""
    lake.schemas.create("m.c.s")
    lake.catalogs.create("m.d", type="relational")
    moved = lake.tables.create("m.d.other.moved", parents=True)
    before, was = lake.position(), shown(tree(lake))
    lake.tables.create("m.c.s.made")
    lake.schemas.rename("m.c.s", "m.d.away")
    lake.tables.rename(moved, "m.d.away.moved")
    lake.tables.create("m.d.away.later")
    lake.revert("m.c", to=before)
    assert shown(tree(lake)) == was
    assert lake.tables.load(moved.path).id == moved.id
    assert lake.revert("m.c", to=before) == []
    assert lake.verify() == []


def test_an_owner_that_stays_behind_in_another_metalake_is_listed_once(lake: Store) -> None:
    """The relation does not exist between two metalakes, so a second revert has nothing to remove."""
    table = lake.tables.create("m.c.s.t", parents=True)
    lake.metalakes.create("n")
    lake.catalogs.create("n.c", type="relational")
    lake.schemas.create("n.c.s")
    ann = lake.users.create("n.ann")
    before = lake.position()
    lake.tables.rename(table, "n.c.s.t")
    lake.owners.set(table, ann)
    plan = [(one.action, one.kind) for one in lake.revert("m.c.s", to=before)]
    assert plan == [("moved", "table"), ("dropped", "owner")]
    assert lake.revert("m.c.s", to=before) == []
