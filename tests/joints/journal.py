"""The journal of a process: its clients write a line before each call, and a line after it. Each line is one ``write``.

The system keeps what was written when the process is killed. So the lines of a client that ended by itself begin with
``born``, end with ``done``, and its calls are numbered without a gap. A killed client has at most one call without an
answer, and its process perhaps half a line at the end. :mod:`tests.joints.judge.calls` checks exactly this.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import metastore as ms

__all__ = ["Journal", "opened", "told"]


def opened(folder: Path, process: str) -> int:
    """Make the journal of a process; return its file, for its clients. Raises FileExistsError."""
    return os.open(folder / "journals" / f"{process}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)


class Journal:
    """What one client writes down. It belongs to one thread or one task."""

    def __init__(self, file: int, client: str) -> None:
        self._file, self.client, self.number = file, client, 0
        self._write({"born": time.monotonic_ns()})

    @property
    def principal(self) -> str:
        """The principal of the call that is under way: the feed names the call that wrote."""
        return f"{self.client}/{self.number}"

    def begin(self, call: dict[str, Any]) -> None:
        """Note that a call begins now."""
        self.number += 1
        self._write({"n": self.number, **call, "start": time.monotonic_ns()})

    def end(self, answer: dict[str, Any]) -> None:
        """Note that the call has ended, and with what."""
        self._write({"n": self.number, "end": time.monotonic_ns(), **answer})

    def done(self) -> None:
        """Note that the client has ended by itself."""
        self._write({"done": time.monotonic_ns(), "calls": self.number})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps({"client": self.client, **line}, separators=(",", ":")).encode() + b"\n")


def told(answer: Any) -> Any:
    """Return an answer as JSON: what the judge compares, and what people need to understand it."""
    if isinstance(answer, ms.Entity):
        document = {"comment": answer.comment, "properties": dict(answer.properties)}
        return {"id": answer.id, "version": answer.version, "path": answer.path, "by": answer.modified_by, **document}
    if isinstance(answer, ms.Change):
        return answer.position
    if isinstance(answer, ms.Page):
        return [told(one) for one in answer.items]
    if isinstance(answer, list | tuple):
        return [told(one) for one in answer]
    return answer if isinstance(answer, str | int | bool | None) else type(answer).__name__
