"""All that a process remembers, by its name in docs/operations.md: how it comes to remember it, and what holds then.

A memory is a function of a :class:`Place`. It makes a store remember, and returns a check: what the store says and
does is what the database says. The check is made in a forked child, in its parent, after a close with another store,
and after a fail-over.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import metastore as ms
from metastore.bridge.bridge import Bridge
from metastore.clock import SYSTEM, new_operation_id
from metastore.crawl.write.catalog import _open, open_catalog

__all__ = ["MEMORIES", "Check", "Memory", "Place", "Where"]

Where = Literal["child", "parent", "closed", "failed over"]
Check = Callable[[ms.Store, Where], None]
_THREADS: Final = 6
_ONCE: Final = 3
"""After so many executions a statement is prepared."""
_LONG: Final = 30.0


@dataclass
class Place:
    """A database, a store on it, another one, which remembers nothing of it, and a table for the memory alone."""

    url: str
    store: ms.Store
    other: ms.Store
    table: str
    folder: Path

    @property
    def schema(self) -> str:
        """The path of a schema for the memory alone; it is not there."""
        return f"lake.cat.of_{self.table.rpartition('.')[2]}"

    def change(self, store: ms.Store, _: object = None) -> ms.Table:
        """Change the table."""
        return store.tables.alter(self.table, ms.SetProperty("k", str(new_operation_id())))

    def at_once(self, store: ms.Store, work: Callable[[int], Any]) -> None:
        """Let threads work at once."""
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(work, range(_THREADS)))


def changed(place: Place) -> Check:
    """The store writes, and shows what another one writes."""
    for _ in range(_ONCE):
        place.change(place.store)
        place.store.tables.load(place.table)

    def check(store: ms.Store, where: Where) -> None:
        before = place.change(place.other).version
        assert store.tables.load(place.table).version == before
        assert place.change(store).version == before + 1

    return check


def together(place: Place) -> Check:
    """Threads write at once; one of them loses nothing that another wrote."""
    place.at_once(place.store, partial(place.change, place.store))

    def check(store: ms.Store, where: Where) -> None:
        before = place.other.tables.load(place.table).version
        place.at_once(store, partial(place.change, store))
        assert place.other.tables.load(place.table).version == before + _THREADS

    return check


def feed(place: Place) -> Check:
    """A position that the store gave is one of the feed; what came later is behind it."""
    after = list(place.store.changes())[-1].position

    def check(store: ms.Store, where: Where) -> None:
        version = place.change(place.other).version
        assert list(store.changes(after=after))[-1].version == version
        followed = list(store.changes(after=after, follow=True, timeout=0.05))
        assert followed[-1].version == version

    return check


def entity_in_hand(place: Place) -> Check:
    """An entity of this database is trusted."""
    table = place.change(place.store)

    def check(store: ms.Store, where: Where) -> None:
        assert store.tables.load(table).id == table.id
        assert store.tables.alter(table, ms.SetComment(where)).comment == where

    return check


def beside_members(place: Place) -> Check:
    """A writer knows the members, and announces. Each check has a member of its own."""
    with ms.open(place.url, cache=ms.Cache("lease", ttl=5.0)) as member:
        member.tables.load(place.table)
        place.change(place.store)

    def check(store: ms.Store, where: Where) -> None:
        with ms.open(place.url, cache=ms.Cache("lease", ttl=5.0)) as member:
            for _ in range(_ONCE):
                member.tables.load(place.table)
                assert member.tables.load(place.table).version <= place.change(store).version
            assert member.tables.load(place.table).version == place.other.tables.load(place.table).version

    return check


def reader(place: Place) -> Check:
    """What is kept is true, whoever has changed it."""
    place.store.tables.load(place.table)
    place.store.tables.load(place.table)

    def check(store: ms.Store, where: Where) -> None:
        for _ in range(_ONCE):
            version = place.change(place.other).version
            assert [store.tables.load(place.table).version for _ in range(_ONCE)] == [version] * _ONCE

    return check


def _users(place: Place) -> tuple[str, str, str]:
    """Make a user who owns a schema, and a role; return their names, and the schema's path."""
    user, schema = place.table.rpartition(".")[2], place.schema
    role = f"lake.role_{user}"
    place.other.users.create(("lake", user))
    place.other.roles.create(role)
    place.other.roles.assign(role, ("lake", user))
    place.other.schemas.create(schema)
    place.other.owners.set(place.other.schemas.load(schema), f"lake.{user}")
    place.other.roles.grant(role, "use_catalog", place.other.catalogs.load("lake.cat"))
    place.other.roles.grant(role, "use_schema", place.other.schemas.load(schema))
    return user, role, schema


def ids(place: Place) -> Check:
    """Nobody else gets what is reserved for what a user creates."""
    user, _, schema = _users(place)
    place.store.as_user(user).tables.create(f"{schema}.first")
    drawn = _next_ids(place.store)

    def check(store: ms.Store, where: Where) -> None:
        # only the parent goes on with its block: a server that took over may give the same ids to others
        assert where == "parent" or all(a > b + 1 for a, b in zip(_next_ids(store), drawn, strict=True))
        for n in range(_ONCE):
            store.as_user(user).tables.create(f"{schema}.{where.replace(' ', '_')}{n}")

    return check


def _next_ids(store: ms.Store) -> list[int]:
    """Draw an id for a user's new entity, and one for an entity with encrypted properties."""
    session = store._session
    assert session.rights is not None
    assert session.seals is not None
    return [session.rights.reserved.next(session.backend), session.seals.sealer.next_id()]


def data_keys(place: Place) -> Check:
    """Each process can read what another one encrypted."""
    place.store.catalogs.create(
        catalog := f"lake.of_{place.table.rpartition('.')[2]}",
        type="relational",
        properties={"metastore.secret-properties": "password"},
    )

    def encrypt(store: ms.Store, where: str) -> None:
        secret = str(new_operation_id())
        store.schemas.create(f"{catalog}.s", properties={"password": secret}, if_exists="replace")
        assert place.other.reveal(f"{catalog}.s", "password") == secret, where

    encrypt(place.store, "before")
    return encrypt


def rights(place: Place) -> Check:
    """A right that was taken away is gone."""
    user, role, schema = _users(place)
    table = place.other.tables.create(f"{schema}.t")
    place.other.users.create("lake.nobody")
    place.other.owners.set(place.other.schemas.load(schema), "lake.nobody")
    place.other.roles.grant(role, "select_table", table)
    place.store.as_user(user).tables.load(table.path)

    def check(store: ms.Store, where: Where) -> None:
        place.other.roles.revoke(role, "select_table", table)
        try:
            store.as_user(user).tables.load(table.path)
        except ms.EntityNotFound:
            pass
        else:
            raise AssertionError("it was read without a right")
        place.other.roles.grant(role, "select_table", table)
        assert store.as_user(user).tables.load(table.path).id == table.id

    return check


def paths(place: Place) -> Check:
    """A path leads to what is there now, for a read and for a write, though its name was handed on."""
    schema = place.schema
    place.other.tables.create(f"{schema}.t", parents=True)
    place.change(place.store)
    place.store.tables.alter(f"{schema}.t", ms.SetProperty("k", "v"))

    def check(store: ms.Store, where: Where) -> None:
        store.tables.load(f"{schema}.t")
        place.other.schemas.rename(schema, f"old_{new_operation_id()}")
        new = place.other.tables.create(f"{schema}.t", parents=True)
        assert store.tables.load(f"{schema}.t").id == new.id
        assert store.tables.alter(f"{schema}.t", ms.SetComment(where)).id == new.id

    return check


def block(place: Place) -> Check:
    """A block that is left behind ends nothing of others; tests/concurrency/test_forked_blocks.py leaves blocks."""
    transaction = place.store.transaction()
    transaction.__enter__().tables.alter(place.table, ms.SetComment("never sent"))

    def check(store: ms.Store, where: Where) -> None:
        with store.transaction() as own:
            own.tables.alter(place.table, ms.SetComment(where))
        assert place.other.tables.load(place.table).comment == where

    return check


def notices(place: Place) -> Check:
    """A waiter hears that it is next. A child, and a store that failed over, listens by itself first."""
    _listens(place.store)

    def check(store: ms.Store, where: Where) -> None:
        backend, waking = store._session.backend, _listens(store)
        ids = [place.other.tables.load(place.table).id]
        first, second = (backend.queue(ids, 5.0) for _ in range(2))
        assert place.other._session.backend.leave(ids, first)
        waking.wait(second, 60.0, 60.0, SYSTEM)
        assert backend.leave(ids, second)

    return check


def _listens(store: ms.Store) -> Any:
    waking: Any = store._session.backend.notices
    waking._rests = 0.0  # after a failure it would not try for a while
    while waking._ear is None:
        waking.wait(1, 0.001, 0.001, SYSTEM)
    return waking


def turns(place: Place) -> Check:
    """Functions that run beside each other come to an end, each once."""

    def count(store: ms.Store, _: int) -> None:
        def work(tx: ms.Transaction) -> None:
            before = int(tx.tables.load(place.table).properties.get("count", "0"))
            tx.tables.alter(place.table, ms.SetProperty("count", str(before + 1)))

        store.run(work)

    place.at_once(place.store, partial(count, place.store))

    def check(store: ms.Store, where: Where) -> None:
        before = int(place.other.tables.load(place.table).properties["count"])
        place.at_once(store, partial(count, store))
        assert int(place.other.tables.load(place.table).properties["count"]) == before + _THREADS

    return check


def lease(place: Place) -> Check:
    """It is held by the process that acquired it, until that closes its store."""
    name = place.table.rpartition(".")[2]
    held = place.store.leases.acquire(name, ttl=60.0, renew_every=5.0)

    def check(store: ms.Store, where: Where) -> None:
        assert held.is_over() is (where in ("child", "closed"))
        if where == "closed":
            store.leases.acquire(name).release()
            return
        try:
            place.other.leases.acquire(name)
        except ms.LeaseHeld:
            return
        raise AssertionError("another one got it")

    return check


def bucket(place: Place) -> Check:
    """Leases in a folder: a forked child acquires its own."""
    leases = ms.ObjectStoreLeases(place.folder)
    leases.acquire("first").release()

    def check(store: ms.Store, where: Where) -> None:
        with leases.acquire(where.replace(" ", "-"), ttl=30.0) as held:
            held.check()

    return check


def tasks(place: Place) -> Check:
    """Another process, and another loop, have threads of their own."""

    async def opened() -> Any:
        store = await ms.open_async(place.url)
        await store.tables.load(place.table)
        return store

    store = asyncio.run(opened())

    def check(_: ms.Store, where: Where) -> None:
        async def load() -> int:
            version: int = (await store.tables.load(place.table)).version
            return version

        assert asyncio.run(load()) == place.other.tables.load(place.table).version

    return check


def figures(place: Place) -> Check:
    """They count the process's own calls."""
    for _ in range(_ONCE):
        place.change(place.store)

    def check(store: ms.Store, where: Where) -> None:
        before = store.counters["commits"]
        assert (before == 0) is (where in ("child", "closed"))
        place.change(store)
        assert store.counters["commits"] == before + 1

    return check


def random_bytes(place: Place) -> Check:
    """No two processes draw the same ids."""
    file = place.folder / "ids"
    file.write_text(f"{new_operation_id()}\n")

    def check(store: ms.Store, where: Where) -> None:
        drawn = [*file.read_text().split(), *[str(new_operation_id()) for _ in range(300)]]
        assert len({*drawn}) == len(drawn)
        assert len({one[-20:] for one in drawn}) == len(drawn), "the random part is drawn twice"
        file.write_text("\n".join(drawn))

    return check


class _Slowly(Loader, MetaPathFinder):
    """Finds one module, whose import goes on until it is told to end."""

    name = "metastore.imported_by_a_thread"

    def __init__(self) -> None:
        self.began, self.goes_on = threading.Event(), threading.Event()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        self.began.set()
        assert self.goes_on.wait(_LONG)


def imports(place: Place) -> Check:
    """A child can import what a thread of its parent was importing: both call ``bind`` for the first time, say."""
    slowly = _Slowly()
    sys.meta_path.insert(0, slowly)
    threading.Thread(target=import_module, args=(slowly.name,)).start()
    assert slowly.began.wait(_LONG)
    threading.Timer(0.2, slowly.goes_on.set).start()  # the fork waits for it

    def check(store: ms.Store, where: Where) -> None:
        signal.alarm(5 if where == "child" else 0)
        assert import_module(slowly.name) is sys.modules[slowly.name]

    return check


def bridge_locks(place: Place) -> Check:
    """A thread of the parent holds a lock until the end."""
    locks, held, done = Bridge(), threading.Event(), threading.Event()

    def hold() -> None:
        with locks.tree_lock("a.b", "write"):
            held.set()
            done.wait(_LONG)

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(_LONG)

    def check(store: ms.Store, where: Where) -> None:
        lent = ExitStack()
        try:
            lent.enter_context(locks.tree_lock("a.b", "write", timeout=0.1))
        except ms.DeadlineExceeded:
            assert where != "child"
        else:
            assert where == "child"
            lent.close()
        if where in ("closed", "failed over"):  # the last check
            done.set()

    return check


def crawl(place: Place) -> Check:
    """Each process has its own."""
    name = place.table
    first = open_catalog(place.url, None, name)

    def check(store: ms.Store, where: Where) -> None:
        own = open_catalog(place.url, None, name)
        assert (own is first) is (where != "child")
        assert own.store.tables.load(place.table).version == place.other.tables.load(place.table).version
        if where in ("closed", "failed over"):  # the last check
            own.close()
            _open.clear()

    return check


@dataclass(frozen=True)
class Memory:
    """One row of the list. ``cache``: what the store is opened with; ``on``: the backends that remember it."""

    remember: Callable[[Place], Check]
    cache: ms.Cache | None = None
    on: tuple[str, ...] = ("sqlite", "postgres")


_PG: Final = ("postgres",)
MEMORIES: Final = {
    "connections, and what the server prepared for them": Memory(changed),
    "positions that are decided": Memory(feed, on=_PG),
    "which database it is": Memory(entity_in_hand),
    "group commit's queue": Memory(together, on=("sqlite",)),
    "the lane of calls that travel together, and where a batch met intents": Memory(together, on=_PG),
    "the members' generation and their silence, announcements": Memory(beside_members, on=_PG),
    "what a lease cache keeps": Memory(reader, ms.Cache("lease", ttl=5.0), _PG),
    "what a validating cache keeps": Memory(reader, ms.Cache("validate", ttl=5.0)),
    "ids that are reserved for what users create, and for new entities with encrypted properties": Memory(ids),
    "data keys of encrypted properties": Memory(data_keys),
    "rights of users (guess)": Memory(rights),
    "where paths led, which entities are hot, seals (guesses)": Memory(paths),
    "the block that a thread is in: a transaction, a freeze, a function's runs, a revert's pin, an export": Memory(
        block
    ),
    "who travels together, and how the last chain left its entity": Memory(turns, on=_PG),
    "whose turn it is": Memory(turns),
    "who of this process waits for a notice": Memory(notices, on=_PG),
    "leases that are held": Memory(lease),
    "the client of a bucket": Memory(bucket, on=("sqlite",)),
    "threads of an async store": Memory(tasks, on=_PG),
    "figures": Memory(figures),
    "who follows the feed": Memory(feed),
    "modules that are being imported": Memory(imports, on=("sqlite",)),
    "random bytes for operation ids": Memory(random_bytes, on=("sqlite",)),
    "the locks of a bridge": Memory(bridge_locks, on=("sqlite",)),
    "the store of a crawl's task": Memory(crawl),
}
