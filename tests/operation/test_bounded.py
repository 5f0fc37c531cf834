"""A view's deadline (``store.bind``) holds for every message of its reads, also those by which they find their way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import metastore as ms
from metastore.clock import SYSTEM
from metastore.deadlines import remaining
from metastore.port.backend import PARTS, Backend
from metastore.store.store import Store

SECONDS = 7.0
READS: dict[str, Callable[[Store], Any]] = {
    "load": lambda store: store.tables.load("m.c.s.t"),
    "exists": lambda store: store.tables.exists("m.c.s.none"),
    "list": lambda store: store.tables.list("m.c.s"),
    "names": lambda store: store.tables.names("m.c.s"),
    "page": lambda store: store.tables.page("m.c.s"),
    "dropped": lambda store: store.tables.dropped("m.c.s"),
    "history": lambda store: store.tables.history("m.c.s.t"),
    "partitions": lambda store: store.partitions.list("m.c.s.t"),
    "find": lambda store: store.find("m.c"),
    "changes": lambda store: store.changes(),
    "changes under": lambda store: store.changes(under="m.c"),
    "diff": lambda store: store.diff(next(store.changes()).position),
    "position": lambda store: store.position(),
    "past": lambda store: store.at(store.position()).tables.list("m.c.s"),
    "leases": lambda store: store.leases.list(),
    "pins": lambda store: store.pins(),
    "owner": lambda store: store.owners.of("m.c.s.t", kind="table"),
    "owned by": lambda store: store.owners.owned_by("m.ann"),
    "tags": lambda store: store.tags.on("m.c.s.t", kind="table"),
    "tagged": lambda store: store.tags.targets("m.pii"),
    "allowed": lambda store: store.allowed("ann", "select_table", "m.c.s.t", kind="table"),
    "policies": lambda store: store.policies.on("m.c.s.t", kind="table"),
    "tags of columns": lambda store: store.tags.on_columns("m.c.s.t", kind="table"),
    "groups of a user": lambda store: store.users.groups("m.ann"),
    "roles of a user": lambda store: store.roles.of("m.ann"),
    "members of a group": lambda store: store.groups.members("m.staff"),
    "members of a role": lambda store: store.roles.members("m.reader"),
    "grants": lambda store: store.roles.grants("m.reader"),
    "versions": lambda store: store.models.versions("m.c.s.model"),
    "statistics": lambda store: store.statistics.of_partitions("m.c.s.t", ["p"]),
    "a secret": lambda store: store.reveal("m.c.s.t", "key", kind="table"),
    "an outcome": lambda store: store.outcome(ms.new_operation_id()),
    "a user's list": lambda store: store.as_user("ann").tables.list("m.c.s"),
    "a user's right": lambda store: store.as_user("ann").allowed("ann", "use_catalog", "m.c"),
}

NO_READS = ("close", "hearing", "hint", "pool_use")
"""They have no deadline of a view. The thread that sends hints may do so at any time."""
NOT_OF_A_USER = ("diff", "position", "past", "leases", "pins", "a user's list", "a user's right")


@pytest.fixture
def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Give the seconds that each message of the store's backend had left."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.t", parents=True)
    store.tags.create("m.pii")
    store.groups.create("m.staff")
    store.roles.create("m.reader")
    store.models.create("m.c.s.model")
    store.owners.set("m", store.users.create("m.ann"), kind="metalake")
    left = list[float]()
    backend = store._session.backend
    for port in {type(one) for one in (backend, backend.past, backend.readers, backend.leases)}:
        for name in dir(port):
            if name[0] != "_" and name not in NO_READS and callable(getattr(port, name)):
                monkeypatch.setattr(port, name, _noting(getattr(port, name), left))
    yield left
    monkeypatch.undo()


def _noting(method: Callable[..., Any], left: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        left.append(remaining(SYSTEM, math.inf))
        return method(*arguments, **options)

    return call


def test_each_message_of_a_read_has_the_deadline_of_its_view(store: Store, asked: list[float]) -> None:
    views = {"store": store.bind(deadline=SECONDS), "user": store.as_user("ann").bind(deadline=SECONDS)}
    for whose, view in views.items():
        for name, read in READS.items():
            if whose == "user" and name in NOT_OF_A_USER:
                continue
            asked.clear()
            # a user may see nothing there, and the table has neither a partition nor a secret: both need a look
            with suppress(ms.EntityNotFound, ms.PermissionDenied, ms.InvalidArgument):
                found = read(view)
                if isinstance(found, Iterable):
                    list(found)
            assert asked, f"{name} of the {whose} asked nothing"
            assert max(asked) <= SECONDS, f"{name} of the {whose} has no deadline of its view"


def test_a_call_s_own_deadline_wins(store: Store, asked: list[float]) -> None:
    """It may be longer than the view's."""
    store.bind(deadline=SECONDS).tables.alter("m.c.s.t", ms.SetComment("x"), deadline=3 * SECONDS)
    assert max(asked) > 2 * SECONDS
    assert store.bind(deadline=SECONDS).bind(deadline=3 * SECONDS).tables.load("m.c.s.t").comment == "x"
    list(store.bind(deadline=SECONDS).bind(deadline=3 * SECONDS).tables.names("m.c.s"))
    assert asked[-1] > 2 * SECONDS


def test_every_part_of_a_port_is_named() -> None:
    """What wraps the calls of a port wraps those of its parts: of one that is not named, it would pass them through."""
    parts = {name for one in Backend.__mro__ for name, value in vars(one).items() if isinstance(value, property)}
    # two values, a wait in the process, and calls with deadlines of their own
    others = {"origin", "known_origin", "notices", "leases"}
    assert parts == others.union(PARTS)
