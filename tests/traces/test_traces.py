"""Histories of real repositories: directories as nested schemas, files as filesets with the blob as a property.

A trace has one line for each commit of a repository (its operations), and a last line with the tree
that must come out. An operation is ``create PATH BLOB``, ``alter PATH BLOB``, ``drop PATH`` or
``rename PATH TO BLOB`` (which may change the content too).
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import metastore as ms
from metastore.names import parse_path
from tests.concurrency.checks import violations
from tests.concurrency.workers import Job, Team, Turn

Steps = list[tuple[str, str, str]]
CATALOG = ("lake", "cat", "root")
PROCESSES = 8
SMALL, LARGE = ("tenacity", "dbos"), "iceberg-python"


@dataclass(frozen=True)
class Trace:
    """The operations in order, and the files at the end."""

    operations: list[list[str]]
    head: dict[str, str]


def read_trace(folder: Path, name: str) -> Trace:
    path = folder / "traces" / f"{name}.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        *commits, last = map(json.loads, lines)
    return Trace([operation for commit in commits for operation in commit["ops"]], last["head"])


def names_of(path: str) -> tuple[str, ...]:
    return (*CATALOG, *path.split("/"))


def apply(store: ms.Store, operation: Sequence[str]) -> None:
    """Do what one operation of a trace says; it must succeed."""
    action, path, *rest = operation
    filesets, names = store.filesets, names_of(path)
    if action == "create":
        filesets.create(names, properties={"blob": rest[0]}, parents=True)
    elif action == "alter":
        filesets.alter(names, ms.SetProperty("blob", rest[0]))
    elif action == "drop":
        assert filesets.drop(names)
    else:
        to = names_of(rest[0])
        make_folder(store, to[:-1])
        moved = filesets.rename(names, to)
        filesets.alter(moved, ms.SetProperty("blob", rest[1]))


def make_folder(store: ms.Store, names: tuple[str, ...]) -> None:
    store.schemas.create(names, parents=True, if_exists="return")


def expected_steps(operations: Sequence[Sequence[str]]) -> tuple[list[Steps], dict[str, Steps]]:
    """What the history of each file must be: (action, path after, blob); of all, and of those at the end by path."""
    files: list[Steps] = []
    live: dict[str, Steps] = {}
    for action, path, *rest in operations:
        if action == "create":
            live[path] = [("create", path, rest[0])]
            files.append(live[path])
            continue
        steps = live[path]
        blob = steps[-1][2]
        if action == "drop":
            steps.append(("drop", path, blob))
            del live[path]
        elif action == "rename":
            to, new = rest
            moved = "rename" if path.rpartition("/")[0] == to.rpartition("/")[0] else "move"
            steps.append((moved, to, blob))
            live[to] = live.pop(path)
            steps += [("alter", to, new)] if new != blob else []
        elif rest[0] != blob:
            steps.append(("alter", path, rest[0]))
    return files, live


def fed_steps(store: ms.Store) -> list[Steps]:
    """What happened to each file, from the feed."""
    steps: dict[int, Steps] = defaultdict(list)
    for change in store.changes():
        if change.kind == "fileset":
            steps[change.entity_id].append(step_of(change))
    return list(steps.values())


def step_of(version: ms.Version) -> tuple[str, str, str]:
    path = version.path_after or version.path_before or ""
    assert version.entity is not None
    return version.action, "/".join(parse_path(path)[len(CATALOG) :]), version.entity.properties["blob"]


def check(url: str, trace: Trace) -> None:
    """The tree is the last line's; every history has exactly the operations that changed the file."""
    with ms.open(url) as store:
        assert tree(store) == trace.head
        files, live = expected_steps(trace.operations)
        assert sorted(fed_steps(store)) == sorted(files)
        for path, steps in live.items():
            assert [step_of(version) for version in store.filesets.history(names_of(path))] == steps
    assert violations(url) == []


def tree(store: ms.Store) -> dict[str, str]:
    found: dict[str, str] = {}
    stack: list[ms.Schema] = [store.schemas.load(CATALOG)]
    while stack:
        schema = stack.pop()
        stack += store.schemas.list(schema)
        for one in store.filesets.list(schema):
            found["/".join(one.names[len(CATALOG) :])] = one.properties["blob"]
    return found


def start(url: str) -> None:
    with ms.open(url, principal="trace") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="fileset")
        store.schemas.create(CATALOG)


def replay_in_order(url: str, trace: Trace) -> None:
    start(url)
    with ms.open(url, principal="trace") as store:
        for operation in trace.operations:
            apply(store, operation)
    check(url, trace)


def chains(operations: Sequence[list[str]]) -> list[list[list[str]]]:
    """Split operations into parts that have no name in common: within one the order counts."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.setdefault(name, name)) != name:
            leader[name] = name = leader[above]
        return name

    for action, path, *rest in operations:
        if action == "rename":
            leader[find(rest[0])] = find(path)
    parts: dict[str, list[list[str]]] = defaultdict(list)
    for operation in operations:
        parts[find(operation[1])].append(operation)
    return list(parts.values())


def shares(operations: Sequence[list[str]], count: int) -> list[list[list[str]]]:
    """Deal the parts out, the longest first; each share goes round its parts, one operation of each."""
    dealt: list[list[list[list[str]]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(chains(operations), key=len, reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(part)
        sizes[least] += len(part)
    return [
        [part[n] for n in range(max(map(len, parts))) for part in parts if n < len(part)] if parts else []
        for parts in dealt
    ]


def apply_share(turn: Turn, operations: list[list[str]]) -> None:
    turn.meet()
    for operation in operations:
        apply(turn.store, operation)


def replay_at_once(url: str, team: Team, trace: Trace) -> None:
    start(url)
    team.run(url, [Job(apply_share, share) for share in shares(trace.operations, PROCESSES)])
    check(url, trace)


@pytest.mark.one_in(2)
@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("name", SMALL)
def test_one_by_one(url: str, shared_data: Path, name: str) -> None:
    """One process, in order."""
    replay_in_order(url, read_trace(shared_data, name))


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_by_8_processes(url: str, team: Team, shared_data: Path, name: str) -> None:
    """Eight processes at once: the operations on one file in order, the rest in any order."""
    replay_at_once(url, team, read_trace(shared_data, name))


@pytest.mark.long
def test_largest_one_by_one(sqlite_url: str, shared_data: Path) -> None:
    """8,000 operations by one process."""
    replay_in_order(sqlite_url, read_trace(shared_data, LARGE))


@pytest.mark.long
def test_largest_by_8_processes(postgres_url: str, team: Team, shared_data: Path) -> None:
    """8,000 operations by eight processes."""
    replay_at_once(postgres_url, team, read_trace(shared_data, LARGE))
