"""The clients of a drill. Each function is one process: it calls, and writes down its answers, until the drill is over.

Writers keep the ledgers of :mod:`tests.progress.accounts`, all others a journal of :mod:`tests.joints.journal`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from prometheus_client import CollectorRegistry

import metastore as ms
from metastore.prometheus import register
from tests.concurrency.raw import dsn
from tests.joints.journal import Journal, opened
from tests.progress.accounts import Ledger
from tests.soak.client import DEADLINE, Calls

__all__ = ["CREW", "LEASED", "SCRAPES", "WATCHED", "work"]

WATCHED: Final = "lake.cat.w.t"
"""The table that one client writes and others read through caches."""
LEASED: Final = "lake.cat.l.t"
"""The table that is written under the lease."""
_THREADS: Final = 6
"""Of a writer: more than it has connections, so that its calls travel in batches."""
_PAUSE: Final = 0.02
"""Between two calls of a client (seconds): the database is what a drill is about, and not the machine."""
SCRAPES: Final = 5.0
"""How often the metrics of a client are read (seconds)."""
_TTL: Final = 3.0
"""Of the lease (seconds): it ends within a fail-over."""


class _Drill:
    """What a process knows of its drill."""

    def __init__(self, folder: str) -> None:
        self.folder, self._parent = Path(folder), os.getppid()

    def over(self) -> bool:
        return (self.folder / "over").exists() or os.getppid() != self._parent

    def journal(self, name: str) -> Journal:
        return Journal(opened(self.folder, name), name)

    def opened(self, url: str, name: str, **options: Any) -> ms.Store:
        while True:
            try:
                store = ms.open(url, principal=name, deadline=DEADLINE, **options)
            except ms.BackendUnavailable:
                time.sleep(_PAUSE)
                continue
            threading.Thread(target=self._scrape, args=(store, name), daemon=True).start()
            return store

    def _scrape(self, store: ms.Store, name: str) -> None:
        """Write down what Prometheus would read of the store."""
        registry = CollectorRegistry()
        register(store, registry)
        with (self.folder / "metrics" / f"{name}.jsonl").open("w", buffering=1) as file:
            while not self.over():
                samples = [sample for family in registry.collect() for sample in family.samples]
                file.write(json.dumps([[one.name, one.labels, one.value] for one in samples]) + "\n")
                time.sleep(SCRAPES)


def write(url: str, name: str, folder: str) -> None:
    """Write hot and cold entities in several threads that share two connections."""
    drill = _Drill(folder)
    with drill.opened(url, name, pool_size=2) as store:

        def thread(n: int) -> None:
            ledger = Ledger(drill.folder / "ledgers" / f"{name}t{n}", f"{name}t{n}")
            calls = Calls(store, f"{name}t{n}", random.Random(f"{name} {n}"))
            while not drill.over():
                ledger.call(calls.next(), DEADLINE)
                time.sleep(_PAUSE)
            ledger.close()

        threads = [threading.Thread(target=thread, args=(n,)) for n in range(_THREADS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()


def announce(url: str, name: str, folder: str) -> None:
    """Number a table's comment: one write after the other. An unknown outcome is settled before the next one."""
    drill = _Drill(folder)
    journal = drill.journal(name)
    with drill.opened(url, name) as store:
        for number in itertools.count(1):
            if drill.over():
                break
            journal.begin({"value": str(number)})
            journal.end({"value": str(number), "ok": _settled(store, number)})
            time.sleep(_PAUSE)
    journal.done()


def _settled(store: ms.Store, number: int) -> bool:
    """Write the number; return whether it was written. An error of a repeat says nothing of the first call."""
    operation, unknown = ms.new_operation_id(), False
    while True:
        try:
            store.tables.alter(WATCHED, ms.SetComment(str(number)), operation_id=operation)
            return True
        except ms.OutcomeUnknown:
            unknown = True
        except ms.MetastoreError:
            if not unknown:
                return False
            time.sleep(_PAUSE)


def read_validated(url: str, name: str, folder: str) -> None:
    """Read the numbers through a cache that asks the database."""
    _read(url, name, folder, ms.Cache("validate"))


def read_leased(url: str, name: str, folder: str) -> None:
    """Read the numbers through a cache that asks nobody while its lease lasts, and answers nothing after it."""
    _read(url, name, folder, ms.Cache("lease", when_fenced="raise"))


def _read(url: str, name: str, folder: str, cache: ms.Cache) -> None:
    drill = _Drill(folder)
    journal = drill.journal(name)
    with drill.opened(url, name, cache=cache) as store:
        while not drill.over():
            journal.begin({})
            try:
                journal.end({"value": store.tables.load(WATCHED).comment, "ok": True})
            except ms.MetastoreError as error:
                journal.end({"ok": False, "error": type(error).__name__})
            time.sleep(_PAUSE)
    journal.done()


def hold(url: str, name: str, folder: str) -> None:
    """Acquire the lease, write under it, and release it. ``held``: when it was checked for the last time."""
    drill = _Drill(folder)
    journal, dice = drill.journal(name), random.Random(name)
    with drill.opened(url, name) as store:
        while not drill.over():
            try:
                lease = store.leases.acquire("one", ttl=_TTL, timeout=_TTL, owner=name, renew_every=_TTL / 4)
            except ms.MetastoreError:
                time.sleep(_PAUSE)
                continue
            journal.begin({"token": lease.token})
            held, error = time.monotonic_ns(), None
            try:
                for _ in range(dice.randrange(1, 20)):
                    now = time.monotonic_ns()
                    lease.check()
                    held = now
                    store.tables.alter(LEASED, ms.SetComment(str(lease.token)), lease=lease)
                    time.sleep(_PAUSE)
                lease.release()
            except ms.MetastoreError as failed:
                error = type(failed).__name__
            journal.end({"token": lease.token, "held": held, "ok": error is None, "error": error})
    journal.done()


def consume(url: str, name: str, folder: str) -> None:
    """Follow the feed; begin again where the store refuses a position."""
    drill = _Drill(folder)
    journal, position = drill.journal(name), None
    with drill.opened(url, name) as store:
        while not drill.over():
            journal.begin({})
            found: list[str] = []
            error = None
            try:
                found.extend(change.position for change in store.changes(after=position))
            except ms.MetastoreError as failed:
                error = failed
            position = found[-1] if found else position
            refused = isinstance(error, ms.InvalidArgument)
            journal.end({"read": found, "ok": error is None, "refused": refused, "error": error and str(error)})
            position = None if refused else position
            time.sleep(5 * _PAUSE)
    journal.done()


def bare(url: str, name: str, folder: str) -> None:
    """Insert numbers as a program does that knows nothing of fail-overs but to connect again."""
    drill = _Drill(folder)
    journal, raw = drill.journal(name), None
    while not drill.over():
        journal.begin({})
        try:
            raw = raw or psycopg.connect(dsn(url), autocommit=True)
            raw.execute("INSERT INTO bare VALUES (%s)", [journal.number])
            journal.end({"value": journal.number, "ok": True})
        except psycopg.Error as error:
            journal.end({"ok": False, "error": type(error).__name__})
            if raw is not None:
                raw.close()
            raw = None
        time.sleep(_PAUSE)
    journal.done()


CREW: Final[Mapping[str, Callable[[str, str, str], None]]] = {
    "p1": write,
    "p2": write,
    "announcer": announce,
    "validated": read_validated,
    "leased": read_leased,
    "holder1": hold,
    "holder2": hold,
    "consumer": consume,
    "bare": bare,
}
"""The processes of a drill, by name. Ledgers know their writers by the p."""


def work(url: str, name: str, folder: str) -> None:
    """Be the process ``name``. What it logs goes to a file of the drill."""
    output = os.open(Path(folder) / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    CREW[name](url, name, folder)
