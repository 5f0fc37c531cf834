"""The plan of every statement that a call sends, as the server ran it: auto_explain writes each into its log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["SETTINGS", "Log", "Ran", "wide"]

SETTINGS: Final[Mapping[str, str]] = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "log_line_prefix": "%v ",
    "autovacuum": "off",
}
_TABLES: Final = frozenset({"guard", "entity", "owned", "relation", "operation"})


@dataclass(frozen=True)
class Ran:
    """One statement, with its plan."""

    text: str
    plan: Mapping[str, Any]
    transaction: str
    """The server's name for the transaction."""

    @property
    def blocks(self) -> int:
        """How many blocks it read."""
        return int(self.plan["Shared Hit Blocks"] + self.plan["Shared Read Blocks"])

    def nodes(self) -> Iterator[Mapping[str, Any]]:
        """Yield every node of the plan."""
        waiting = [self.plan]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])


class Log:
    """The part of a server's log that was written since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = path.stat().st_size

    def new(self) -> list[Ran]:
        """Return the statements that ran since then, and came to their end."""
        with self._path.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        return [Ran(found["Query Text"], found["Plan"], transaction) for transaction, found in _plans(text)]


def _plans(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    decoder = json.JSONDecoder(strict=False)  # the log indents the lines of a statement with tabs
    for start in re.finditer(r"^(\S+) .*  plan:\s*", text, re.MULTILINE):
        yield start[1], decoder.raw_decode(text, start.end())[0]


def wide(ran: Ran, limit: int) -> Iterator[str]:
    """Yield what is wrong with the plan of a bounded answer: a table that is read as a whole, or an index that is.

    ``limit``: how many rows one node may read.
    """
    for node in ran.nodes():
        read = node.get("Rows Removed by Filter", 0) + node["Actual Rows"]
        read = (read + node.get("Rows Removed by Join Filter", 0)) * node["Actual Loops"]
        table = node.get("Relation Name")
        if table in _TABLES and node["Node Type"] == "Seq Scan" and read > limit:
            yield f"scans {table}: {read:.0f} rows"
        elif table in _TABLES and read > limit:
            yield f"reads {read:.0f} rows of {table} by {node.get('Index Name')}"
        elif node["Node Type"] == "Merge Join" and read > limit:
            yield f"merges {read:.0f} rows"
