"""On PostgreSQL: a helper meets a cancellation whose transaction is open."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

import metastore as ms
from metastore.backends.postgres.intents import CANCEL
from tests.concurrency.raw import dsn, waiting_for_locks
from tests.contract.ground import NEW_DOC, prepare
from tests.contract.intents import announce, applied, conflict, eventually, helping, row_of


def test_a_helper_waits_for_a_cancellation(postgres_url: str) -> None:
    """What is cancelled then is never applied."""
    with (
        ms.open(postgres_url) as store,
        psycopg.connect(dsn(postgres_url)) as cancelling,
        ThreadPoolExecutor(1) as thread,
    ):
        ground = prepare(store)
        own = announce(ground, ground.one)
        cancelling.execute(CANCEL.encode(), {"operation_id": own})
        helped = thread.submit(ground.backend.help, helping(ground.one, applied(own, NEW_DOC)))
        eventually(lambda: waiting_for_locks(postgres_url) == 1)
        cancelling.commit()
        conflict(helped.result(), "pending")
        assert row_of(ground, own).action == "cancelled"
        assert store.schemas.load("m.c.one") == ground.one
