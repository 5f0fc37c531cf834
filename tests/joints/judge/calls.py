"""Read the journals of a run, and say whether they are whole.

Which clients there were is in the run's own record, not in the journals: a client without a journal, or with a part of
one, makes the verdict unsure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.joints.judge.call import Call

__all__ = ["Journals", "read"]

_NAMES: Final = {"id": "entity_id", "n": "number"}


@dataclass
class Journals:
    """What the clients wrote down, and what is missing of it."""

    calls: list[Call] = field(default_factory=list)
    """By their start."""
    missing: list[str] = field(default_factory=list)
    """Each a reason to be unsure."""


def read(folder: Path) -> Journals:
    """Read all journals of a record folder."""
    found, started, killed = Journals(), dict[str, str](), set[str]()
    for line in _lines(folder / "started.jsonl", found.missing):
        killed |= {line["killed"]} if "killed" in line else set()
        started |= dict.fromkeys(line.get("clients", ()), line.get("process", ""))
    if not started:
        found.missing.append("no client was started")
    for client, process in started.items():
        found.calls += _client(folder, client, process in killed, found.missing)
    unknown = {path.stem for path in (folder / "journals").glob("*.jsonl")} - started.keys()
    found.missing += [f"the journal of {client}, which the run did not start" for client in sorted(unknown)]
    found.calls.sort(key=lambda call: call.start)
    return found


def _lines(path: Path, missing: list[str]) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        missing.append(f"{path.name} cannot be read: {error}")
        return []


def _client(folder: Path, client: str, killed: bool, missing: list[str]) -> list[Call]:
    """Return the calls of a client; note what is missing of its journal."""
    path = folder / "journals" / f"{client}.jsonl"
    text = path.read_text() if path.exists() else ""
    lines = text.splitlines()
    if killed and lines and not text.endswith("\n"):
        lines.pop()  # it was killed while it wrote
    if not lines:
        missing.extend([] if killed else [f"client {client} has no journal"])
        return []
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError:
        missing.append(f"the journal of {client} is damaged")
        return []
    calls = _calls(client, rows)
    open_ = [call for call in calls if call.end is None]
    numbers = [call.number for call in calls]
    done = rows[-1].get("calls")
    if "born" not in rows[0] or numbers != list(range(1, len(numbers) + 1)) or open_ not in ([], calls[-1:]):
        missing.append(f"the journal of {client} has gaps")
    elif not killed and (done != len(calls) or open_):
        missing.append(f"the journal of {client} has no end: {len(calls)} calls")
    return calls


def _calls(client: str, rows: list[dict[str, Any]]) -> list[Call]:
    calls: dict[int, Call] = {}
    for row in rows:
        if "start" in row:
            values = {_NAMES.get(name, name): _value(value) for name, value in row.items()}
            calls[row["n"]] = Call(client=client, **values)
        elif "end" in row and row["n"] in calls:
            for name, value in row.items():
                if name != "n":
                    setattr(calls[row["n"]], name, value if name == "answer" else _value(value))
    return list(calls.values())


def _value(value: Any) -> Any:
    return tuple(tuple(one) if isinstance(one, list) else one for one in value) if isinstance(value, list) else value
