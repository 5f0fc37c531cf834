"""Read the journals of a run, and say whether they are whole.

The run's own record, not the journals, lists the clients: a client without lines, or with a part of its lines, makes
the verdict unsure.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.joints.judge.call import Call

__all__ = ["Journals", "read"]

_NAMES: Final = {"id": "entity_id", "n": "number"}
Line = dict[str, Any]


@dataclass
class Journals:
    """What the clients wrote down, and what is missing of it."""

    calls: list[Call] = field(default_factory=list)
    """By their start."""
    missing: list[str] = field(default_factory=list)
    """Each a reason to be unsure."""


def read(folder: Path) -> Journals:
    """Read all journals of a record folder."""
    found = Journals()
    started, _ = _lines(folder / "started.jsonl", found.missing)
    processes = {line["process"]: line["clients"] for line in started if "process" in line}
    killed = {line["killed"] for line in started if "killed" in line}
    killed |= {line["process"] for line in started if line.get("parent") in killed}
    if not processes:
        found.missing.append("no process was started")
    for process, clients in processes.items():
        found.calls += _process(folder / "journals" / f"{process}.jsonl", clients, process in killed, found.missing)
    unknown = {path.stem for path in (folder / "journals").glob("*.jsonl")} - processes.keys()
    found.missing += [f"the journal of {process}, which the run did not start" for process in sorted(unknown)]
    found.calls.sort(key=lambda call: call.start)
    return found


def _lines(path: Path, missing: list[str]) -> tuple[list[Line], bool]:
    """Return the lines of a file, and whether its last one is cut off."""
    text = path.read_text() if path.exists() else ""
    lines = text.splitlines()
    torn = bool(lines) and not text.endswith("\n")
    try:
        return [json.loads(line) for line in (lines[:-1] if torn else lines)], torn
    except ValueError as error:
        missing.append(f"{path.name} is damaged: {error}")
        return [], torn


def _process(path: Path, clients: list[str], killed: bool, missing: list[str]) -> list[Call]:
    """Return the calls of a process; note what is missing of its journal."""
    lines, torn = _lines(path, missing)
    if torn and not killed:
        missing.append(f"{path.name} ends in the middle of a line")
    mine: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        mine[line["client"]].append(line)
    missing += [f"{path.name} has lines of {client}" for client in mine.keys() - set(clients)]
    calls = []
    for client in clients:
        calls += _client(client, mine[client], killed, missing)
    return calls


def _client(client: str, lines: list[Line], killed: bool, missing: list[str]) -> list[Call]:
    calls = _calls(lines)
    unanswered = [call for call in calls if call.end is None]
    whole = bool(lines) and lines[-1].get("calls") == len(calls) and not unanswered
    if not lines:
        missing += [] if killed else [f"client {client} has written nothing"]
    elif "born" not in lines[0] or [call.number for call in calls] != list(range(1, len(calls) + 1)):
        missing.append(f"calls of {client} are missing")
    elif unanswered not in ([], calls[-1:]):
        missing.append(f"answers of {client} are missing")
    elif not whole and not killed:
        missing.append(f"the lines of {client} end after {len(calls)} calls, and it was not killed")
    return calls


def _calls(lines: list[Line]) -> list[Call]:
    calls: dict[int, Call] = {}
    for line in lines:
        if "start" in line:
            calls[line["n"]] = Call(**{_NAMES.get(name, name): _value(value) for name, value in line.items()})
        elif "end" in line and line["n"] in calls:
            for name in line.keys() - {"n", "client"}:
                setattr(calls[line["n"]], name, line[name] if name == "answer" else _value(line[name]))
    return list(calls.values())


def _value(value: Any) -> Any:
    return tuple(tuple(one) if isinstance(one, list) else one for one in value) if isinstance(value, list) else value
