"""A program one change format ahead: a copy of the library with another format and one more change, in a process.

``python newer.py URL`` with the copy first on the path announces a change and stops; a line on its
standard input lets it go on. What it says on its standard output is one line of JSON each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["NewerProgram"]

PATH = "lake.cat.s.t"
LIBRARY = Path(__file__).resolve().parents[2] / "metastore"
FORMAT = "FORMAT: Final = 4\n"
CHANGE = '''

@dataclasses.dataclass(frozen=True)
class Shout(SetComment):
    """Set the comment in capitals; the older program knows nothing of it."""

    since = 5

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["comment"] = str(self.text).upper()
'''


def _copy(folder: Path) -> None:
    """Make the newer program of this one."""
    shutil.copytree(LIBRARY, folder / "metastore", ignore=shutil.ignore_patterns("__pycache__"))
    intents, change = (folder / "metastore" / name for name in ("port/intents.py", "kinds/change.py"))
    text = intents.read_text()
    assert FORMAT in text, "the library has another format now: this file needs to know"
    intents.write_text(text.replace(FORMAT, "FORMAT: Final = 5\n"))
    change.write_text(change.read_text() + CHANGE)


class NewerProgram:
    """It announces ``Shout("hello")`` on a table, under ``operation``, and stands still."""

    def __init__(self, folder: Path, url: str, operation: object, seconds: float) -> None:
        if not (folder / "metastore").exists():
            _copy(folder)
        command = [sys.executable, "-P", __file__, url, str(operation), str(seconds)]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder, text=True
        )

    def __enter__(self) -> Self:
        assert self._read() == "announced"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def go_on(self) -> Any:
        """Let it go on; return [version, comment] of what it got."""
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()
        return self._read()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the newer program has ended"
        return json.loads(line)


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _main(url: str, operation: str, seconds: str) -> None:
    import metastore as ms
    from metastore.kinds import change as changes
    from metastore.port import intents

    assert getattr(intents, "FORMAT") == 5  # noqa: B009  (of the copy; this file is checked with the library itself)
    shout = changes.Shout("hello")  # type: ignore[attr-defined]
    with ms.open(url, principal="newer") as store:
        table = store.tables.load(PATH)
        store._session.hot.note(table.id, ("table", table.names))
        backend: Any = store._session.backend
        pending = backend.pending

        def stop(*arguments: Any) -> Any:
            del backend.pending
            _say("announced")
            sys.stdin.readline()
            return pending(*arguments)

        backend.pending = stop
        found = store.tables.alter(PATH, shout, operation_id=operation, deadline=float(seconds))
        _say([found.version, found.comment])


if __name__ == "__main__":
    _main(*sys.argv[1:])
