"""Leases: names, owners, times, tokens, and what is given as a lease or staged under one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.kind import MAX_DOC
from tests.bad_input.conftest import TABLE
from tests.bad_input.refusal import refused, unchanged
from tests.bad_input.test_names import BAD_NAMES
from tests.contract.ground import interrupted
from tests.leases.kinds_of_work import NOTHING_TO_WRITE, WORK, S, Work, furnish

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NO_TIMES: dict[str, Any] = {
    "-1": -1,
    "-0.001": -0.001,
    "True": True,
    "False": False,
    "not a number": float("nan"),
    "for ever": float("inf"),
    "minus for ever": float("-inf"),
    "1e300": 1e300,
    "of 5,000 digits": 10**5000,
    "a string": "30",
    "bytes": b"30",
    "a timedelta": timedelta(seconds=30),
    "a list": [30],
}


def shown_as(value: object) -> str:
    """Return what a test is called by; the same in every process."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize("value", [*NO_TIMES.values(), 0, 0.0, None], ids=[*NO_TIMES, "0", "0.0", "None"])
def test_ttls(kept: ms.Store, value: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.leases.acquire("x", ttl=value), "a ttl")
    refused(ms.InvalidArgument, lambda: kept.leases.acquire_many(["x", "y"], ttl=value), "a ttl")


@pytest.mark.parametrize("value", [*NO_TIMES.values(), None], ids=[*NO_TIMES, "None"])
def test_timeouts(kept: ms.Store, value: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.leases.acquire("x", timeout=value), "a timeout")
    refused(ms.InvalidArgument, lambda: kept.leases.acquire_many(["x", "y"], timeout=value), "a timeout")


@pytest.mark.parametrize("value", [*NO_TIMES.values(), 0, 10, 10.0, 30, 31], ids=[*NO_TIMES, "0", *"abcd"])
def test_renewals(kept: ms.Store, value: Any) -> None:
    """A third of the ttl is too seldom: the second of two lost renewals would be the end."""
    refused(ms.InvalidArgument, lambda: kept.leases.acquire("x", ttl=30, renew_every=value), "renew_every")
    refused(ms.InvalidArgument, lambda: kept.leases.acquire_many(["x"], ttl=30, renew_every=value), "renew_every")


def test_a_renewal_just_in_time_is_fine(ground: ms.Store) -> None:
    with ground.leases.acquire("x", ttl=30, renew_every=9.999) as lease:
        assert lease.token == 1


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_names_and_owners(kept: ms.Store, name: Any) -> None:
    leases = kept.leases
    for call in (
        lambda: leases.acquire(name),
        lambda: leases.acquire_many(["good", name]),
        lambda: leases.holder(name),
        lambda: leases.break_(name),
        lambda: leases.audit(name),
        lambda: leases.join(name, 1),
        lambda: leases.mirror(name, 1, "owner", "incarnation"),
    ):
        refused(ms.InvalidArgument, call, "a lease needs a name")
    if name is not None:
        refused(ms.InvalidArgument, lambda: leases.acquire("x", owner=name), "an owner needs a name")
        refused(ms.InvalidArgument, lambda: leases.acquire_many(["x"], owner=name), "an owner needs a name")
        refused(ms.InvalidArgument, lambda: leases.mirror("x", 1, name, "incarnation"), "an owner needs a name")


def test_names_that_are_allowed(ground: ms.Store) -> None:
    """They are one lease in each of their forms, and are shown as they are."""
    for name in ("x" * 255, "a.b", "`", "e\u0301", "%_", "'; drop table lease --", "\\u0000", "\U0001f600", "a\u2028b"):
        with ground.leases.acquire(name, owner=name):
            (holder,) = ground.leases.list()
            assert holder.name == holder.owner
            assert ground.leases.holder(name) == holder
        assert [event.action for event in ground.leases.audit(name)] == ["acquire", "release"]
    assert ground.leases.acquire("\u00e9").token == 3
    assert ground.verify() == []


@pytest.mark.parametrize("names", ["x", b"x", 5, None, True, [], (), iter(()), ["x", 5], [None], [["x"]]], ids=shown_as)
def test_names_of_several(kept: ms.Store, names: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.leases.acquire_many(names))


@pytest.mark.parametrize("on_lost", [5, "print", [print], True], ids=shown_as)
def test_on_lost(kept: ms.Store, on_lost: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.leases.acquire("x", on_lost=on_lost), "on_lost")
    refused(ms.InvalidArgument, lambda: kept.leases.acquire_many(["x"], on_lost=on_lost), "on_lost")


# --- what is not a lease


NO_TOKENS: list[Any] = [0, -1, True, False, "1", 1.0, 1.5, b"1", [1], 2**63, 2**70, float("nan")]


@pytest.mark.parametrize("token", NO_TOKENS, ids=shown_as)
def test_tokens(kept: ms.Store, token: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.leases.join("x", token), "a token")
    refused(ms.InvalidArgument, lambda: kept.leases.mirror("x", token, "owner", "incarnation"), "a token")


@pytest.mark.parametrize("incarnation", ["", "a\0b", "\ud800", None, 5, b"x"], ids=ascii)
def test_incarnations(kept: ms.Store, incarnation: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.leases.mirror("x", 1, "owner", incarnation), "an incarnation")


def test_what_nobody_holds(kept: ms.Store) -> None:
    leases = kept.leases
    assert leases.holder("unknown") is None
    assert leases.break_("unknown") is False
    assert list(leases.audit("unknown")) == []
    assert list(leases.list()) == []
    refused(ms.InvalidArgument, lambda: leases.join("unknown", None), "a token")  # type: ignore[arg-type]
    refused(ms.LeaseLost, lambda: leases.join("unknown", 1), "'unknown'")


def test_a_token_that_is_not_the_newest(ground: ms.Store) -> None:
    lease = ground.leases.acquire("x")
    with unchanged(ground):
        for wrong in (2, 99, 2**63 - 1):
            refused(ms.LeaseLost, lambda w=wrong: ground.leases.join("x", w), str(wrong))  # type: ignore[misc]
    lease.release()
    with unchanged(ground):
        refused(ms.LeaseLost, lambda: ground.leases.join("x", 1))
        refused(ms.LeaseLost, lambda: ground.leases.join("x", 2))  # nobody holds it


NO_LEASES: dict[str, Any] = {
    "a name": "x",
    "a token": 1,
    "True": True,
    "a mapping": {"x": 1},
    "a list": [],
    "an object": object(),
    "the class": ms.Lease,
}


@pytest.mark.parametrize("wrong", NO_LEASES.values(), ids=NO_LEASES)
def test_what_is_no_lease(furnished: ms.Store, wrong: Any) -> None:
    with unchanged(furnished):
        for work in UNDER_A_LEASE.values():
            refused(ms.InvalidArgument, lambda w=work: w(furnished, wrong), "a lease must come from")  # type: ignore[misc]
        for call in (furnished.leases.renew, furnished.leases.release, lambda it: furnished.drops.resume(lease=it)):
            refused(ms.InvalidArgument, lambda c=call: c(wrong), "a lease must come from")  # type: ignore[misc]
        holders: Any = furnished.leases
        refused(ms.InvalidArgument, lambda: furnished.transaction(lease=holders), "a lease must come from")


UNDER_A_LEASE: dict[str, Work] = {
    **{what: work for what, work in (WORK | NOTHING_TO_WRITE).items() if what != "publish"},
    "version": lambda s, lease: s.models.alter_version(f"{S}.m", 1, ms.SetComment("late"), lease=lease),
    "drop alias": lambda s, lease: s.models.drop_alias(f"{S}.m", "live", lease=lease),
    "statistics": lambda s, lease: s.statistics.put_many(f"{S}.t", [s.statistics.row("n", {"rows": 1})], lease=lease),
    "no rows": lambda s, lease: s.statistics.put_many(f"{S}.t", [], lease=lease),
    "drop no row": lambda s, lease: s.statistics.drop(f"{S}.t", "none", lease=lease),
    "crawls": lambda s, lease: s.crawls.put_many("lake.cat", [s.crawls.row("n", "done", {})], lease=lease),
    "register": lambda s, lease: s.sources.register(s.catalogs.load("lake.cat"), [], lease=lease),
    "a transaction block": lambda s, lease: s.transaction(lease=lease).__enter__().__exit__(None, None, None),
}


@pytest.fixture
def furnished(store: ms.Store) -> ms.Store:
    """Give a store that has what the works need."""
    furnish(store)
    return store


def test_a_lease_that_was_released(furnished: ms.Store) -> None:
    lease, several = furnished.leases.acquire("x"), furnished.leases.acquire_many(["y", "z"])
    lease.release()
    several.release()
    with unchanged(furnished):
        for hold in (lease, several):
            for work in UNDER_A_LEASE.values():
                refused(ms.LeaseLost, lambda w=work, h=hold: w(furnished, h), "released", "acquire it again")  # type: ignore[misc]
            refused(ms.LeaseLost, lambda h=hold: furnished.leases.renew(h))  # type: ignore[misc]
            assert furnished.leases.release(hold) is False
        table = furnished.tables.load(f"{S}.t")
        refused(ms.LeaseLost, lambda: lease.stage(table, "k", "v"), "released")
        refused(ms.LeaseLost, lease.publish, "released")
        refused(ms.LeaseLost, lease.__enter__, "released")


@pytest.fixture
def other(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ms.Store]:
    """Give a store on another database, of the kind that the first one is not."""
    elsewhere = "memory://" if url.startswith("postgresql") else f"sqlite:///{tmp_path / 'other.db'}"
    with ms.open(elsewhere) as opened:
        furnish(opened)
        yield opened


def test_a_lease_of_another_database(furnished: ms.Store, other: ms.Store) -> None:
    """The same name, the same token, even the same id: it is not a lease here."""
    ours, theirs = {}, {}
    for what in (*UNDER_A_LEASE, "stage"):
        ours[what] = furnished.leases.acquire(what, owner="ada")
        theirs[what] = other.leases.acquire(what, owner="ada")
        assert (ours[what].name, ours[what].token) == (theirs[what].name, theirs[what].token)
    table = furnished.tables.load(f"{S}.t")
    with unchanged(furnished):
        for what, work in UNDER_A_LEASE.items():
            refused(ms.InvalidArgument, lambda w=work, h=theirs[what]: w(furnished, h), repr(what), "kept elsewhere")  # type: ignore[misc]
    for lease in theirs.values():
        lease.check()  # there it is held as before
    for what, lease in ours.items():
        lease.renew()
        assert furnished.leases.join(what, 1).incarnation == lease.incarnation
    furnished.tables.alter(table, ms.SetComment("written"), lease=ours["alter"])


def test_a_lease_inside_a_transaction(ground: ms.Store) -> None:
    """The transaction is the commit: a lease that is given to one of its parts would guard nothing."""
    lease = ground.leases.acquire("x")
    with unchanged(ground), ground.transaction() as tx:
        refused(ms.InvalidArgument, lambda: tx.tables.alter(TABLE, ms.SetComment("x"), lease=lease), "one commit")
        refused(ms.InvalidArgument, lambda: tx.schemas.create("m.c.x", lease=lease), "one commit")
        refused(ms.InvalidArgument, lambda: tx.tables.drop(TABLE, lease=lease), "one commit")


# --- staging


NO_TEXTS: list[Any] = ["", "a\0b", "\ud800", None, 5, True, b"x", ["x"], "x" * (MAX_DOC + 1)]


@pytest.fixture
def lease(ground: ms.Store) -> ms.Lease:
    """Give a lease on the small tree."""
    return ground.leases.acquire("x")


@pytest.mark.parametrize("value", NO_TEXTS, ids=lambda v: ascii(v)[:20])
def test_what_cannot_be_staged(ground: ms.Store, lease: ms.Lease, value: Any) -> None:
    table = ground.tables.load(TABLE)
    with unchanged(ground):
        assert len(str(refused(ms.InvalidArgument, lambda: lease.stage(table, value, "v"), "the key"))) < 200
        assert len(str(refused(ms.InvalidArgument, lambda: lease.stage(table, "k", value), "what is staged"))) < 200


@pytest.mark.parametrize("entity", [TABLE, ("m", "c", "s", "t"), 4, None, object(), ms.Table], ids=shown_as)
def test_what_nothing_is_staged_for(ground: ms.Store, lease: ms.Lease, entity: Any) -> None:
    with unchanged(ground):
        refused(ms.InvalidArgument, lambda: lease.stage(entity, "k", "v"), "an entity that was loaded")


WRONG_CHANGES: dict[str, Callable[[ms.Table], Any]] = {
    "a number": lambda t: 5,
    "None": lambda t: None,
    "a string": lambda t: "SetComment",
    "bytes": lambda t: b"x",
    "a class of changes": lambda t: ms.SetComment,
    "a list of something else": lambda t: [ms.SetComment("written"), "x"],
    "an entity": lambda t: t,
    "a path": lambda t: {TABLE: ms.SetComment("x")},
    "an entity without changes": lambda t: {t: None},
    "an entity and a string": lambda t: {t: "SetComment"},
    "an entity and a class": lambda t: {t: ms.SetComment},
}


@pytest.mark.parametrize("changes", WRONG_CHANGES.values(), ids=WRONG_CHANGES)
def test_what_cannot_be_published(ground: ms.Store, lease: ms.Lease, changes: Callable[[ms.Table], Any]) -> None:
    """What was staged stays staged."""
    table = ground.tables.load(TABLE)
    lease.stage(table, "k", "v")
    with unchanged(ground):
        refused(ms.InvalidArgument, lambda: lease.publish(changes(table)))
    assert lease.publish(ms.SetComment("written"))[0].properties == {"k": "v"}


def test_changes_for_one_of_several(ground: ms.Store, lease: ms.Lease) -> None:
    lease.stage(ground.tables.load(TABLE), "k", "v")
    lease.stage(ground.schemas.load("m.c.s"), "k", "v")
    with unchanged(ground):
        refused(ms.InvalidArgument, lambda: lease.publish(ms.SetComment("of which?")), "2 entities")
        wrong = {ground.schemas.load("m.c.s"): ms.AddColumn("a", "int")}
        refused(ms.InvalidArgument, lambda: lease.publish(wrong), "not a change of a schema")


def test_changes_that_can_be_read_once(ground: ms.Store, lease: ms.Lease) -> None:
    """An iterator is read once, also where the commit has to be made a second time."""
    table = ground.tables.load(TABLE)
    for n, wrap in enumerate([iter, lambda changes: {table: iter(changes)}]):
        lease.stage(table, "k", str(n))
        with interrupted(ground, lambda n=n: ground.tables.alter(TABLE, ms.SetProperty("other", str(n)))):  # type: ignore[misc]
            (found,) = lease.publish(wrap([ms.SetComment(f"written {n}")]))  # type: ignore[no-untyped-call]
        assert (found.comment, found.properties) == (f"written {n}", {"k": str(n), "other": str(n)})


def test_a_closed_store(url: str) -> None:
    with ms.open(url) as store:
        lease = store.leases.acquire("x")
    for call in (
        lambda: store.leases.acquire("y"),
        lambda: store.leases.acquire_many(["y"]),
        lambda: store.leases.holder("x"),
        store.leases.list,
        lambda: store.leases.audit("x"),
        lambda: store.leases.break_("x"),
        lambda: store.leases.join("x", 1),
        lambda: store.leases.mirror("y", 1, "o", "i"),
    ):
        refused(ms.StoreClosed, call, "closed", "open it again")
    assert lease.release() is True  # it cleans up: else the lease would last for its ttl
    refused(ms.LeaseLost, lease.renew, "closed")
    with ms.open(url) as store:
        assert not store.leases.break_("x")
