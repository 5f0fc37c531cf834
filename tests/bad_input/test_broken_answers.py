"""A damaged page of a SQLite file, and a server whose answers make no sense: no error of a driver leaves a call."""

from __future__ import annotations

import io
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import metastore as ms
from tests.bad_input.conftest import TABLE, prepare
from tests.long import long_unless
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy

Call = Callable[[ms.Store, str], object]


def _transaction(store: ms.Store, text: str) -> None:
    with store.transaction() as tx:
        tx.tables.alter(TABLE, ms.SetComment(text))
        tx.tables.create(f"{TABLE}_{text}")


CALLS: dict[str, Call] = {
    "load": lambda store, _: store.tables.load(TABLE),
    "list": lambda store, _: [one.doc for one in store.tables.list(TABLE.rpartition(".")[0])],
    "alter": lambda store, text: store.tables.alter(TABLE, ms.SetComment(text)),
    "create": lambda store, text: store.tables.create(f"{TABLE}{text}"),
    "rename": lambda store, text: store.tables.rename(TABLE, TABLE.rpartition(".")[2]),
    "transaction": _transaction,
    "changes": lambda store, _: list(store.changes()),
    "past": lambda store, _: store.at(store.position()).tables.load(TABLE),
    "history": lambda store, _: list(store.tables.history(TABLE)),
    "find": lambda store, _: list(store.find("*")),
    "lease": lambda store, text: store.leases.acquire(text, ttl=10).release(),
    "pin": lambda store, text: (store.pin(text), list(store.pins())),
    "stats": lambda store, _: store.stats(),
    "verify": lambda store, _: store.verify(),
    "gc": lambda store, _: store.gc(),
    "export": lambda store, _: store.export_to(io.BytesIO(), ids=True, history=True),
}


def _tried(store: ms.Store, name: str, text: str) -> str | None:
    """Make a call; return the name of its error. An error that is not one of ours ends the test."""
    try:
        CALLS[name](store, text)
    except ms.MetastoreError as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize("garbage", long_unless([b"\xff", b"\0", b"\r"], lambda byte: byte == b"\xff"))
def test_a_damaged_page(tmp_path: Path, garbage: bytes) -> None:
    """Each page in turn is overwritten, but the first: without it, it is not a database."""
    file = tmp_path / "small.db"
    with ms.open(f"sqlite:///{file}") as store:
        prepare(store)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    connection.close()
    whole, errors = file.read_bytes(), Counter[str | None]()
    for page in range(1, len(whole) // size):
        copy = tmp_path / f"page{page}.db"
        copy.write_bytes(whole[: page * size] + garbage * size + whole[(page + 1) * size :])
        with suppress(ms.MetastoreError), ms.open(f"sqlite:///{copy}") as store:
            errors.update(_tried(store, name, name) for name in CALLS)
        copy.unlink()
    assert errors["BackendUnavailable"] > len(CALLS), errors


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


GARBAGE = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>",
    "an unknown message": _message(b"?", b"what"),
    "an error that says nothing": _message(b"E", b"\0"),
    "an error without a SQLSTATE": _message(b"E", b"SERROR\0Mweird\0\0"),
    "an error with an unknown SQLSTATE": _message(b"E", b"SERROR\0CZZ999\0Mweird\0\0"),
    "a row without columns": _message(b"D", b"\0\0"),
    "a length below zero": b"D" + struct.pack("!i", -5),
}


@pytest.mark.parametrize(
    ("garbage", "nth"),
    long_unless(
        [(one, nth) for one in GARBAGE for nth in (1, 2, 3)], lambda pair: pair == ("a row without columns", 2)
    ),
)
def test_a_server_that_answers_garbage(
    postgres_server: PostgresServer, postgres_url: str, garbage: str, nth: int
) -> None:
    """One message of an answer is another one. A write that was sent then has an unknown outcome, or is found."""
    with ms.open(postgres_url) as direct, PostgresProxy("127.0.0.1", postgres_server.port) as proxy:
        held = prepare(direct).tables.load(TABLE)
        errors = Counter[str | None]()
        with ms.open(proxy.url_for(postgres_url), deadline=1) as store:
            for name in CALLS:
                for number in range(4):  # the third time, a statement is prepared
                    if number == 3:
                        proxy.garble(nth, GARBAGE[garbage])
                    errors[_tried(store, name, f"{name}{number}")] += 1
            proxy.reset()
            assert store.tables.alter(held, ms.SetComment(garbage)).comment == garbage
        assert errors[None] > 3 * len(CALLS), errors
        assert direct.verify() == []
