"""Roles with no more rights than docs/operations.md gives them: each does its work, and no more."""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import metastore as ms
from metastore.clock import Clock
from metastore.port.format import SCHEMA_FORMAT
from metastore.secrets.declared import PATTERNS
from metastore.secrets.keyring import VARIABLE, new_key
from metastore.serve.safety import Finding, findings
from tests.servers.postgres import PostgresServer, database_of
from tests.verify.planting import build

pytestmark = pytest.mark.one_in(3)

DOCS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
TABLES = (
    "guard",
    "entity",
    "owned",
    "relation",
    "operation",
    "lease",
    "lease_waiter",
    "staged",
    "ticket",
    "info",
    "alembic_version",
)
PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


class Roles(NamedTuple):
    """A database, and its URL for each role."""

    owner: str
    migrator: str
    writer: str
    reader: str
    suffix: str

    def admin(self, *statements: str) -> None:
        with psycopg.connect(dsn(self.owner), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


def dsn(url: str) -> str:
    return url.replace("postgresql+psycopg", "postgresql")


def documented(suffix: str) -> list[str]:
    """Return the statements of docs/operations.md, for roles that no other test has."""
    blocks = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) == 2
    return [re.sub(r"metastore_(migrator|writer|reader)", rf"\g<0>_{suffix}", block) for block in blocks]


@pytest.fixture
def roles(postgres_server: PostgresServer) -> Iterator[Roles]:
    """Give a database that was made as the documentation says, on a server of our own (any role may connect)."""
    suffix, owner = secrets.token_hex(4), postgres_server.create_database()
    names = [f"metastore_{role}_{suffix}" for role in ("migrator", "writer", "reader")]
    urls = [owner.replace(f"{postgres_server.user}@", f"{name}@") for name in names]
    first, second = documented(suffix)
    found = Roles(owner, urls[0], urls[1], urls[2], suffix)
    found.admin(first)
    ms.migrate(found.migrator)
    with psycopg.connect(dsn(found.migrator)) as connection:
        connection.execute(second)
    yield found
    postgres_server.drop_database(owner)
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP ROLE {name}")


def write(url: str) -> None:
    """Do all that a writer does."""
    build(url)
    with ms.open(url, principal="writer", deadline=10) as store:
        lease = store.leases.acquire("job", owner="me")
        store.tables.alter("lake.c.s.a", ms.SetComment("fenced"), lease=lease)
        lease.stage(store.tables.load("lake.c.s.a"), "location", "s3://bucket/a")
        with pytest.raises(ms.LeaseHeld):
            store.leases.acquire("job", owner="another", timeout=0.2)
        lease.release()
        store.leases.break_("job")
        with store.transaction() as tx:
            tx.tables.alter("lake.c.s.a", ms.SetComment("one of two"))
            tx.tables.create("lake.c.s.two")
        with store.schemas.exclusive("lake.c.s") as tx:
            tx.tables.create("lake.c.s.three")
        store.tables.create("lake.c.s.once", operation_id=ms.new_operation_id())
        store.tables.create_many("lake.c.s", [{"name": "m1"}, {"name": "m2"}])
        for user in ("ann", "bob"):
            store.users.create(("lake", user))
            store.owners.set("lake.c", ("lake", user))
        store.owners.remove("lake.c", "lake.bob")
        store.owners.set("lake.c", "lake.ann")
        store.metalakes.drop("lake", cascade=True)
        store.gc(retention=timedelta(0), clean_up=lambda _: None)
        assert store.verify() == []


def read(url: str) -> None:
    """Do all that a reader does."""
    with ms.open(url) as store:
        assert store.tables.load("lake.c.s.a").comment == "two"
        assert store.tables.load_many(["lake.c.s.a", "lake.c.s.nowhere"])[1] is None
        assert list(store.tables.names("lake.c.s")) == ["a", "d"]
        assert list(store.tables.history("lake.c.s.a"))
        changes = list(store.changes())
        assert list(store.changes(after=changes[-2].position)) == changes[-1:]
        assert store.outcome(changes[0].operation_id).state == "committed"
        assert store.stats().undecided_positions == 0
        assert store.verify() == []
        assert store.export_to(io.BytesIO(), history=True).position
        store.ping()


def test_the_migrator_migrates_again_and_restores(roles: Roles, tmp_path: Path) -> None:
    ms.migrate(roles.migrator)
    with ms.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.metalakes.create("lake")
        other.export_to(tmp_path / "all.jsonl", history=True)
    ms.restore(roles.migrator, tmp_path / "all.jsonl")
    with ms.open(roles.reader) as store:
        assert list(store.metalakes.names()) == ["lake"]


def test_the_writer_writes(roles: Roles) -> None:
    write(roles.writer)


def test_the_reader_reads(roles: Roles) -> None:
    build(roles.writer)
    read(roles.reader)


def test_the_reader_does_not_write(roles: Roles) -> None:
    build(roles.writer)
    with ms.open(roles.reader, deadline=20) as store:
        calls: tuple[Callable[[], object], ...] = (
            lambda: store.metalakes.create("other"),
            lambda: store.tables.alter("lake.c.s.a", ms.SetComment("x")),
            lambda: store.tables.rename("lake.c.s.a", "z"),
            lambda: store.tables.drop("lake.c.s.a"),
            lambda: store.run(lambda tx: tx.metalakes.create("other")),
            lambda: store.leases.acquire("job", owner="me"),
            store.gc,
            lambda: store.metalakes.create("other", operation_id=ms.new_operation_id()),
            lambda: store.tables.create_many("lake.c.s", [{"name": "m1"}]),
        )
        for call in calls:
            with pytest.raises(ms.BackendRefused, match="permission denied"):
                call()
    with ms.open(roles.owner) as store:
        assert store.verify() == []
        assert store.tables.load("lake.c.s.a").version == 3


def test_only_the_writer_has_the_keys_of_secrets(roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(roles.writer, principal="writer") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", properties={PATTERNS: "*.token", "a.token": "s3cr3t"})
        store.secrets.rotate(reencrypt=True)
        assert store.reveal("lake.c", "a.token") == "s3cr3t"
    with ms.open(roles.reader) as store:
        assert store.catalogs.load("lake.c").properties["a.token"].startswith("sealed:")
        with pytest.raises(ms.BackendRefused, match="permission denied"):
            store.reveal("lake.c", "a.token")


def test_nobody_but_the_migrator_migrates(postgres_server: PostgresServer, roles: Roles) -> None:
    empty = postgres_server.create_database()
    roles._replace(owner=empty).admin("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    for url in (roles.writer, roles.reader):
        with pytest.raises(ms.BackendRefused, match="permission denied"):
            ms.migrate(url.replace(database_of(roles.owner), database_of(empty)))
    postgres_server.drop_database(empty)


def test_no_role_has_more(roles: Roles) -> None:
    """As the catalog says: what is granted is what the documentation grants."""
    tables = [*TABLES, "pin", "consumer", "cache_member", "cache_announcement", "secret_key"]
    data = set(tables) - {"info", "alembic_version"}
    expected = {
        "writer": {(t, p) for t in data for p in ("SELECT", "INSERT", "UPDATE", "DELETE")}
        - {("lease", "DELETE"), ("secret_key", "DELETE")}
        | {("info", "SELECT"), ("info", "UPDATE")},
        "reader": {(t, "SELECT") for t in data - {"secret_key"}} | {("info", "SELECT")},
    }
    with psycopg.connect(dsn(roles.owner)) as connection:
        for role, wanted in expected.items():
            name = f"metastore_{role}_{roles.suffix}"
            rows = connection.execute(
                "SELECT t, p FROM unnest(%s::text[]) t, unnest(%s::text[]) p WHERE has_table_privilege(%s, t, p)",
                (tables, list(PRIVILEGES), name),
            ).fetchall()
            assert set(rows) == wanted
            ((creates, sets, draws),) = connection.execute(
                """SELECT has_schema_privilege(%s, 'public', 'CREATE'),
                  has_sequence_privilege(%s, 'change_seq', 'UPDATE'),
                  has_sequence_privilege(%s, 'change_seq', 'USAGE')""",
                (name, name, name),
            ).fetchall()
            assert (creates, sets, draws) == (False, False, role == "writer")


def test_the_writer_needs_each_of_its_rights(roles: Roles) -> None:
    """One is taken away at a time: something fails then, and is refused."""
    name = f"metastore_writer_{roles.suffix}"
    rights = [(t, p) for t in TABLES[:8] for p in PRIVILEGES[:4] if (t, p) != ("lease", "DELETE")]
    rights += [("info", "SELECT"), ("info", "UPDATE")]
    needless, refusals = [], list[str]()
    for table, right in rights:
        roles.admin(f"REVOKE {right} ON {table} FROM {name}")
        try:
            write(roles.writer)
            needless.append((table, right))
        except ms.BackendRefused as error:
            refusals.append(str(error))
        finally:
            roles.admin(
                f"GRANT {right} ON {table} TO {name}",
                "TRUNCATE guard, entity, owned, relation, operation, lease, lease_waiter, staged, ticket",
                "INSERT INTO guard VALUES (0, -1, 'root', 'root', '', '', false, 0, true, 1)",
                "UPDATE info SET writer = 99, collected_seq = 0, forgotten = 0",
            )
    assert needless == []
    assert all("permission denied" in refusal for refusal in refusals)


def test_a_role_that_may_not_use_the_schema(roles: Roles) -> None:
    """It sees no table at all; that is not a reason to tell it to migrate."""
    roles.admin(f"REVOKE USAGE ON SCHEMA public FROM metastore_reader_{roles.suffix}, PUBLIC")
    with pytest.raises(ms.BackendRefused, match="GRANT USAGE ON SCHEMA public TO metastore_reader"):
        ms.open(roles.reader)


def epoch(url: str) -> str:
    with ms.open(url) as store:
        return next(store.changes()).position.rpartition("-")[0]


def test_roles_with_different_rights_keep_the_epoch(roles: Roles) -> None:
    """The cluster's number is kept from the writer, and known to the others, in whichever order they come."""
    build(roles.migrator)
    first = epoch(roles.owner)
    with psycopg.connect(dsn(roles.owner)) as connection:
        ((noted,),) = connection.execute("SELECT origin FROM info").fetchall()
    roles.admin(
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        f"GRANT EXECUTE ON FUNCTION pg_control_system() TO metastore_migrator_{roles.suffix}",
    )
    order = (roles.writer, roles.reader, roles.migrator, roles.reader, roles.writer, roles.owner, roles.writer)
    assert {epoch(url) for url in order} == {first}
    with psycopg.connect(dsn(roles.owner)) as connection:
        assert connection.execute("SELECT origin FROM info").fetchall() == [(noted,)]


def test_a_number_that_was_unknown_is_completed(roles: Roles) -> None:
    roles.admin("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    build(roles.writer)
    first = epoch(roles.writer)
    with psycopg.connect(dsn(roles.owner)) as connection:
        assert connection.execute("SELECT origin LIKE '?/%' FROM info").fetchall() == [(True,)]
        assert epoch(roles.reader) == epoch(roles.owner) == epoch(roles.writer) == first
        assert connection.execute("SELECT origin LIKE '?/%' FROM info").fetchall() == [(False,)]


def test_a_reader_of_a_copy_writes_nothing_and_refuses_old_positions(
    postgres_server: PostgresServer, roles: Roles
) -> None:
    build(roles.writer)
    old = epoch(roles.writer)
    copy = postgres_server.create_database(template=database_of(roles.owner))
    here = database_of(roles.owner), database_of(copy)
    reader, writer = roles.reader.replace(*here), roles.writer.replace(*here)
    with psycopg.connect(dsn(copy), autocommit=True) as connection:
        before = connection.execute("SELECT *, xmin::text FROM info").fetchall()
        derived = epoch(reader)
        assert derived == epoch(reader) != old
        assert connection.execute("SELECT *, xmin::text FROM info").fetchall() == before
        new = epoch(writer)
        assert new not in (old, derived)
        assert epoch(reader) == epoch(writer) == new
    postgres_server.drop_database(copy)


def checked(url: str) -> dict[str, Finding]:
    """Return what ``metastore serve --check`` finds in a database, for a server that only this machine reaches."""
    return {one.check: one for one in findings(url, host="127.0.0.1")}


def test_a_check_before_serving_tells_the_writer_from_other_roles(roles: Roles) -> None:
    unsafe = {name: one.found.partition(":")[0] for name, one in checked(roles.writer).items() if not one.safe}
    assert unsafe == {"durability": "fsync=off, full_page_writes=off"}  # as the servers of tests are
    lacking = checked(roles.reader)["role"].found
    lacks = {name: set(rights.split(", ")) for rights, name in re.findall(r"lacks ([A-Z, ]+) on (\w+)", lacking)}
    assert lacks["entity"] == {"INSERT", "UPDATE", "DELETE"}
    assert (lacks["info"], lacks["change_seq"]) == ({"UPDATE"}, {"USAGE"})
    assert "owns the tables" in checked(roles.migrator)["role"].found
    assert "is a superuser" in checked(roles.owner)["role"].found
    assert [checked(url)["role"].safe for url in (roles.reader, roles.migrator, roles.owner)] == [False] * 3
    writer = f"metastore_writer_{roles.suffix}"
    roles.admin(f"GRANT CREATE ON SCHEMA public TO {writer}", f"GRANT TRUNCATE ON entity TO {writer}")
    assert checked(roles.writer)["role"].found.startswith(
        f"{writer} may create tables in their schema; may truncate entity"
    )
    roles.admin(f"REVOKE CREATE ON SCHEMA public FROM {writer}", f"REVOKE TRUNCATE, DELETE ON entity FROM {writer}")
    assert checked(roles.writer)["role"].found.startswith(f"{writer} lacks DELETE on entity;")
    roles.admin(f"REVOKE ALL ON info FROM {writer}")  # the grants of a new table were forgotten
    unread = checked(roles.writer)
    assert "may not read them" in unread["format"].found
    assert "lacks SELECT, UPDATE on info" in unread["role"].found
    roles.admin("REVOKE ALL ON SCHEMA public FROM PUBLIC", f"REVOKE USAGE ON SCHEMA public FROM {writer}")
    assert checked(roles.writer)["role"].found.startswith(f"{writer} lacks USAGE on the schema public;")


def test_a_check_before_serving_finds_a_cache_of_sequences_an_old_format_and_a_clock(roles: Roles) -> None:
    roles.admin("ALTER SEQUENCE change_seq CACHE 10", f"UPDATE info SET format = {SCHEMA_FORMAT - 1}")
    found = checked(roles.writer)
    assert not found["sequences"].safe
    assert found["sequences"].found.startswith("change_seq: ")
    assert not found["format"].safe
    assert f"{SCHEMA_FORMAT - 1} is older" in found["format"].found
    roles.admin(f"UPDATE info SET format = {SCHEMA_FORMAT}, compatible_from = {SCHEMA_FORMAT + 1}")
    assert "too old for it" in checked(roles.writer)["format"].found
    ahead = Ahead()
    clocks = list(findings(roles.writer, host="::1", clock=ahead))
    assert [one.found for one in clocks if one.check == "clocks" and not one.safe]


class Ahead(Clock):
    """A clock that is a minute ahead."""

    def micros(self) -> int:
        return super().micros() + 60_000_000
