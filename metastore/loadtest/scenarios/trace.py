"""``trace``: replays a trace file of creates, alters, drops and renames.

A trace is JSON lines, gzipped if its name ends with ``.gz``. A line is ``{"client": "…", "ops": [[…], …]}``; an
operation is ``["create", PATH, VALUE]``, ``["alter", PATH, VALUE]``, ``["drop", PATH]`` or ``["rename", PATH, TO,
VALUE]``, with ``/`` between names. Folders are schemas, files are tables, the value is a property. A last line
``{"head": {PATH: VALUE, …}}`` has the state at the end; it is compared if the order is fixed, that is, with one client.
The trace's clients are distributed among those of the load test; the order of each client's operations is kept.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from metastore.checker.finding import Finding
from metastore.errors import InvalidArgument
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Ended, Me, Scenario
from metastore.names import format_path, parse_path
from metastore.store import Store

__all__ = ["Trace", "read_trace"]

_WORDS: Final = {"create": 3, "alter": 3, "drop": 2, "rename": 4}
_VALUE: Final = "value"
_ROOT: Final = "root"
Step = tuple[int, list[str]]
"""An operation, with the number of its client in the trace, in order of appearance."""


@dataclass(frozen=True)
class Trace(Scenario):
    """The trace at ``path``, which each client must be able to read."""

    name = "trace"
    about: ClassVar[str] = "the operations of a trace file (--trace), by clients that keep its clients' order"
    seconds: ClassVar[float | None] = None
    path: str = ""

    def parameters(self) -> dict[str, Any]:
        return {"trace": Path(self.path).name}

    def check(self) -> None:
        if not self.path:
            raise InvalidArgument("the scenario trace needs a trace file: --trace FILE.jsonl.gz")
        for _ in read_trace(self.path):
            pass

    def prepare(self, store: Store, ground: str) -> None:
        store.schemas.create(f"{ground}.{_ROOT}")

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        known: set[str] = set()
        for client, words in read_trace(self.path):
            if not isinstance(words, dict) and client % me.clients == me.number:
                for _ in _do(calls, me.ground, words, known):
                    yield 0.0

    def broken(self, store: Store, ended: Ended) -> list[Finding]:
        if ended.clients > 1 or not ended.finished:
            return []
        head: dict[str, str] = next((words for _, words in read_trace(self.path) if isinstance(words, dict)), {})
        if not head:
            return []
        tree = _tree(store, ended.ground)
        wrong = sorted(path for path in head.keys() | tree.keys() if head.get(path) != tree.get(path))
        named = ", ".join(wrong[:5])
        message = f"the tree at the end is not the trace's: {len(wrong)} paths differ, such as {named}"
        return [Finding("replay", message, ())] if wrong else []


def _do(calls: Calls, ground: str, words: list[str], known: set[str]) -> Iterator[None]:
    """Do one operation of a trace, where the ``known`` schemas exist already; yield after each call."""
    action, path = words[0], _path(ground, words[1])
    if action == "create":
        yield from _above(calls, ground, path, known)
        calls.create(path, properties={_VALUE: words[2]})
    elif action == "alter":
        calls.alter(path, SetProperty(_VALUE, words[2]))
    elif action == "drop":
        calls.drop(path)
    else:
        to = _path(ground, words[2])
        yield from _above(calls, ground, to, known)
        moved = calls.rename(path, to)
        yield
        if moved is not None and moved.properties.get(_VALUE) != words[3]:
            calls.alter(moved, SetProperty(_VALUE, words[3]))
    yield


def _above(calls: Calls, ground: str, path: str, known: set[str]) -> Iterator[None]:
    """Create the missing schemas above ``path`` by separate calls, because ``parents=True`` makes several writes."""
    names = parse_path(path)
    for depth in range(len(parse_path(ground)) + 2, len(names)):
        schema = format_path(names[:depth])
        if schema not in known:
            if calls.load(schema, kind="schema") is None:
                yield
                calls.create(schema, kind="schema", if_exists="return")
            known.add(schema)  # a trace drops no folder, so the schema stays
            yield


def _path(ground: str, path: str) -> str:
    return format_path((*parse_path(ground), _ROOT, *path.split("/")))


def _tree(store: Store, ground: str) -> dict[str, str]:
    tree: dict[str, str] = {}
    depth = len(parse_path(ground)) + 1
    stack = [store.schemas.load(f"{ground}.{_ROOT}")]
    while stack:
        schema = stack.pop()
        stack += store.schemas.list(schema)
        for table in store.tables.list(schema):
            tree["/".join(table.names[depth:])] = table.properties[_VALUE]
    return tree


def read_trace(path: str) -> Iterator[tuple[int, Any]]:
    """Yield the operations of a trace, each with the number of its client; yield the last line's tree as a dictionary.

    Raises InvalidArgument, which names the line, for a file that is not a trace.
    """
    clients: dict[str, int] = {}
    number = 0
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007  (the errors below name it)
                step = json.loads(line)
                if "head" in step:
                    yield 0, {str(key): str(value) for key, value in step["head"].items()}
                    continue
                client = clients.setdefault(str(step["client"]), len(clients))
                for words in step["ops"]:
                    yield client, _checked(words)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidArgument(f"the trace {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{path}, line {number}: this is not a line of a trace: {error}") from None
    if not number:
        raise InvalidArgument(f"the trace {path} is empty")


def _opened(path: str) -> IO[str]:
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8")
    return Path(path).open(encoding="utf-8")


def _checked(words: Any) -> list[str]:
    if not words or not all(isinstance(word, str) for word in words) or len(words) != _WORDS.get(words[0]):
        raise ValueError(f"the operation {words!r}")
    return list(words)
