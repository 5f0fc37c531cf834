"""Clients of an Iceberg REST server that cost next to nothing: they share the cores with what is measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Call", "Client", "Done", "together"]

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}


class Client:
    """One connection to a server's catalog. Its calls return whether the server did it: 409 is no, all else raises."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self._connection = HTTPConnection(place.netloc, timeout=120)
        self._path = place.path

    def _call(self, method: str, path: str, body: Any = None) -> tuple[bool, Any]:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, self._path + path, text, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        found = answer.read()
        if answer.status == HTTPStatus.CONFLICT:
            return False, None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {answer.status} {found[:300]!r}")
        return True, json.loads(found) if found else None

    def namespace(self) -> None:
        """Make the namespace of all tables."""
        self._call("POST", "/namespaces", {"namespace": ["a"]})

    def create(self, name: str) -> bool:
        """Create a table."""
        return self._call("POST", "/namespaces/a/tables", {"name": name, "schema": SCHEMA})[0]

    def load(self, name: str) -> dict[str, Any]:
        """Return a table's metadata."""
        metadata: dict[str, Any] = self._call("GET", f"/namespaces/a/tables/{name}")[1]["metadata"]
        return metadata

    def read(self, name: str) -> bool:
        """Load a table, and leave its JSON unread."""
        self._connection.request("GET", f"{self._path}/namespaces/a/tables/{name}")
        answer = self._connection.getresponse()
        answer.read()
        return answer.status == HTTPStatus.OK

    def put(self, name: str, uuid: str, key: str, value: str) -> bool:
        """Commit one property to a table."""
        requirement = {"type": "assert-table-uuid", "uuid": uuid}
        update = {"action": "set-properties", "updates": {key: value}}
        body = {"requirements": [requirement], "updates": [update]}
        return self._call("POST", f"/namespaces/a/tables/{name}", body)[0]


@dataclass(frozen=True)
class Done:
    """What one client has done: acknowledged and refused calls, and the seconds that they took."""

    acknowledged: int
    failed: int
    seconds: float


Call = Callable[[int, Client, int], bool]
"""A client's next call: which client it is, its connection, and how many calls of it were acknowledged before."""


def together(clients: Sequence[Client], call: Call, seconds: float) -> list[Done]:
    """Let all clients call for some seconds, at once."""

    def loop(place: int) -> Done:
        acknowledged = failed = 0
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if call(place, clients[place], acknowledged):
                acknowledged += 1
            else:
                failed += 1
        return Done(acknowledged, failed, time.monotonic() - began)

    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(loop, range(len(clients))))
