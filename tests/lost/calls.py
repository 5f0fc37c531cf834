"""Each call that writes, on a metalake of its own: every public method that writes has a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import metastore as ms

__all__ = ["CALLS", "OTHERS", "READS", "Writes"]

Make = Callable[[ms.Store, str], Any]
Act = Callable[..., Any]
_COMMENT: Final = ms.SetComment("w")


@dataclass(frozen=True)
class Writes:
    """A call that writes below the metalake ``lake``: its functions get the store, the lake's name and what was made.

    ``act`` takes an operation id too, if it is a call that takes one.
    """

    act: Act
    made: Make
    """Prepare the lake by another connection."""
    held: Act | None = None
    """Get, by the connection that will be lost, what the call is made on: a lease, a consumer, a drop."""
    by: str | None = None
    """The principal of the call, if it has another one than its store."""
    in_parts: bool = False
    """It is several operations: after an error a part of them may be there."""
    may_be_done: bool = False
    """After an error it may be done, as its docs say: a repeat comes to the same."""
    meets_itself: bool = False
    """A repeat with the operation's id meets what the first one made, as its docs say."""


def _lake(store: ms.Store, lake: str) -> ms.Table:
    store.metalakes.create(lake)
    store.catalogs.create(f"{lake}.c", type="relational")
    columns = [ms.Column("id", "long"), ms.Column("email", "string")]
    return store.tables.create(f"{lake}.c.s.t", parents=True, columns=columns)


def _empty(store: ms.Store, lake: str) -> None:
    store.metalakes.create(lake)
    store.catalogs.create(f"{lake}.c", type="relational")
    store.schemas.create(f"{lake}.c.s")


def _dropped(store: ms.Store, lake: str) -> ms.Table:
    table = _lake(store, lake)
    store.tables.drop(table)
    return table


def _rows(store: ms.Store, lake: str) -> ms.Table:
    table = _lake(store, lake)
    store.partitions.create(table, "p1", values={"d": "1"})
    store.statistics.set(table, {"custom-rows": 5})
    return table


def _people(store: ms.Store, lake: str) -> ms.Table:
    table = _lake(store, lake)
    store.users.create((lake, "ann"))
    store.groups.create(f"{lake}.g")
    store.roles.create(f"{lake}.r")
    store.tags.create(f"{lake}.t")
    store.policies.create(f"{lake}.p", content={"a": "b"})
    return table


def _related(store: ms.Store, lake: str) -> ms.Table:
    table, group = _people(store, lake), f"{lake}.g"
    store.tags.attach(table, f"{lake}.t")
    store.policies.attach(table, f"{lake}.p")
    store.owners.set(table, store.groups.load(group))
    store.roles.grant(f"{lake}.r", "select_table", table)
    store.roles.assign(f"{lake}.r", store.groups.load(group))
    store.groups.add(group, (lake, "ann"))
    return table


def _model(store: ms.Store, lake: str) -> ms.Model:
    _empty(store, lake)
    model = store.models.create(f"{lake}.c.s.m")
    store.models.add_version(model, uris={"a": "s3://x"}, aliases=["al"])
    return model


def _user(store: ms.Store, lake: str) -> ms.Table:
    table = _people(store, lake)
    for privilege in ("use_catalog", "use_schema", "select_table", "modify_table", "create_table"):
        store.roles.grant(f"{lake}.r", privilege, lake, kind="metalake")
    store.roles.assign(f"{lake}.r", store.users.load((lake, "ann")))
    return table


def _job(store: ms.Store, lake: str) -> ms.Job:
    _lake(store, lake)
    store.job_templates.create(f"{lake}.jt", type="shell", executable="x")
    return store.jobs.create(f"{lake}.j", template="jt")


def _changed(store: ms.Store, lake: str) -> str:
    _lake(store, lake)
    before = store.position()
    store.tables.alter(f"{lake}.c.s.t", ms.SetComment("later"))
    store.tables.create(f"{lake}.c.s.new")
    return before


def _read(store: ms.Store, lake: str) -> str:
    store.consumers.get(lake)
    _lake(store, lake)
    return store.position()


def _transaction(store: ms.Store, lake: str, made: Any, *, operation_id: Any = None) -> ms.Table:
    with store.transaction(operation_id=operation_id) as tx:
        table = tx.tables.alter(f"{lake}.c.s.t", _COMMENT)
        tx.tables.create(f"{lake}.c.s.n1")
        tx.tables.create(f"{lake}.c.s.n2")
    return table


def _exclusive(store: ms.Store, lake: str, made: Any) -> ms.Table:
    with store.schemas.exclusive(f"{lake}.c.s", ttl=3.0) as tx:
        table = tx.tables.alter(f"{lake}.c.s.t", _COMMENT)
        tx.tables.create(f"{lake}.c.s.n1")
    return table


def _replaced(tx: ms.Transaction, lake: str) -> ms.Table:
    tx.tables.rename(tx.tables.load(f"{lake}.c.s.t"), "old")
    return tx.tables.create(f"{lake}.c.s.t")


def _leased(store: ms.Store, lake: str, made: Any) -> ms.Lease:
    return store.leases.acquire(lake, ttl=60.0)


def _staged(store: ms.Store, lake: str, made: Any) -> ms.Lease:
    lease = _leased(store, lake, made)
    lease.stage(made, "k", "v")
    return lease


def _consumer(store: ms.Store, lake: str, made: Any) -> ms.Consumer:
    return store.consumers.get(lake)


def _drop_of(store: ms.Store, lake: str, made: Any) -> ms.PendingDrop:
    return store.tables.begin_drop(made, ttl=600.0)


def _drop_at_work(store: ms.Store, lake: str, made: Any) -> ms.PendingDrop:
    drop = _drop_of(store, lake, made)
    drop.started()
    return drop


CALLS: Final[dict[str, Writes]] = {
    "tables.create": Writes(lambda s, n, _, **k: s.tables.create(f"{n}.c.s.n", **k), _empty),
    "tables.create, with parents": Writes(
        lambda s, n, _, **k: s.tables.create(f"{n}.c.q.r.n", parents=True, **k), _empty, in_parts=True
    ),
    "tables.create, or return": Writes(
        lambda s, n, _, **k: s.tables.create(f"{n}.c.s.n", if_exists="return", **k), _empty
    ),
    "tables.create, or replace": Writes(
        lambda s, n, _, **k: s.tables.create(f"{n}.c.s.t", if_exists="replace", comment="r", **k), _lake
    ),
    "tables.create_many": Writes(
        lambda s, n, _, **k: s.tables.create_many(f"{n}.c.s", [{"name": f"n{i}"} for i in range(5)], **k), _empty
    ),
    "tables.alter": Writes(lambda s, n, _, **k: s.tables.alter(f"{n}.c.s.t", _COMMENT, **k), _lake),
    "tables.alter, in hand": Writes(lambda s, n, t, **k: s.tables.alter(t, _COMMENT, **k), _lake),
    "tables.alter, pinned": Writes(lambda s, n, t, **k: s.tables.alter(t, _COMMENT, expected_version=1, **k), _lake),
    "tables.alter, with a lease": Writes(
        lambda s, n, t, *, held, **k: s.tables.alter(f"{n}.c.s.t", _COMMENT, lease=held, **k), _lake, _leased
    ),
    "tables.rename": Writes(lambda s, n, _, **k: s.tables.rename(f"{n}.c.s.t", "t2", **k), _lake),
    "tables.drop": Writes(lambda s, n, _, **k: s.tables.drop(f"{n}.c.s.t", **k), _lake),
    "schemas.drop, with all below": Writes(lambda s, n, _, **k: s.schemas.drop(f"{n}.c.s", cascade=True, **k), _lake),
    "schemas.rename": Writes(lambda s, n, _, **k: s.schemas.rename(f"{n}.c.s", "s2", **k), _lake),
    "tables.restore": Writes(lambda s, n, _, **k: s.tables.restore(f"{n}.c.s.t", **k), _dropped),
    "tables.purge": Writes(lambda s, n, _, **k: s.tables.purge(f"{n}.c.s.t", **k), _rows),
    "tables.purge, of a dropped one": Writes(lambda s, n, t, **k: s.tables.purge(t, **k), _dropped),
    "catalogs.disable": Writes(lambda s, n, _, **k: s.catalogs.disable(f"{n}.c", **k), _lake),
    "catalogs.enable": Writes(
        lambda s, n, _, **k: s.catalogs.enable(f"{n}.c", **k), lambda s, n: (_lake(s, n), s.catalogs.disable(f"{n}.c"))
    ),
    "policies.disable": Writes(lambda s, n, _, **k: s.policies.disable(f"{n}.p", **k), _people),
    "metalakes.create": Writes(lambda s, n, _, **k: s.metalakes.create(n, **k), lambda s, n: None),
    "catalogs.create": Writes(
        lambda s, n, _, **k: s.catalogs.create(f"{n}.k", type="model", **k), lambda s, n: s.metalakes.create(n)
    ),
    "models.create": Writes(lambda s, n, _, **k: s.models.create(f"{n}.c.s.m", **k), _empty),
    "models.add_version": Writes(lambda s, n, m, **k: s.models.add_version(m, uris={"a": "s3://y"}, **k), _model),
    "models.alter_version": Writes(lambda s, n, m, **k: s.models.alter_version(m, 1, _COMMENT, **k), _model),
    "models.drop_version": Writes(lambda s, n, m, **k: s.models.drop_version(m, 1, **k), _model),
    "models.set_alias": Writes(lambda s, n, m, **k: s.models.set_alias(m, "b", 1, **k), _model),
    "models.drop_alias": Writes(lambda s, n, m, **k: s.models.drop_alias(m, "al", **k), _model),
    "partitions.create": Writes(lambda s, n, t, **k: s.partitions.create(t, "p", values={"d": "1"}, **k), _lake),
    "partitions.drop": Writes(lambda s, n, t, **k: s.partitions.drop(t, "p1", **k), _rows),
    "partitions.put_many": Writes(
        lambda s, n, t: s.partitions.put_many(t, [s.partitions.row("p2", {"d": "2"}, {})], drop=["p1"]), _rows
    ),
    "statistics.set": Writes(lambda s, n, t, **k: s.statistics.set(t, {"custom-x": 6}, **k), _rows),
    "statistics.remove": Writes(lambda s, n, t, **k: s.statistics.remove(t, ["custom-rows"], **k), _rows),
    "users.create": Writes(lambda s, n, _, **k: s.users.create((n, "bob"), **k), _lake),
    "groups.add": Writes(lambda s, n, _, **k: s.groups.add(f"{n}.g", (n, "ann"), **k), _people),
    "groups.remove": Writes(lambda s, n, _, **k: s.groups.remove(f"{n}.g", (n, "ann"), **k), _related),
    "roles.grant": Writes(lambda s, n, t, **k: s.roles.grant(f"{n}.r", "select_table", t, **k), _people),
    "roles.revoke": Writes(lambda s, n, t, **k: s.roles.revoke(f"{n}.r", "select_table", t, **k), _related),
    "roles.assign": Writes(
        lambda s, n, _, **k: s.roles.assign(s.roles.load(f"{n}.r"), s.users.load((n, "ann")), **k), _people
    ),
    "roles.unassign": Writes(
        lambda s, n, _, **k: s.roles.unassign(s.roles.load(f"{n}.r"), s.groups.load(f"{n}.g"), **k), _related
    ),
    "owners.set": Writes(lambda s, n, t, **k: s.owners.set(t, s.groups.load(f"{n}.g"), **k), _people),
    "owners.set, another": Writes(lambda s, n, t, **k: s.owners.set(t, s.users.load((n, "ann")), **k), _related),
    "owners.remove": Writes(lambda s, n, t, **k: s.owners.remove(t, s.groups.load(f"{n}.g"), **k), _related),
    "tags.attach": Writes(lambda s, n, t, **k: s.tags.attach(t, f"{n}.t", **k), _people),
    "tags.attach_many": Writes(
        lambda s, n, _, **k: s.tags.attach_many(f"{n}.t", [{"target": f"{n}.c.s.t", "kind": "table"}], **k), _people
    ),
    "tags.detach": Writes(lambda s, n, t, **k: s.tags.detach(t, f"{n}.t", **k), _related),
    "policies.detach": Writes(lambda s, n, t, **k: s.policies.detach(t, f"{n}.p", **k), _related),
    "jobs.create": Writes(lambda s, n, _, **k: s.jobs.create(f"{n}.j2", template="jt", **k), _job),
    "jobs.cancel": Writes(lambda s, n, j, **k: s.jobs.cancel(j, **k), _job),
    "a user's tables.alter": Writes(
        lambda s, n, _, **k: s.as_user((n, "ann")).tables.alter(f"{n}.c.s.t", _COMMENT, **k), _user, by="ann"
    ),
    "a user's tables.create": Writes(
        lambda s, n, _, **k: s.as_user((n, "ann")).tables.create(f"{n}.c.s.mine", **k), _user, by="ann"
    ),
    "store.transaction": Writes(_transaction, _lake, meets_itself=True),
    "store.run": Writes(lambda s, n, _: s.run(lambda tx: _replaced(tx, n)), _lake),
    "store.run, with a lease": Writes(
        lambda s, n, _, *, held: s.run(lambda tx: _replaced(tx, n), lease=held), _lake, _leased
    ),
    "schemas.exclusive": Writes(_exclusive, _lake),
    "store.revert": Writes(lambda s, n, to: len(s.revert(f"{n}.c.s", to=to)), _changed),
    "tables.begin_drop": Writes(lambda s, n, t, **k: s.tables.begin_drop(t, **k).phase, _lake),
    "tables.begin_drop, of a column": Writes(
        lambda s, n, t, **k: s.tables.begin_drop(t, column="email", **k).phase, _lake
    ),
    "partitions.begin_drop": Writes(lambda s, n, t, **k: s.partitions.begin_drop(t, "p1", **k).phase, _rows),
    "a drop's started": Writes(lambda s, n, t, *, held: held.started(), _lake, _drop_of),
    "a drop's finish": Writes(lambda s, n, t, *, held: held.finish(), _rows, _drop_at_work),
    "a drop's roll_back": Writes(lambda s, n, t, *, held: held.roll_back(), _lake, _drop_of),
    "leases.acquire": Writes(lambda s, n, _: s.leases.acquire(n, ttl=60.0).token > 0, lambda s, n: None),
    "leases.acquire_many": Writes(
        lambda s, n, _: len(s.leases.acquire_many([n, f"{n}b"], ttl=60.0).names), lambda s, n: None
    ),
    "leases.break_": Writes(
        lambda s, n, _: s.leases.break_(n), lambda s, n: s.leases.acquire(n, ttl=60.0, owner="another")
    ),
    "lease.renew": Writes(lambda s, n, _, *, held: held.renew(), lambda s, n: None, _leased, may_be_done=True),
    "lease.release": Writes(lambda s, n, _, *, held: held.release(), lambda s, n: None, _leased),
    "leases.mirror": Writes(lambda s, n, _: s.leases.mirror(n, 7, "owner", "i") is not None, lambda s, n: None),
    "lease.stage": Writes(lambda s, n, t, *, held: held.stage(t, "k", "v"), _lake, _leased, may_be_done=True),
    "lease.publish": Writes(lambda s, n, t, *, held: len(held.publish(_COMMENT)), _lake, _staged),
    "store.pin": Writes(lambda s, n, _: s.pin(n).name, lambda s, n: None),
    "store.unpin": Writes(lambda s, n, _: s.unpin(n), lambda s, n: s.pin(n)),
    "consumers.get": Writes(lambda s, n, _: s.consumers.get(n).name, lambda s, n: None, may_be_done=True),
    "consumers.drop": Writes(lambda s, n, _: s.consumers.drop(n), lambda s, n: s.consumers.get(n)),
    "consumer.commit": Writes(lambda s, n, to, *, held: held.commit(to), _read, _consumer),
    "consumer.reset": Writes(lambda s, n, to, *, held: held.reset(to), _read, _consumer),
    "consumer.run": Writes(lambda s, n, _, *, held: held.run(lambda tx, _: None, limit=4) > 0, _read, _consumer),
    "consumer.run, with writes": Writes(
        lambda s, n, _, *, held: held.run(lambda tx, _: tx.tables.alter(f"{n}.c.s.t", _COMMENT), limit=4) > 0,
        _read,
        _consumer,
    ),
}

_READS: Final = """
allowed as_user at audit bind bound changes changes_page check close closed diff dropped dropped_page end event
exists export_to figures find find_page grants history history_page holder is_over join keep lag list load load_many
load_version losses manager members metrics names names_page newest noted noted_for now of of_partitions of_user on
on_columns outcome owned_by page pending ping pins position read refused relations replica reveal row rows
seconds_left stats tables tables_and_drops targets tokens verify versions versions_page watch below groups
enter_line leave_scope
"""
READS: Final = frozenset(_READS.split())
"""The names of methods that write nothing."""
OTHERS: Final = {
    "evict": "it changes the memory of a cache only",
    "backup": "SQLite only",
    "gc": "it takes away what a second run would take away too",
    "import_from": "tests/transfer: an import that was stopped is repeated",
    "register": "tests/crawl: a crawl that was stopped is repeated",
    "resume": "it is a drop's finish, for each drop that was abandoned",
    "rotate": "tests/secrets: a rotation that was stopped is repeated",
    "scrub": "it takes away what a second run would take away too",
}
"""Methods that write and have no line, and why."""
