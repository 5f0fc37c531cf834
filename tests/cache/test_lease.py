"""The lease mode as a user meets it: what is kept, what every kind of write takes away, what is refused."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.restore import PostgresRestorer
from metastore.cache.leased import Leased
from metastore.port.members import Announces
from metastore.port.restore import Ending
from tests.cache.kept import LONG, keep, lake, leased
from tests.concurrency.raw import dsn
from tests.servers.postgres import Databases

pytestmark = pytest.mark.one_in(3)

T = "lake.c.s.t"


@pytest.fixture
def two(postgres_url: str) -> Iterator[tuple[ms.Store, ms.Store]]:
    """Give a store that caches under a lease, and one that writes without a cache."""
    lake(postgres_url)
    with ms.open(postgres_url, cache=ms.Cache("lease")) as cached, ms.open(postgres_url) as other:
        yield cached, other


def _queries(store: ms.Store) -> int:
    return store.cache.stats().misses


def test_a_kept_entity_needs_no_database(two: tuple[ms.Store, ms.Store]) -> None:
    cached, _ = two
    keep(cached, lambda: cached.tables.load(T))
    before = _queries(cached)
    table = cached.tables.load(T)
    assert cached.tables.load(T) is table
    assert cached.tables.exists(T)
    assert cached.tables.load_many([T]) == [table]
    assert _queries(cached) == before
    keep(cached, lambda: cached.tables.load(table))
    assert cached.tables.load(table) is cached.tables.load(table)


def _alter(other: ms.Store) -> None:
    other.tables.alter(T, ms.SetComment("new"))


def _in_transaction(other: ms.Store) -> None:
    with other.transaction() as tx:
        tx.tables.alter(T, ms.SetComment("new"))
        tx.tables.create("lake.c.s.beside")


def _exclusive(other: ms.Store) -> None:
    with other.schemas.exclusive("lake.c.s") as tx:
        tx.tables.alter(T, ms.SetComment("new"))


def _replace(other: ms.Store) -> None:
    other.tables.create(T, comment="new", if_exists="replace")


def _combined(other: ms.Store) -> None:
    def change(n: int) -> None:
        other.tables.alter(T, ms.SetProperty(f"k{n}", "v"))

    threads = [threading.Thread(target=change, args=(n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LONG)
    _alter(other)


def _reverted(other: ms.Store) -> None:
    at = other.position()
    _alter(other)
    other.revert(T, to=at)
    _alter(other)


CONTENT: dict[str, Callable[[ms.Store], None]] = {
    "alter": _alter,
    "transaction": _in_transaction,
    "exclusive": _exclusive,
    "replace": _replace,
    "combined": _combined,
    "revert": _reverted,
}


@pytest.mark.parametrize("how", CONTENT)
def test_a_change_is_seen_at_once(two: tuple[ms.Store, ms.Store], how: str) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    CONTENT[how](other)
    assert cached.tables.load(T).comment == "new"
    assert cached.tables.load(T) == other.tables.load(T)


GONE: dict[str, Callable[[ms.Store], object]] = {
    "rename": lambda other: other.tables.rename(T, "w"),
    "rename above": lambda other: other.schemas.rename("lake.c.s", "r"),
    "move": lambda other: other.tables.rename(T, "lake.c.other.t"),
    "drop": lambda other: other.tables.drop(T),
    "cascade": lambda other: other.schemas.drop("lake.c.s", cascade=True),
    "purge": lambda other: other.tables.purge(T),
}


@pytest.mark.parametrize("how", GONE)
def test_what_is_gone_is_gone_at_once(two: tuple[ms.Store, ms.Store], how: str) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    GONE[how](other)
    assert not cached.tables.exists(T)
    with pytest.raises(ms.EntityNotFound):
        cached.tables.load(T)


@pytest.mark.parametrize("what", ["table", "schema"])
def test_a_drop_in_steps_is_seen_at_once(two: tuple[ms.Store, ms.Store], what: str) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    pending = other.tables.begin_drop(T) if what == "table" else other.schemas.begin_drop("lake.c.s")
    assert not cached.tables.exists(T)
    with pytest.raises(ms.DropPending):
        cached.tables.load(T)
    pending.roll_back()
    assert cached.tables.load(T) == other.tables.load(T)


def _restored(other: ms.Store) -> None:
    other.tables.create("lake.c.s.new")
    other.tables.drop("lake.c.s.new")
    other.tables.restore("lake.c.s.new")


COMES: dict[str, Callable[[ms.Store], object]] = {
    "create": lambda other: other.tables.create("lake.c.s.new"),
    "create many": lambda other: other.tables.create_many("lake.c.s", [{"name": "new"}, {"name": "more"}]),
    "rename": lambda other: other.tables.rename("lake.c.s.u", "new"),
    "move": lambda other: other.tables.rename("lake.c.other.u", "lake.c.s.new"),
    "restore": _restored,
}


@pytest.mark.parametrize("how", COMES)
def test_what_comes_is_there_at_once(two: tuple[ms.Store, ms.Store], how: str) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.exists("lake.c.s.new"))
    keep(cached, lambda: cached.tables.names_page("lake.c.s"))
    before = _queries(cached)
    assert not cached.tables.exists("lake.c.s.new")
    assert "new" not in cached.tables.names_page("lake.c.s").items
    assert _queries(cached) == before, "both are kept"
    COMES[how](other)
    assert cached.tables.exists("lake.c.s.new")
    assert "new" in cached.tables.names_page("lake.c.s").items


def test_a_page_shows_the_newest_content(two: tuple[ms.Store, ms.Store]) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.page("lake.c.s", prefix="t"))
    _alter(other)
    assert [table.comment for table in cached.tables.page("lake.c.s", prefix="t").items] == ["new"]


def test_a_page_of_a_token_is_not_kept_where_its_path_leads_nowhere(two: tuple[ms.Store, ms.Store]) -> None:
    """The token says which schema it is, until another one has its path: then the answer is another one."""
    cached, other = two
    token = cached.tables.names_page("lake.c.s", size=1).next_token
    keep(cached, lambda: cached.tables.names_page("lake.c.s", size=1, token=token))
    other.schemas.rename("lake.c.s", "r")
    for _ in range(3):
        assert cached.tables.names_page("lake.c.s", size=1, token=token).items == ("u",)
        keep(cached, lambda: cached.schemas.load("lake.c.r"))
    other.schemas.create("lake.c.s")
    with pytest.raises(ms.InvalidArgument, match="leads elsewhere"):
        cached.tables.names_page("lake.c.s", size=1, token=token)


def test_what_is_kept_is_no_answer_to_an_entity_of_another_database(
    two: tuple[ms.Store, ms.Store], postgres_databases: Databases, postgres_template: str
) -> None:
    cached, other = two
    url = postgres_databases.create_database(template=postgres_template.rpartition("/")[2])
    try:
        lake(url)
        with ms.open(url) as elsewhere:
            table, schema = elsewhere.tables.load(T), elsewhere.schemas.load("lake.c.s")
    finally:
        postgres_databases.drop_database(url)
    mine = other.tables.load(T)
    assert (mine.id, other.schemas.load("lake.c.s").id) == (table.id, schema.id)
    keep(cached, lambda: cached.tables.load(mine))
    keep(cached, lambda: cached.tables.page(other.schemas.load("lake.c.s")))
    with pytest.raises(ms.InvalidArgument, match="another database"):
        cached.tables.load(table)
    with pytest.raises(ms.InvalidArgument, match="another database"):
        cached.tables.page(schema)


def test_its_own_writes_are_seen_at_once(two: tuple[ms.Store, ms.Store]) -> None:
    cached, _ = two
    keep(cached, lambda: cached.tables.load(T))
    for n in range(5):
        cached.tables.alter(T, ms.SetComment(str(n)))
        assert cached.tables.load(T).comment == str(n)


def test_what_is_not_cached_is_not_announced(two: tuple[ms.Store, ms.Store], postgres_url: str) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    before = cached.tables.load(T)
    other.tags.create("lake.pii")
    keep(cached, lambda: cached.tables.load(T))
    kept = cached.tables.load(T)
    other.partitions.create(T, "p", values={"day": "1"})
    with other.leases.acquire("work", ttl=5.0):
        pass
    assert cached.tables.load(T) is kept
    assert kept == before
    other.gc(retention=timedelta(0))


def test_members_are_shown_and_leave(two: tuple[ms.Store, ms.Store]) -> None:
    cached, other = two
    (member,) = other.cache.members()
    assert (member.ttl, member.behind, member.waits) == (10.0, 0, 0.0)
    assert cached.cache.members()[0].id == member.id
    cached.close()
    assert other.cache.members() == ()
    assert not other.cache.evict(member.id)


def test_a_member_that_may_serve_is_not_evicted(two: tuple[ms.Store, ms.Store]) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    (member,) = other.cache.members()
    with pytest.raises(ms.InvalidArgument, match=rf"member {member.id} .* may answer from memory"):
        other.cache.evict(member.id)
    kept = cached.cache.stats().hits
    cached.tables.load(T)
    assert cached.cache.stats().hits == kept + 1


def test_a_member_that_is_silent_for_its_ttl_is_evicted(postgres_url: str) -> None:
    lake(postgres_url)
    with ms.open(postgres_url) as other:
        rows = cast(Announces, other._session.backend).cache_members
        wake = rows.wake()
        rows.join(wake, None, 1, "elsewhere", 1)  # one microsecond: nobody renews it
        wake.close()
        (member,) = other.cache.members()
        assert other.cache.evict(member.id)
        assert other.cache.members() == ()


def test_a_user_neither_sees_nor_evicts_members(two: tuple[ms.Store, ms.Store]) -> None:
    cached, other = two
    cached.users.create(("lake", "ann"))
    ann = cached.as_user("ann")
    assert ann.cache.stats() == cached.cache.stats()
    (member,) = other.cache.members()
    with pytest.raises(ms.PermissionDenied):
        ann.cache.members()
    with pytest.raises(ms.PermissionDenied):
        ann.cache.evict(member.id, force=True)
    assert other.cache.members()[0].id == member.id


@pytest.mark.parametrize("ttl", [0.001, 0.0999])
def test_a_lease_that_could_not_be_renewed_is_refused(ttl: float) -> None:
    with pytest.raises(ms.InvalidArgument, match=r"0\.1 s at least"):
        ms.Cache("lease", ttl=ttl)
    ms.Cache("validate", ttl=ttl)
    assert ms.Cache("lease", ttl=0.1).ttl == 0.1, "this one can be renewed"


def test_an_evicted_member_joins_again(two: tuple[ms.Store, ms.Store]) -> None:
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    (member,) = other.cache.members()
    cast(Leased, cached._session.cache)._member.lease.end()  # it must not serve: that is the operator's promise
    assert other.cache.evict(member.id, force=True)
    _alter(other)
    assert cached.tables.load(T).comment == "new"
    keep(cached, lambda: cached.tables.load(T))
    assert other.cache.members()[0].id != member.id


def test_a_backup_that_is_put_back_is_noticed(postgres_url: str) -> None:
    """A restore puts a member's row back as well: what the member has read since then is nobody's answer any more."""
    lake(postgres_url)
    with leased(postgres_url, ttl=1.0) as cached, psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        keep(cached, lambda: cached.tables.load(T))
        ends = time.monotonic() + LONG
        while raw.execute("SELECT max(renewals) FROM cache_member").fetchall()[0][0] < 2:
            assert time.monotonic() < ends
        with raw.transaction():
            raw.execute("SET LOCAL session_replication_role = replica")  # as pg_restore --disable-triggers
            raw.execute("UPDATE entity SET doc = replace(doc, 'old', 'restored')")
            raw.execute("UPDATE cache_member SET renewals = 1")
        while cached.tables.load(T).comment != "restored":
            assert time.monotonic() < ends
        assert cached.cache.stats().fences >= 1
        keep(cached, lambda: cached.tables.load(T))


def test_a_restore_is_seen_at_once(postgres_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is announced, also the last one, which writes no step of the feed."""
    lake(sqlite_url)
    whole, finish = io.BytesIO(), PostgresRestorer.finish
    with ms.open(sqlite_url) as source:
        source.export_to(whole, history=True)
    whole.seek(0)
    with leased(postgres_url) as cached, ms.open(postgres_url) as other:

        def kept_until_the_end(restorer: PostgresRestorer, token: str, last: int, ending: Ending) -> None:
            keep(cached, lambda: cached.tables.exists(T))
            finish(restorer, token, last, ending)

        monkeypatch.setattr(PostgresRestorer, "finish", kept_until_the_end)
        assert other.import_from(whole).restored
        assert cached.tables.exists(T)


def test_bounds_and_second_chances(postgres_url: str) -> None:
    lake(postgres_url)
    with ms.open(postgres_url) as other:
        other.tables.create_many("lake.c.s", [{"name": f"n{n}"} for n in range(40)])
    with leased(postgres_url, max_entries=20) as cached:
        keep(cached, lambda: cached.tables.load(T))
        for n in range(40):
            cached.tables.load(T)  # in use: it stays
            cached.tables.load(f"lake.c.s.n{n}")
        before = _queries(cached)
        cached.tables.load(T)
        assert _queries(cached) == before
        stats = cached.cache.stats()
        assert stats.entries <= 20
        assert stats.evictions >= 20
        assert cached.metrics().cache == stats


# --- the rule of the schema: what does not announce is refused

OLD = """WITH altered AS (UPDATE entity SET version = version + 1, doc = doc WHERE id = {id} RETURNING *)
INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, time, path_before,
  path_after, changes, scope_version, in_use, doc, parent_id, name, fold, state)
SELECT 99, gen_random_uuid(), 0, nextval('change_seq'), id, version, 'table', 'alter', 0, '{path}', '{path}', '[]',
  1, true, doc, {parent}, 't', false, 0 FROM altered"""


def test_a_program_that_does_not_announce_is_refused_while_there_are_members(
    two: tuple[ms.Store, ms.Store], postgres_url: str
) -> None:
    cached, other = two
    table = other.tables.load(T)
    sql = OLD.format(id=table.id, path=T, parent=table.record.chain[-2].id)
    with psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        with pytest.raises(psycopg.Error) as refused:
            raw.execute(sql.encode())
        assert refused.value.sqlstate == "53M01"
        assert other.tables.load(T).version == table.version
        cached.close()
        raw.execute(sql.encode())
    assert other.tables.load(T).version == table.version + 1


def test_an_announcement_must_cover_what_is_written(two: tuple[ms.Store, ms.Store], postgres_url: str) -> None:
    """Negative control of the rule: an announcement of another entity does not let the change pass."""
    cached, other = two
    keep(cached, lambda: cached.tables.load(T))
    table, beside = other.tables.load(T), other.tables.load("lake.c.s.u")
    sql = OLD.format(id=table.id, path=T, parent=table.record.chain[-2].id)
    announce = """INSERT INTO cache_announcement
      SELECT nextval('entity_id_seq'), pg_current_xact_id()::text::bigint, ARRAY[{}]::bigint[], '{{}}', '{{}}',
        (extract(epoch FROM now()) * 1e6)::bigint RETURNING id, xid"""
    with psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        for entity_id, passes in ((beside.id, False), (table.id, True)):
            ((announcement, xid),) = raw.execute(announce.format(entity_id).encode()).fetchall()
            sent = f"SELECT set_config('metastore.announcement', '{announcement}', true); {sql}"
            seen = "SELECT bool_and(pg_visible_in_snapshot('{}'::xid8, seen::pg_snapshot)) FROM cache_member"
            ends = time.monotonic() + LONG
            while not raw.execute(seen.format(xid).encode()).fetchall()[0][0]:
                assert time.monotonic() < ends
            if passes:
                raw.execute(sent.encode())
            else:
                with pytest.raises(psycopg.Error, match="not announced"):
                    raw.execute(sent.encode())
    assert cached.tables.load(T).version == table.version + 1


def test_no_members_no_announcement(postgres_url: str) -> None:
    lake(postgres_url)
    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        with leased(postgres_url):
            store.tables.alter(T, ms.SetComment("announced"))
        store.tables.alter(T, ms.SetComment("the look that finds nobody"))
        before = raw.execute("SELECT last_value FROM entity_id_seq").fetchall()
        for n in range(3):
            store.tables.alter(T, ms.SetComment(str(n)))
        assert raw.execute("SELECT last_value FROM entity_id_seq").fetchall() == before
        rows = raw.execute("SELECT generation IS NULL FROM operation ORDER BY seq DESC LIMIT 3").fetchall()
        assert rows == [(False,)] * 3
        assert raw.execute("SELECT count(*) FROM cache_announcement").fetchall() == [(0,)]
