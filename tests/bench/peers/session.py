"""One connection of a peer: a statement is one round trip, and so is a message of several."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import psycopg

from metastore.clock import SYSTEM
from tests.bench.core.setting import connect
from tests.bench.peers.statements import DOCUMENT

__all__ = ["Session", "altered", "fresh", "place"]

Parameters = dict[str, Any]


def place(path: str) -> Parameters:
    """Return the names in the path, as the statements want them."""
    metalake, catalog, schema, table = path.split(".")
    return {"path": path, "metalake": metalake, "catalog": catalog, "schema": schema, "table": table}


def fresh(path: str, principal: str) -> Parameters:
    """Return the parameters of a new operation on a path."""
    return {**place(path), "principal": principal, "operation_id": SYSTEM.operation_id(), "doc": DOCUMENT}


def altered(doc: str, key: str, value: str) -> Parameters:
    """Return the document with this property, and the change as history has it."""
    draft = json.loads(doc)
    draft["properties"][key] = value
    change = [{"change": "SetProperty", "key": key, "value": value}]
    return {"doc": _json(draft), "changes": _json(change)}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Session:
    """Opened exactly as the library opens its own connections, so that all plan alike; in autocommit."""

    def __init__(self, url: str, by_name: Mapping[str, str] | None = None, *, prepares_itself: bool = True) -> None:
        self.connection: psycopg.Connection[Any] = connect(url)
        if not prepares_itself:
            self.connection.prepare_threshold = None
        self._cursor = self.connection.cursor()
        self._client_side = psycopg.ClientCursor(self.connection)
        self._texts = {name: _prepared(name, text) for name, text in (by_name or {}).items()}
        for name, text in (by_name or {}).items():
            self.connection.execute(_prepare(name, text), prepare=False)

    def one(self, text: str, parameters: Parameters) -> tuple[Any, ...] | None:
        """Run one statement, a transaction of its own; return its first row."""
        row: tuple[Any, ...] | None = self._cursor.execute(text, parameters, prepare=True).fetchone()
        return row

    def message(self, parameters: Parameters, *parts: str) -> tuple[Any, ...] | None:
        """Send several at once: names of statements that were prepared, or plain ones. Return the last row of all.

        They are prepared by hand. Without BEGIN, the message is one transaction. At a ROLLBACK psycopg has the server
        forget all that was prepared, unless it is told to prepare nothing itself.
        """
        text = "; ".join([self._texts.get(part, part) for part in parts])
        cursor, row = self._client_side.execute(text, parameters), None
        while True:
            if cursor.description is not None:
                row = cursor.fetchone()
            if not cursor.nextset():
                return row

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


@cache
def _names_in(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))


def _prepare(name: str, text: str) -> str:
    places = {parameter: f"${n}" for n, parameter in enumerate(_names_in(text), 1)}
    return f"PREPARE {name} AS " + re.sub(r"%\((\w+)\)s", lambda found: places[found[1]], text)


def _prepared(name: str, text: str) -> str:
    return f"EXECUTE {name}({', '.join(f'%({parameter})s' for parameter in _names_in(text))})"
