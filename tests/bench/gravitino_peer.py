"""The same requests to servers of Gravitino: models, which no engine keeps, are made and renamed; and its races."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import seconds

__all__ = ["BARS", "beside", "races"]

CLIENTS, CREATES, TURNS, RACES = 32, 320, 2, 8
ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "gravitino-client" / "bin" / "python"
RACE_PROGRAM = ROOT / "tests" / "gravitino" / "race_program.py"
NAME = f"bench_{uuid.uuid4().hex}"
LAKE = f"/api/metalakes/{NAME}"
MODELS = f"{LAKE}/catalogs/cat/schemas/s/models"
NAMES = [
    f"{word}_{what}_{count}_per_s"
    for what in ("creates", "renames")
    for count in (1, 2)
    for word in ("rest", "gravitino")
]
BARS = {
    **dict.fromkeys(NAMES, reported),
    "creates_vs_gravitino": Bar(">=", 2),
    "creates_vs_gravitino_1": reported,
    "renames_vs_gravitino": reported,
    "renames_vs_gravitino_1": reported,
    "races": Bar("<=", 0),
    "races_gravitino": reported,
}
"""With one server and with two; ``rest`` is this project's."""


def beside(figures: Figures, ours: Sequence[str], theirs: Sequence[str]) -> None:
    """Measure both sides in turns, with one server and with two."""
    sides = {"rest": ours, "gravitino": theirs}
    for addresses in sides.values():
        _prepare(addresses[0])
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    with ThreadPoolExecutor(CLIENTS) as clients:
        for turn in range(TURNS + 1):  # the first turn warms up: connections, plans, the compiler of Java
            for count in (1, 2):
                for side, addresses in sides.items():
                    made, renamed = _turn(clients, addresses[:count], f"{turn}_{count}")
                    if turn:
                        rates[f"{side}_creates_{count}_per_s"].append(made)
                        rates[f"{side}_renames_{count}_per_s"].append(renamed)
    for name, values in rates.items():
        figures.record(name, values)
    for what in ("creates", "renames"):
        for count, suffix in ((1, "_1"), (2, "")):
            ratio = figures[f"rest_{what}_{count}_per_s"] / figures[f"gravitino_{what}_{count}_per_s"]
            figures.record(f"{what}_vs_gravitino{suffix}", [ratio])


def _prepare(address: str) -> None:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    more = {"comment": "", "properties": {}}
    for path, body in (
        ("/api/metalakes", {"name": NAME, **more}),
        (f"{LAKE}/catalogs", {"name": "cat", "type": "MODEL", "provider": "model", **more}),
        (f"{LAKE}/catalogs/cat/schemas", {"name": "s", **more}),
    ):
        _send(connection, "POST", path, body)
    connection.close()


def _turn(clients: ThreadPoolExecutor, addresses: Sequence[str], prefix: str) -> tuple[float, float]:
    """Return the models that were made, and renamed, in a second."""
    hosts = [urlsplit(address).netloc for address in addresses]
    connections = [HTTPConnection(hosts[n % len(hosts)], timeout=60) for n in range(CLIENTS)]

    def all_of(method: str, request: Callable[[str], tuple[str, dict[str, Any]]]) -> float:
        def one(number: int) -> None:
            for n in range(CREATES // CLIENTS):
                path, body = request(f"m{prefix}_{number}_{n}")
                _send(connections[number], method, path, body)

        return CREATES / seconds(lambda: list(clients.map(one, range(CLIENTS))))

    def create(name: str) -> tuple[str, dict[str, Any]]:
        return MODELS, {"name": name, "comment": "", "properties": {"k": "v"}}

    def rename(name: str) -> tuple[str, dict[str, Any]]:
        return f"{MODELS}/{name}", {"updates": [{"@type": "rename", "newName": f"{name}_n"}]}

    try:
        return all_of("POST", create), all_of("PUT", rename)
    finally:
        for one in connections:
            one.close()


def _send(connection: HTTPConnection, method: str, path: str, body: dict[str, Any]) -> None:
    """Send a request and read its answer; the library of the least work, because both sides share its processor."""
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    if answer["code"] != 0:
        raise AssertionError(answer)


def races(figures: Figures, ours: Sequence[str], theirs: Sequence[str]) -> None:
    """Count what goes wrong in races on two servers of each side, by one program for both."""
    for name, addresses in (("races", ours), ("races_gravitino", theirs)):
        if PYTHON.exists() and addresses:
            command = [str(PYTHON), str(RACE_PROGRAM), str(RACES), *addresses]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
            found = {race: count for race, count in json.loads(done.stdout).items() if count}
            print(f"{name}: {json.dumps(found, indent=2)}")
            figures.record(name, [sum(found.values())])
        else:
            figures.skip(name, "needs make gravitino-client, and --racing")
