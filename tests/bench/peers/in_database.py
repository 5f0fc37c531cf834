"""The peers that need nothing but PostgreSQL: row locks, advisory locks, SERIALIZABLE."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import psycopg

from metastore.checker.records import Lost
from tests.bench.peers import statements
from tests.bench.peers.contender import Did
from tests.bench.peers.session import Parameters, Session, altered, fresh, place
from tests.bench.peers.unguarded import CREATE, DROP, FAILED, LOAD, RENAME, WRITE, did, renamed

__all__ = ["TEXTS", "Advisory", "ForUpdate", "Serializable"]

TEXTS: dict[str, dict[str, str]] = {
    "for_update": {
        "load": LOAD,
        "lock_and_load": statements.load(rows=True),
        "write": WRITE,
        "create_it": statements.create(rows=True),
        "drop_it": statements.drop(rows=True),
        "rename_it": statements.rename(rows=True),
    },
    "advisory": {
        **statements.ADVISORY,
        "load": LOAD,
        "write": WRITE,
        "create_it": CREATE,
        "drop_it": DROP,
        "rename_it": RENAME,
    },
    "serializable": {"load": LOAD, "write": WRITE, "create_it": CREATE, "drop_it": DROP, "rename_it": RENAME},
}
"""Every statement of each, by the name under which it is prepared where it is a part of a message."""


class _InDatabase:
    texts: dict[str, str]
    prepares_itself = True

    def __init__(self, url: str, principal: str) -> None:
        self.principal = principal
        self.lost: list[Lost] = []
        self._session = Session(url, self.texts, prepares_itself=self.prepares_itself)

    def close(self) -> None:
        self._session.close()

    def _fresh(self, path: str) -> Parameters:
        return fresh(path, self.principal)


class ForUpdate(_InDatabase):
    """Row locks, which one statement takes and the commit gives back; an alter keeps them while its client works.

    A load locks nothing: it is one statement, and sees what is committed.
    """

    texts = TEXTS["for_update"]

    def load(self, path: str) -> Did:
        row = self._session.one(self.texts["load"], place(path))
        return Did("read") if row is None else Did("read", row[0], row[1])

    def alter(self, path: str, key: str, value: str) -> Did:
        row = self._session.message(place(path), "BEGIN", "lock_and_load")
        if row is None:
            self._session.message({}, "COMMIT")
            return FAILED
        parameters = {**self._fresh(path), "id": row[0], **altered(row[2], key, value)}
        return did(self._session.message(parameters, "write", "COMMIT"))

    def create(self, path: str) -> Did:
        return did(self._session.one(self.texts["create_it"], self._fresh(path)))

    def drop(self, path: str) -> Did:
        return did(self._session.one(self.texts["drop_it"], self._fresh(path)), Did("nothing"))

    def rename(self, path: str, to: str) -> Did:
        try:
            return did(self._session.one(self.texts["rename_it"], {**self._fresh(path), **renamed(path, to)}))
        except psycopg.errors.UniqueViolation:
            return FAILED


class Advisory(_InDatabase):
    """Advisory locks of the transaction: each operation is one message, locks first; an alter is two."""

    texts = TEXTS["advisory"]

    def load(self, path: str) -> Did:
        row = self._session.message({**place(path), **_keys(path)}, "share", "load")
        return Did("read") if row is None else Did("read", row[0], row[1])

    def alter(self, path: str, key: str, value: str) -> Did:
        row = self._session.message({**place(path), **_keys(path)}, "BEGIN", "node", "load")
        if row is None:
            self._session.message({}, "COMMIT")
            return FAILED
        parameters = {**self._fresh(path), "id": row[0], **altered(row[2], key, value)}
        return did(self._session.message(parameters, "write", "COMMIT"))

    def create(self, path: str) -> Did:
        return did(self._locked("parent", "create_it", path, {}))

    def drop(self, path: str) -> Did:
        return did(self._locked("node", "drop_it", path, {}), Did("nothing"))

    def rename(self, path: str, to: str) -> Did:
        try:
            return did(self._locked("node", "rename_it", path, renamed(path, to)))
        except psycopg.errors.UniqueViolation:
            return FAILED

    def _locked(self, lock: str, statement: str, path: str, more: Parameters) -> tuple[int, int] | None:
        return self._session.message({**self._fresh(path), **_keys(path), **more}, lock, statement)


class Serializable(_InDatabase):
    """The server finds conflicts; who lost tries again at once, with what is committed by then."""

    texts = TEXTS["serializable"]
    prepares_itself = False
    begin = "BEGIN ISOLATION LEVEL SERIALIZABLE"

    def load(self, path: str) -> Did:
        row = self._session.message(place(path), "load")
        return Did("read") if row is None else Did("read", row[0], row[1])

    def alter(self, path: str, key: str, value: str) -> Did:
        return self._until_it_holds(lambda: self._alter(path, key, value))

    def create(self, path: str) -> Did:
        return self._until_it_holds(lambda: did(self._at_once("create_it", self._fresh(path))))

    def drop(self, path: str) -> Did:
        return self._until_it_holds(lambda: did(self._at_once("drop_it", self._fresh(path)), Did("nothing")))

    def rename(self, path: str, to: str) -> Did:
        parameters = {**self._fresh(path), **renamed(path, to)}
        try:
            return self._until_it_holds(lambda: did(self._at_once("rename_it", parameters)))
        except psycopg.errors.UniqueViolation:
            self._session.message({}, "ROLLBACK")
            return FAILED

    def _alter(self, path: str, key: str, value: str) -> Did:
        row = self._session.message(place(path), *self._opened(), "load")
        if row is None:
            self._session.message({}, "ROLLBACK")
            return FAILED
        parameters = {**self._fresh(path), "id": row[0], **altered(row[2], key, value)}
        return did(self._session.message(parameters, "write", "COMMIT"))

    def _at_once(self, statement: str, parameters: Parameters) -> tuple[int, int] | None:
        return self._session.message(parameters, *self._opened(), statement, "COMMIT")

    def _opened(self) -> list[str]:
        """What a message begins with: the server has freed everything of a lost attempt already."""
        idle = self._session.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return [self.begin] if idle else ["ROLLBACK", self.begin]

    def _until_it_holds(self, attempt: Callable[[], Did]) -> Did:
        while True:
            try:
                return attempt()
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                self.lost.append(Lost("serialization"))


@lru_cache(100_000)
def _keys(path: str) -> Parameters:
    """The keys of the locks of a path and what is above it."""
    names = path.split(".")
    prefixes = [".".join(names[: n + 1]) for n in range(len(names))]
    return {f"k{n}": _hash(prefix) for n, prefix in enumerate(prefixes, 1)}


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
