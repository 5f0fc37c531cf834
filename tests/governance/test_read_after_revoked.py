"""A right is taken away, and something is written, between two statements of a read: it does not show what was written.

Each read is run again and again, and each time others go first before another one of its questions to the database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

import metastore as ms
from metastore import Store
from metastore.governance.evidence import Memory
from metastore.governance.passed import PASSED, REFUSED
from metastore.governance.seen import Seen
from metastore.managers.pages.page import Page
from metastore.port.backend import Backend
from tests.contract.authorized import Lake, prepare

ANN, BOB = ("lake", "ann@corp"), ("lake", "bob@corp")
T, SCHEMA = "lake.sales.eu.orders", "lake.sales.eu"


class Between:
    """A backend that calls ``action`` before its n-th question, once."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.asked = 0
        self.action: Callable[[], object] | None = None
        self.at = -1

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._backend, name)
        if self.action is None or not callable(value):
            return value
        if self.asked == self.at:
            action, self.action = self.action, None
            action()
        self.asked += 1
        return value

    def let_go_first(self, at: int, action: Callable[[], object]) -> None:
        """Call ``action`` before the question number ``at``."""
        self.asked, self.at, self.action = 0, at, action


class World:
    """The lake, in which ann owns the sales catalog by a group, and reads it; what others do is marked."""

    def __init__(self, store: Store) -> None:
        self.lake: Lake = prepare(store)
        self.store, self.marks = store, 0
        self.lake.reader(to="bob@corp")
        self.group = store.groups.create("lake.owners")
        store.owners.set(self.lake.sales, self.group)
        store.owners.set(store.tags.create("lake.tag"), self.group)
        store.models.create("lake.sales.eu.m")
        store.metalakes.create("other")
        store.groups.add(self.group, store.users.load(ANN))
        store.users.create(("other", "ann@corp"))
        self.write()

    @property
    def mark(self) -> str:
        """What was written last."""
        return f"mark{self.marks}"

    def write(self) -> None:
        """Write something new everywhere."""
        self.marks += 1
        store, mark = self.store, self.mark
        store.tables.alter(T, ms.SetComment(mark), ms.SetProperty("key", f"secret:env:KEY_{mark}"))
        store.schemas.alter(SCHEMA, ms.SetComment(mark))
        store.metalakes.alter("other", ms.SetComment(mark))
        store.partitions.put_many(T, [store.partitions.row("p", {}, {mark: "1"})])
        store.statistics.set(T, {f"custom-{mark}": 1})
        store.statistics.set(T, {f"custom-{mark}": 1}, partition="p")
        store.tables.create(f"{SCHEMA}.{mark}")
        store.tags.attach(T, "lake.tag", value=mark)
        store.models.add_version("lake.sales.eu.m", uris={mark: "s3://b/m"}, aliases=["newest"])
        catalog = store.catalogs.load("lake.sales")
        store.sources.put_many(catalog, [store.sources.row("s", table=1, location=mark)])
        store.statistics.put_many(T, [store.statistics.row("figures", {mark: 1})])

    def leave(self) -> None:
        """Take all rights from ann, then write."""
        self.store.groups.remove(self.group, ANN)
        self.store.users.drop(("other", "ann@corp"))
        self.write()

    def give_away(self) -> None:
        """Give the catalog to bob, then write."""
        self.store.owners.set(self.lake.sales, self.store.users.load(BOB))
        self.store.users.drop(("other", "ann@corp"))
        self.write()

    def back(self) -> None:
        """Give the rights back."""
        self.store.owners.set(self.lake.sales, self.group)
        if not list(self.store.groups.members(self.group)):
            self.store.groups.add(self.group, ANN)
        if not self.store.users.exists(("other", "ann@corp")):
            self.store.users.create(("other", "ann@corp"))


def _told(found: Any) -> str:
    """Return all that a result tells."""
    if isinstance(found, Page):
        found = found.items
    if isinstance(found, list | tuple) and not hasattr(found, "_fields"):
        return " ".join(map(_told, found))
    return repr(getattr(found, "record", found))


def _exported(ann: Store) -> bytes:
    file = BytesIO()
    ann.export_to(file, T)
    return file.getvalue()


READS: dict[str, Callable[[Store, World], Any]] = {
    "load": lambda ann, _: ann.tables.load(T),
    "load in hand": lambda ann, w: ann.tables.load(w.lake.orders),
    "load_many": lambda ann, _: ann.tables.load_many([T]),
    "list": lambda ann, _: list(ann.tables.list(SCHEMA)),
    "list schemas": lambda ann, _: list(ann.schemas.list("lake.sales")),
    "list metalakes": lambda ann, _: list(ann.metalakes.list()),
    "names": lambda ann, _: list(ann.tables.names(SCHEMA)),
    "page": lambda ann, _: ann.tables.page(SCHEMA),
    "names_page": lambda ann, _: ann.tables.names_page(SCHEMA),
    "history": lambda ann, _: [(v.entity, v.principal) for v in ann.tables.history(T)],
    "find": lambda ann, _: list(ann.find(name="orders")),
    "find all": lambda ann, _: list(ann.find("lake.sales")),
    "changes": lambda ann, _: [(c.entity, c.path_after) for c in ann.changes()],
    "changes_page": lambda ann, _: [(c.entity, c.path_after) for c in ann.changes_page(size=500).items],
    "partitions": lambda ann, _: list(ann.partitions.list(T)),
    "partitions in hand": lambda ann, w: list(ann.partitions.list(w.lake.orders)),
    "a page of partitions": lambda ann, _: ann.partitions.page(T),
    "a partition": lambda ann, _: ann.partitions.load(T, "p"),
    "statistics": lambda ann, _: ann.statistics.of(T),
    "statistics of partitions": lambda ann, _: ann.statistics.of_partitions(T, ["p"]),
    "tags": lambda ann, _: ann.tags.on(T),
    "version": lambda ann, _: ann.models.load_version("lake.sales.eu.m", "newest"),
    "versions": lambda ann, _: list(ann.models.versions("lake.sales.eu.m")),
    "versions_page": lambda ann, _: ann.models.versions_page("lake.sales.eu.m"),
    "source": lambda ann, w: ann.sources.load(w.lake.sales, "s"),
    "sources": lambda ann, w: ann.sources.load_many(cast(ms.Catalog, w.lake.sales), ["s"]),
    "figures": lambda ann, w: ann.sources.figures([w.lake.orders.id], "figures"),
    "tables of sources": lambda ann, w: ann.sources.tables([w.lake.orders.id]),
    "reveal": lambda ann, _: ann.reveal(T, "key"),
    "export": lambda ann, _: _exported(ann),
    "transaction": lambda ann, w: ann.run(lambda tx: [list(tx.partitions.list(T)), tx.tables.load(T)]),
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Give the world, and the secrets to which its property will refer."""
    for n in range(200):
        monkeypatch.setenv(f"KEY_mark{n}", f"mark{n}")
    with ms.open("memory://") as store:
        yield World(store)


def _others_go_first(world: World, read: str, loss: Callable[[], None], back: Callable[[], None], cold: bool) -> None:
    """Let ``loss`` come before each question of a read in turn; the control is the read to which it does not come."""
    store, session = world.store, world.store._session
    between = session.backend = Between(session.backend)
    at = 0
    while True:
        if cold:
            session.rights = Memory()
        ann = store.as_user("ann@corp")
        before = world.mark
        between.let_go_first(at, loss)
        try:
            shown = _told(READS[read](ann, world))
        except (ms.EntityNotFound, ms.PermissionDenied, ms.VersionConflict) as error:
            shown = str(error)  # it may name what was asked for
        if between.action is not None:
            break
        assert before != world.mark
        assert not re.search(rf"{world.mark}\b", shown), (at, shown)
        back()
        at += 1
    between.action = None
    assert at > 0
    assert before in shown  # with the right, it shows what was written last


@pytest.mark.each_value
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(("read", "sees"), [*[(read, False) for read in READS], ("reveal", True), ("export", True)])
@pytest.mark.parametrize("loss", [World.leave, World.give_away])
def test_nothing_written_after_the_revocation_is_shown(
    world: World, read: str, sees: bool, loss: Callable[[World], None], cold: bool
) -> None:
    """``sees``: ann may read the table all the time; then she loses only what she may do as its owner."""
    if sees:
        world.lake.reader()
    _others_go_first(world, read, lambda: loss(world), world.back, cold)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    "read", ["list", "page", "names", "names_page", "load in hand", "find all", "partitions in hand"]
)
def test_nothing_written_after_a_denial_on_a_child_is_shown(world: World, read: str, cold: bool) -> None:
    store, orders = world.store, world.lake.orders
    store.groups.remove(world.group, ANN)
    role = world.lake.reader()

    def hide() -> None:
        store.roles.grant(role, "select_table", orders, effect="deny")
        world.marks += 1
        store.tables.alter(orders, ms.SetComment(world.mark))
        store.partitions.put_many(orders, [store.partitions.row("p", {}, {world.mark: "1"})])
        store.tables.rename(orders, world.mark)

    def show() -> None:
        store.roles.revoke(role, "select_table", orders)

    hide()
    show()
    _others_go_first(world, read, hide, show, cold)


def test_each_method_of_the_port_is_read_for_a_user_passed_on_or_refused() -> None:
    methods = {name for cls in Backend.__mro__ for name in vars(cls) if not name.startswith("_")}
    read = {name for name in vars(Seen) if not name.startswith("_")}
    assert read | PASSED | REFUSED == methods
    assert [read & PASSED, read & REFUSED, PASSED & REFUSED] == [set(), set(), set()]


def test_what_is_refused_is_told_as_such(world: World) -> None:
    session = world.store.as_user("ann@corp")._session
    for name in REFUSED:
        with pytest.raises(ms.PermissionDenied):
            getattr(session.backend, name)
    assert session.access is not None
    reads = Seen(cast(Backend, SimpleNamespace(something_new=1, ping=2)), session.access)
    assert reads.ping == 2
    with pytest.raises(AttributeError):
        reads.something_new  # noqa: B018
