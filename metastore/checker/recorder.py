"""The recorder of a client: it logs each operation before it begins and after it returns.

Operations that may write are also logged before they begin, so the log of a killed client shows the write that it was
about to make. Each line is one ``write``, which the system keeps if the process dies. A recorder belongs to one thread.
"""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from metastore.checker.records import Operation, Outcome
from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument

__all__ = ["Recorder", "clock_name"]

_READS: Final = frozenset({"load", "exists", "list", "names", "load_many"})


def clock_name() -> str:
    """Return the name of this machine's monotonic clock, which all its processes share until the next boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


_FIELDS: Final = tuple([field.name for field in fields(Operation)])


class Recorder:
    """The log of one client, ``log/<client>.jsonl`` in a record folder. ``client`` must be new.

    Raises InvalidArgument for a name that a file cannot have or that Spark ignores, FileExistsError for a client that
    already has a log.
    """

    def __init__(self, folder: Path, client: str) -> None:
        if not client or client[0] in "_." or "/" in client or "\x00" in client:
            raise InvalidArgument(f"a client's name begins with neither _ nor . and has no slash: {client!r}")
        (folder / "log").mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / "log" / f"{client}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._client = client
        self._clock = clock_name()
        self._number = 0

    def begin(
        self,
        action: str,
        kind: str | None,
        path: str | None,
        *,
        to: str | None = None,
        operation_id: str | None = None,
    ) -> Operation:
        """Record that an operation begins now. Its writes must carry its ``principal``."""
        self._number += 1
        operation = Operation(
            self._client,
            self._number,
            action,
            kind,
            path,
            to,
            self._clock,
            0,
            SYSTEM.micros() / 1e6,
            operation_id=operation_id,
        )
        operation.start = time.monotonic_ns()
        if action not in _READS:
            self._write({"begin": _as_json(operation)})
        return operation

    def end(self, operation: Operation, outcome: Outcome, error: BaseException | None = None) -> None:
        """Record that the operation has returned. Its fields must be set before."""
        operation.end = time.monotonic_ns()
        operation.outcome = outcome
        operation.error = None if error is None else type(error).__name__
        self._write({"end": _as_json(operation)})

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _as_json(operation: Operation) -> dict[str, Any]:
    values = {name: getattr(operation, name) for name in _FIELDS}
    values["conflicts"] = [lost._asdict() for lost in operation.conflicts]
    values["reads"] = [seen._asdict() for seen in operation.reads]
    return values
