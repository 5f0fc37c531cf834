"""An administrator stops every wait for a replica: no call says that it has changed anything.

``pg_cancel_backend`` on a commit that waits for its synchronous replica lets the server apply the commit, and answer
with a warning and a success. Each call here meets that as often as it tries, until its deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.doubt import Doubt
from metastore.cache.leased import Leased
from metastore.operation.intent import help_others
from metastore.store import Store
from tests.cache.kept import keep, leased
from tests.combine.gate import batches_of, full_operations, lanes, together
from tests.concurrency.test_unconfirmed import COMMENT, PATHS, no_replica, server, url, waits
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.setup.pgbouncer import find_pgbouncer

pytestmark = pytest.mark.one_in(3)

__all__ = ["server", "url"]

LONG = 60.0
UNTOLD = (ms.OutcomeUnknown, ms.BackendUnavailable, ms.DeadlineExceeded)
"""The errors of a call that does not know whether it has changed anything."""
WITHOUT_ID = {"break", "consumer", "exclusive", "mirror", "move a consumer", "pin", "transaction", "unpin"}
"""Calls that have no operation id to ask about, or that drew one in vain."""
DEADLINE = 2.0
NEW = "m.c.s.new"


@contextmanager
def stopping(server: PostgresServer) -> Iterator[list[int]]:
    """Stop each wait for a replica; give the list of the stopped processes."""
    over, stopped = threading.Event(), list[int]()

    def stop() -> None:
        with psycopg.connect(server.dsn(), autocommit=True) as own:
            while not over.wait(0.01):
                for pid in waits(server):
                    own.execute("SELECT pg_cancel_backend(%s)", (pid,))
                    stopped.append(pid)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        yield stopped
    finally:
        over.set()
        stopper.join()


@contextmanager
def stopped_waits(server: PostgresServer) -> Iterator[list[int]]:
    """Let commits wait for a replica that is not there, and stop each wait."""
    with no_replica(server), stopping(server) as stopped:
        yield stopped


def in_a_transaction(store: Store) -> object:
    with store.transaction() as tx:
        tx.tables.alter(PATHS[4], COMMENT)
        return tx.tables.create("m.c.s.of_the_transaction")


def exclusively(store: Store) -> object:
    with store.schemas.exclusive("m.c.quiet", timeout=DEADLINE) as tx:
        return tx.tables.create("m.c.quiet.t")


def moved_on(store: Store) -> object:
    """Move a consumer."""
    consumer = store.consumers.get("moving")
    consumer.commit(store.position())
    return consumer


WRITES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.tables.create(NEW),
    "create below a new parent": lambda store: store.tables.create("m.c.fresh.t", parents=True),
    "create_many": lambda store: store.tables.create_many("m.c.s", [{"name": f"many{n}"} for n in range(40)]),
    "alter": lambda store: store.tables.alter(PATHS[0], COMMENT),
    "rename": lambda store: store.tables.rename(PATHS[1], "renamed"),
    "drop": lambda store: store.tables.drop(PATHS[2]),
    "drop all": lambda store: store.schemas.drop("m.c.old", cascade=True),
    "transaction": in_a_transaction,
    "run": lambda store: store.run(lambda tx: tx.tables.alter(PATHS[5], COMMENT)),
    "exclusive": exclusively,
    "tag": lambda store: store.tags.create("m.a_tag"),
    "partition": lambda store: store.partitions.create(PATHS[6], "p", values={"a": "1"}),
    "acquire": lambda store: store.leases.acquire("job", owner="me", ttl=30.0),
    "break": lambda store: store.leases.break_("held"),
    "mirror": lambda store: store.leases.mirror("elsewhere", 7, "me", "now"),
    "pin": lambda store: store.pin("new"),
    "unpin": lambda store: store.unpin("old"),
    "consumer": lambda store: store.consumers.get("new"),
    "move a consumer": moved_on,
    "gc": lambda store: store.gc(retention=timedelta(0)),
}


@pytest.fixture
def prepared(url: str) -> Iterator[str]:
    with ms.open(url) as store:
        store.tables.create("m.c.old.t", parents=True)
        store.schemas.create("m.c.quiet")
        store.tables.drop(store.tables.create("m.c.s.dropped"))
        store.leases.acquire("held", owner="other", ttl=300.0)
        store.pin("old")
        store.consumers.get("moving", start="beginning")
        yield url


def test_nothing_is_said_to_be_written(server: PostgresServer, prepared: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(len(WRITES)) as pool:
        stores = {name: stack.enter_context(ms.open(prepared, deadline=DEADLINE)) for name in WRITES}
        with stopped_waits(server) as stopped:
            called = {name: pool.submit(WRITES[name], stores[name]) for name in WRITES}
            errors = {name: one.exception(LONG) for name, one in called.items()}
        assert len(stopped) > len(WRITES)
    said = {name: error for name, error in errors.items() if not isinstance(error, UNTOLD)}
    assert said == {}
    assert {name for name, error in errors.items() if not isinstance(error, ms.OutcomeUnknown)} <= WITHOUT_ID


def test_nor_by_a_batch(server: PostgresServer, prepared: str) -> None:
    """Of one statement, and of several."""
    with ms.open(prepared, deadline=DEADLINE) as store:
        tables = [store.tables.load(path) for path in PATHS]
        writes = lanes(store)[1]
        calls: dict[str, list[Callable[[], object]]] = {
            "alters": [partial(store.tables.alter, table, COMMENT) for table in tables[:3]],
            "creates": [partial(store.tables.create, f"{NEW}{n}") for n in range(3)],
            "all": [
                partial(store.tables.alter, tables[3], COMMENT),
                partial(store.tables.create, NEW),
                partial(store.tables.rename, tables[4], "renamed"),
            ],
        }
        with stopped_waits(server), batches_of(writes) as sizes:
            errors = {name: together(writes, some) for name, some in calls.items()}
    assert max(sizes) == 3
    assert [type(error) for some in errors.values() for error in some] == [ms.OutcomeUnknown] * 9


@pytest.mark.skipif(find_pgbouncer() is None, reason="needs pgbouncer")
def test_nor_behind_a_pooler(server: PostgresServer, prepared: str) -> None:
    with PgBouncer(server) as pooler, ms.open(pooler.url(prepared.rpartition("/")[2]), deadline=DEADLINE) as store:
        table = store.tables.load(PATHS[0])
        with stopped_waits(server), pytest.raises(ms.OutcomeUnknown):
            store.tables.alter(table, COMMENT)
        assert store.tables.load(PATHS[0]).version == 2


def test_a_lease_is_neither_renewed_nor_released(server: PostgresServer, prepared: str) -> None:
    with ms.open(prepared, deadline=DEADLINE) as store:
        lease = store.leases.acquire("mine", owner="me", ttl=300.0)
        before = lease.expires_at
        with stopped_waits(server):
            with pytest.raises(UNTOLD):
                lease.renew()
            assert lease.expires_at == before
            with pytest.raises(UNTOLD):
                lease.release()


@pytest.mark.parametrize("in_time", [True, False])
def test_what_a_helper_applied_is_confirmed_by_its_owner(server: PostgresServer, prepared: str, in_time: bool) -> None:
    """The helper's commit can be read, although no replica confirmed it. The owner's call has not succeeded yet."""
    announced, helped = threading.Event(), threading.Event()
    with ms.open(prepared, deadline=LONG) as owner, ms.open(prepared) as helper, ThreadPoolExecutor(1) as pool:
        table = owner.tables.load(PATHS[0])
        owner._session.hot.note(table.id, ("table", table.names))
        backend = owner._session.backend
        looks = backend.pending

        def pending(*arguments: Any) -> Any:
            announced.set()
            assert helped.wait(LONG)
            if not in_time:
                raise ms.DeadlineExceeded("the call's time is over")
            return looks(*arguments)

        backend.pending = pending  # type: ignore[assignment, method-assign]
        with full_operations(owner):
            owned = pool.submit(owner.tables.alter, table, ms.SetProperty("a", "owner"))
            assert announced.wait(LONG)
            with no_replica(server):
                with stopping(server):
                    help_others(helper._session, table.id)
                assert helper.tables.load(table).properties == {"a": "owner"}
                helped.set()
                assert wait_until(lambda: bool(waits(server)) or owned.done(), LONG)
                assert not owned.done()
                if not in_time:
                    with pytest.raises(ms.OutcomeUnknown):
                        owned.result(LONG)
        if in_time:
            assert owned.result(LONG).properties == {"a": "owner"}


def test_a_member_whose_renewals_are_not_confirmed_serves_nothing(server: PostgresServer, prepared: str) -> None:
    """Else a fail-over would bring its old row back, and a writer would give it up while it serves."""
    with leased(prepared, ttl=1.0) as store:
        keep(store, lambda: store.tables.load(PATHS[0]))
        member = cast(Leased, store._session.cache)._member
        with stopped_waits(server):
            assert wait_until(lambda: not member.lease.holds(), LONG)
        keep(store, lambda: store.tables.load(PATHS[0]))


def test_a_migration_says_so(server: PostgresServer) -> None:
    url = server.create_database()
    with stopped_waits(server), pytest.raises(ms.BackendUnavailable, match="fail-over"):
        ms.migrate(url)
    ms.migrate(url)
    ms.open(url).close()


def test_so_does_a_restore(server: PostgresServer, prepared: str, tmp_path: Path) -> None:
    url, file = server.create_database(), tmp_path / "export.jsonl"
    ms.migrate(url)
    with ms.open(prepared) as store:
        store.export_to(file, ids=True)
    with stopped_waits(server), pytest.raises(UNTOLD):
        ms.restore(url, file)


@pytest.mark.parametrize(
    ("severity", "source", "heard"),
    [
        ("WARNING", ("SyncRepWaitForLSN", "syncrep.c"), True),
        ("WARNING", (None, "syncrep.c"), True),
        ("WARNING", ("WarnNoTransactionBlock", "xact.c"), False),
        ("WARNING", (None, None), True),
        ("NOTICE", (None, None), False),
        (None, (None, None), True),
    ],
)
def test_the_warning_is_known_by_where_it_was_raised(
    severity: str | None, source: tuple[str | None, str | None], heard: bool
) -> None:
    """Its text is translated. One that hides its source counts: unknown is never wrong."""
    doubt = Doubt(SimpleNamespace(parameter_status=lambda _: b"off"))
    doubt(cast(Any, SimpleNamespace(severity_nonlocalized=severity, source_function=source[0], source_file=source[1])))
    assert doubt.unconfirmed is heard


def test_another_warning_is_no_reason_to_doubt(postgres_url: str) -> None:
    with ms.open(postgres_url) as store, store._session.backend.pool.connection() as connection:  # type: ignore[attr-defined]
        heard = list[str | None]()
        connection.add_notice_handler(lambda notice: heard.append(notice.source_function))
        connection.execute("COMMIT")  # there is no transaction
        assert heard == ["EndTransactionBlock"]
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert not connection.stopped
