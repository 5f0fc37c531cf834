"""What a ``with`` block holds belongs to the process that entered it: a forked child that leaves it ends nothing.

The child leaves in order, or by an error, as a worker does whose function raises. Then the parent goes on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from itertools import count
from typing import Any, cast

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.test_forks import LONGEST, TABLE, ended_well

SCHEMA = TABLE.rpartition(".")[0]
CHANGES = ms.SetComment("the parent's"), ms.SetProperty("k", "v")
_LAST = 2**60
"""A ticket after all others."""
_MANY = 1100
"""So many tables that an export reads them in more than one message."""
InChild = Callable[[], bool]
"""Forks; True in the child, which leaves the block. Or it raises there."""

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


class Leaves(Exception):
    """The child leaves by an error."""


def transaction(store: ms.Store, in_child: InChild) -> None:
    with store.transaction() as tx:
        tx.tables.alter(TABLE, *CHANGES)
        if in_child():
            return


def run(store: ms.Store, in_child: InChild) -> None:
    """The first run loses, so that the second one waits in line, with a ticket."""
    runs = count()

    def work(tx: ms.Transaction) -> None:
        tx.tables.alter(TABLE, *CHANGES)
        if not next(runs):
            store.tables.alter(TABLE, ms.SetComment("of another"))
        elif not in_child():
            line = store._session.backend.line([store.tables.load(TABLE).id], _LAST)
            assert line.head is not None

    store.run(work)


def freeze(store: ms.Store, in_child: InChild) -> None:
    with store.schemas.exclusive(SCHEMA, ttl=LONGEST) as tx:
        tx.tables.alter(TABLE, *CHANGES)
        if in_child():
            return
        with pytest.raises(ms.ScopeFrozen):
            store.tables.alter(TABLE, ms.SetComment("of another"), deadline=0.2)


def lease(store: ms.Store, in_child: InChild) -> None:
    with store.leases.acquire("work", ttl=LONGEST) as held:
        if in_child():
            return
        with pytest.raises(ms.LeaseHeld):
            store.leases.acquire("work", owner="another")
        store.tables.alter(TABLE, *CHANGES, lease=held)


def consumer(store: ms.Store, in_child: InChild) -> None:
    reader = store.consumers.get("reader", start="beginning")

    def work(tx: ms.Transaction, _: list[ms.Change]) -> None:
        tx.tables.alter(TABLE, *CHANGES)
        in_child()

    before = reader.position
    assert reader.run(work)
    assert reader.position != before


def follower(store: ms.Store, in_child: InChild) -> None:
    """A session of its own hears hints."""
    with closing(cast(Any, store.changes(follow=True, timeout=LONGEST))) as following:
        next(following)
        heard = store._session.backend.hint(send=False)
        if in_child():
            return
        assert store._session.backend.hint(send=False) == heard
        store.tables.alter(TABLE, *CHANGES)
        assert next(change for change in following if change.action == "alter")


def export(store: ms.Store, in_child: InChild) -> None:
    """It reads more after each call of ``progress``: its history is longer than one reading."""
    store.tables.create_many(SCHEMA, [{"name": f"many{n}"} for n in range(_MANY)])
    forks = count()
    told: list[int] = []

    def progress(lines: int) -> None:
        told.append(lines)
        if not next(forks):
            in_child()

    file = BytesIO()
    store.export_to(file, history=True, progress=progress)
    assert len(told) > 2
    assert len(file.getvalue().splitlines()) > 2 * _MANY
    store.tables.alter(TABLE, *CHANGES)


def store_itself(store: ms.Store, in_child: InChild) -> None:
    with store:
        if in_child():
            return
        store.tables.alter(TABLE, *CHANGES)


COMMITS = (transaction, run, freeze, consumer, export)
"""They commit when they are left in order, or end a file: a child is refused."""
BLOCKS = (*COMMITS, lease, follower, store_itself)


@pytest.mark.one_in(4, on="postgres")
@pytest.mark.parametrize("raises", [False, True], ids=["in order", "by an error"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_a_child_that_leaves_a_block_ends_nothing(url: str, block: Callable[..., None], raises: bool) -> None:
    seed(url, TABLE)
    parent = os.getpid()

    def in_child() -> bool:
        if pid := os.fork():
            assert ended_well(pid)
            return False
        signal.alarm(LONGEST)
        if raises:
            raise Leaves
        return True

    expected = Leaves if raises else ms.InvalidArgument if block in COMMITS else None
    with ms.open(url) as store:
        try:
            block(store, in_child)
        except BaseException as error:
            if os.getpid() == parent:
                raise
            os._exit(int(type(error) is not expected))
        if os.getpid() != parent:
            os._exit(int(expected is not None))
    with ms.open(url) as store:
        table = store.tables.load(TABLE)
        assert (table.comment, table.properties) == ("the parent's", {"k": "v"})
        assert sum(change.entity_id == table.id for change in store.changes()) == table.version
    assert violations(url) == []
