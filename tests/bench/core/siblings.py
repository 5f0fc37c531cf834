"""Creates under one parent at once: what the guards cost, and that siblings never conflict."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psycopg

import metastore as ms
from metastore.backends.postgres import fragments
from metastore.backends.postgres import settings as postgres_settings
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, captured, new_lake
from tests.bench.timing import interleaved, ratios

__all__ = ["measure"]

CLIENTS = 32
SCHEMA = f"{CATALOG}.s"
NAME = "('n' || :r::text)"
COMPUTED = {
    "operation_id": "uuidv7()",
    "name": NAME,
    "key": NAME,
    "path_after": f"('{SCHEMA}.n' || :r::text)",
}
GUARD = fragments.GUARDED
COUNT = "(SELECT count(*) FROM guarded)"
HELD = fragments.ALL_GUARDED
COUNTER = """guarded AS MATERIALIZED (
  UPDATE entity SET version = version + 1 WHERE id = %(parent_id)s::bigint RETURNING id)"""


def measure(setting: Setting) -> None:
    """Ask pgbench for the statement's rate with and without guards; then 32 processes of the library."""
    url = new_lake(setting.durable, "s", "processes")
    text, parameters = _captured_create(url)
    length = 1.5 if setting.quick else 4.0
    bench = _Pgbench(setting, url, parameters, round(length) or 1)
    found = interleaved(
        {
            "siblings_per_s": bench.variant("guarded", text),
            "siblings_unguarded_per_s": bench.variant("unguarded", _unguarded(text)),
            "siblings_parent_counter_per_s": bench.variant("counter", _with_counter(text)),
        },
        3 if setting.quick else 7,
    )
    figures = setting.figures
    for name, values in found.items():
        figures.record(name, values)
    figures.record("siblings_vs_unguarded", ratios(found["siblings_per_s"], found["siblings_unguarded_per_s"]))
    figures.record(
        "siblings_vs_parent_counter", ratios(found["siblings_per_s"], found["siblings_parent_counter_per_s"])
    )
    rates, conflicts = _processes(url, 3 if setting.quick else 7, 0.7 if setting.quick else 2.0)
    figures.record("siblings_library_per_s", rates)
    figures.record("siblings_conflicts", [conflicts])


def _captured_create(url: str) -> tuple[str, dict[str, Any]]:
    with ms.open(url, principal="bench") as store:
        schema = store.schemas.load(SCHEMA)
        # the first one in a process also reads what holds above the table, which is remembered
        store.tables.create("before", parent=schema, columns=COLUMNS)
        with captured() as sent:
            store.tables.create("first", parent=schema, columns=COLUMNS)
    ((text, parameters),) = sent
    return text, parameters


def _swap(text: str, old: str, new: str) -> str:
    if old not in text:
        raise RuntimeError(f"the statement of create has changed; this is no longer in it: {old}")
    return text.replace(old, new)


def _unguarded(text: str) -> str:
    text = _swap(text, f"WITH {GUARD},\n", "WITH ")
    return _swap(_swap(text, f"WHERE {HELD}", ""), COUNT, "0")


def _with_counter(text: str) -> str:
    return _swap(_swap(text, GUARD, COUNTER), HELD, f"{COUNT} = 1")


class _Pgbench:
    """Runs one statement from many clients; every parameter that is not computed is passed as it was captured."""

    def __init__(self, setting: Setting, url: str, parameters: Mapping[str, Any], length: int) -> None:
        self._server = setting.durable
        self._dsn = url.replace("+psycopg", "")
        self._values = {name: _literal(value) for name, value in parameters.items() if name not in COMPUTED}
        self._length = length

    def variant(self, name: str, text: str) -> Callable[[], float]:
        """Write the script; return what runs it and gives transactions per second."""
        statement = re.sub(r"%\((\w+)\)s", lambda m: COMPUTED.get(m[1], f":{m[1]}"), text)
        script = self._server.folder / f"{name}.sql"
        script.write_text(f"\\set r random(1, 1000000000000000)\n{statement};\n")
        used = set(re.findall(r"(?<!:):([a-z_]+)", statement))
        defined = [word for key, value in self._values.items() if key in used for word in ("-D", f"{key}={value}")]
        return lambda: self._run(script, defined)

    def _run(self, script: Path, defined: list[str]) -> float:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        command = [str(self._server.pgbench), "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2"]
        command += ["-T", str(self._length), "-f", str(script), *defined, self._dsn]
        done = subprocess.run(command, capture_output=True, text=True, env={"PGOPTIONS": _options()}, check=False)
        rate = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or rate is None:
            raise RuntimeError(f"pgbench failed:\n{done.stdout}{done.stderr}")
        return float(rate[1])


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ",".join(map(str, value)) + "}"
    return str(value)


def _options() -> str:
    """The settings of a connection of the library, as options for another."""
    settings = re.findall(r"SET (\w+) = '?([^';]+)", postgres_settings.SESSION)
    return " ".join("-c " + f"{name}={value}".replace(" ", r"\ ") for name, value in settings)


def _processes(url: str, windows: int, length: float) -> tuple[list[float], int]:
    """Create from 32 processes in several windows of time; return the rate of each, and all conflicts."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["metastore", __name__])
    barrier = context.Barrier(CLIENTS + 1)
    answers: Queue[Answer] = context.Queue()
    workers = [
        context.Process(target=_creator, args=(url, n, windows + 1, length, barrier, answers), daemon=True)
        for n in range(CLIENTS)
    ]
    for worker in workers:
        worker.start()
    for _ in range(windows + 1):
        barrier.wait(120)
    told = [answers.get(timeout=120 + length) for _ in workers]
    for worker in workers:
        worker.join()
    rates = [sum(each) for each in zip(*(found for found, _ in told), strict=True)]
    return rates[1:], sum(conflicts for _, conflicts in told)


Answer = tuple[list[float], int]


def _creator(url: str, number: int, windows: int, length: float, barrier: Barrier, answers: Queue[Answer]) -> None:
    """One process of the library: in each window create until it is over; at the end say the rates and conflicts."""
    with ms.open(url, principal=f"process {number}") as store:
        schema, made, rates = store.schemas.load(f"{CATALOG}.processes"), 0, []
        for _ in range(windows):
            barrier.wait(120)
            before, start = made, time.monotonic()
            while time.monotonic() < start + length:
                store.tables.create(f"t{number}_{made}", parent=schema, columns=COLUMNS)
                made += 1
            rates.append((made - before) / (time.monotonic() - start))
        conflicts = sum(n for cause, n in store.counters.items() if cause.startswith("conflicts"))
    answers.put((rates, conflicts))
