"""A database that does not answer in time: the store's deadline ends the wait, and nothing is written."""

from __future__ import annotations

import time
from typing import cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import connect
from metastore.backends.postgres.backend import PostgresBackend
from metastore.clock import SYSTEM
from metastore.operation.record import ask_until_it_answers
from metastore.urls import parse_url
from tests.concurrency.silent import hears_late_answers


@pytest.mark.postgres
def test_a_lock_that_somebody_keeps_ends_with_the_deadline(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign session holds the rows of a table, and the table itself, for as long as it likes."""
    hears_late_answers(monkeypatch)
    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        table = store.tables.create("m.c.s.t", parents=True)
    plain = parse_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as foreign, ms.open(postgres_url, deadline=1.0) as store:
        foreign.execute("SELECT * FROM entity FOR UPDATE")
        began = time.monotonic()
        with pytest.raises(ms.DeadlineExceeded):
            store.tables.alter(table, ms.SetComment("x"))
        foreign.execute("LOCK TABLE guard IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ms.DeadlineExceeded):
            store.tables.load("m.c.s.t")
        assert time.monotonic() - began < 10
        foreign.rollback()
        assert store.tables.load("m.c.s.t") == table


@pytest.mark.postgres
def test_an_original_that_is_still_in_flight_leaves_the_outcome_unknown(postgres_url: str) -> None:
    """The tombstone waits for it past the deadline: nobody may say then that it was not applied."""
    operation = SYSTEM.operation_id()
    plain = parse_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as original, ms.open(postgres_url, deadline=1.0) as store:
        original.execute(
            "INSERT INTO operation (operation_id, ordinal, action, time) VALUES (%s, 0, 'alter', 0)", (operation,)
        )
        with pytest.raises(ms.OutcomeUnknown) as caught:
            ask_until_it_answers(store._session, operation, 1.0, SYSTEM.monotonic() + 1.0)
        assert caught.value.operation_id == operation


@pytest.mark.postgres
def test_a_new_session_that_is_not_ready_in_time_ends_with_the_deadline(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stops the set-up, as it was asked to: that is no reason to check the URL."""
    hears_late_answers(monkeypatch)
    with ms.open(postgres_url) as store:
        cast(PostgresBackend, store._session.backend).pool.forget()
        monkeypatch.setattr(connect, "ASKED", "SELECT pg_sleep(60)")
        with pytest.raises(ms.DeadlineExceeded):
            store.metalakes.create("m", deadline=0.2)
