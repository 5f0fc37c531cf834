"""What the library adds to its own statements, and what these cost: one client, one connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

import metastore as ms
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, captured, connect, new_lake, operation_ids
from tests.bench.timing import interleaved, ratios, seconds
from tests.servers.postgres import PostgresServer

__all__ = ["measure"]

SCHEMA = f"{CATALOG}.s"
Parameters = dict[str, Any]
Fresh = Callable[[int], list[Parameters]]

BARE_TABLES = """
CREATE TABLE bare_row (id bigint PRIMARY KEY, version bigint NOT NULL, doc text NOT NULL, modified_at bigint NOT NULL);
CREATE TABLE bare_event (seq bigserial PRIMARY KEY, operation_id uuid NOT NULL, row_id bigint NOT NULL,
  version bigint NOT NULL, principal text, time bigint NOT NULL, changes text)"""
BARE_CAS = """WITH changed AS (
  UPDATE bare_row SET version = version + 1, doc = %(doc)s::text,
    modified_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  WHERE id = 1 AND version = %(version)s::bigint RETURNING id, version, modified_at)
INSERT INTO bare_event (operation_id, row_id, version, principal, time, changes)
SELECT %(operation_id)s::uuid, id, version, %(principal)s::text, modified_at, %(changes)s::text FROM changed
RETURNING version"""
"""The least that a versioned store can do: CAS on one row, one event without a document."""


class _Raw:
    """Sends one captured statement again and again, with fresh parameters made ahead of time."""

    def __init__(self, connection: psycopg.Connection[Any], text: str, fresh: Fresh) -> None:
        self._connection = connection
        self.text = text
        self._fresh = fresh

    def rate(self, count: int) -> float:
        parameters = self._fresh(count)
        text, execute = self.text, self._connection.execute

        def work() -> None:
            for one in parameters:
                execute(text, one)

        return count / seconds(work)

    def server_us(self, count: int) -> float:
        """Mean execution time in the server, by pg_stat_statements; without network, parse and commit."""
        run = self._connection.execute
        run("SELECT pg_stat_statements_reset()")
        run("SET pg_stat_statements.track = 'top'")
        self.rate(count)
        run("SET pg_stat_statements.track = 'none'")
        row = run(
            "SELECT calls, mean_exec_time * 1000 FROM pg_stat_statements WHERE calls >= %s AND dbid ="
            " (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY calls DESC",
            (count,),
        ).fetchone()
        assert row is not None, "pg_stat_statements saw nothing"
        return float(row[1])


class _Versions:
    """Parameters of CAS statements: the version grows with each, the documents alternate."""

    def __init__(self, base: Parameters, docs: tuple[str, str]) -> None:
        self._base = base
        self.docs = docs
        self.version: int = base["version"]

    def __call__(self, count: int) -> list[Parameters]:
        ids = operation_ids(count)
        made = [
            {**self._base, "version": self.version + n, "operation_id": ids[n], "doc": self.docs[n % 2]}
            for n in range(count)
        ]
        self.version += count
        return made


class _One:
    """One server: the library and plain psycopg beside each other on it."""

    def __init__(self, server: PostgresServer) -> None:
        self.url = new_lake(server, "s")
        self.store = ms.open(self.url, principal="bench")
        self.connection = connect(self.url)
        self._table = self.store.tables.create(f"{SCHEMA}.ours", columns=COLUMNS)
        self._schema = self.store.schemas.load(SCHEMA)
        self._number = 0
        self.alter_raw, self._versions = self._captured_alter()

    def close(self) -> None:
        self.connection.close()
        self.store.close()

    def _captured_alter(self) -> tuple[_Raw, _Versions]:
        table = self.store.tables.create(f"{SCHEMA}.theirs", columns=COLUMNS)
        # the first one in a process also reads what holds above the table, which is remembered
        table = self.store.tables.alter(table, ms.SetProperty("turn", "99999"))
        with captured() as sent:
            for value in ("100000", "100001"):
                table = self.store.tables.alter(table, ms.SetProperty("turn", value))
        (text, first), (_, second) = sent
        versions = _Versions({**second, "version": table.version}, (first["doc"], second["doc"]))
        return _Raw(self.connection, text, versions), versions

    def alter(self, count: int) -> float:
        """Alter one table ``count`` times; return how often per second."""
        table, alter = self._table, self.store.tables.alter
        numbers = range(self._number, self._number + count)

        def work() -> None:
            nonlocal table
            for n in numbers:
                table = alter(table, ms.SetProperty("turn", str(100_000 + n)))

        rate = count / seconds(work)
        self._table, self._number = table, self._number + count
        return rate

    def check(self) -> None:
        """The plain statements were all applied, else they were compared with something else."""
        table = self.store.tables.load(f"{SCHEMA}.theirs")
        assert table.version == self._versions.version, (table.version, self._versions.version)

    def load(self, count: int) -> float:
        """Load one table by its path ``count`` times; return how often per second."""
        load, path = self.store.tables.load, f"{SCHEMA}.theirs"

        def work() -> None:
            for _ in range(count):
                load(path)

        return count / seconds(work)

    def load_raw(self) -> _Raw:
        with captured() as sent:
            self.store.tables.load(f"{SCHEMA}.theirs")
        ((text, parameters),) = sent
        return _Raw(self.connection, text, lambda count: [parameters] * count)

    def create_raw(self) -> _Raw:
        with captured() as sent:
            self.store.tables.create(f"first{time.time_ns()}", parent=self._schema, columns=COLUMNS)
        ((text, parameters),) = sent

        def fresh(count: int) -> list[Parameters]:
            stamp, ids = time.time_ns(), operation_ids(count)
            names = [f"raw{stamp}_{n}" for n in range(count)]
            return [
                {**parameters, "operation_id": i, "name": name, "key": name, "path_after": f"{SCHEMA}.{name}"}
                for i, name in zip(ids, names, strict=True)
            ]

        return _Raw(self.connection, text, fresh)

    def bare_raw(self) -> _Raw:
        self.connection.execute(BARE_TABLES)
        self.connection.execute("INSERT INTO bare_row VALUES (1, 1, %s, 0)", (self._versions.docs[0],))
        base = {"version": 1, "principal": "bench", "changes": '[["set_property","turn","100000"]]'}
        return _Raw(self.connection, BARE_CAS, _Versions(base, self._versions.docs))

    def life(self, count: int) -> dict[str, float]:
        """Create, rename and drop ``count`` tables in hand; return the rate of each."""
        tables, stamp, made = self.store.tables, time.time_ns(), []
        rates = {}
        names = [f"t{stamp}_{n}" for n in range(count)]

        def create() -> None:
            made.extend([tables.create(name, parent=self._schema, columns=COLUMNS) for name in names])

        def rename() -> None:
            made[:] = [tables.rename(table, f"{table.name}_") for table in made]

        def drop() -> None:
            for table in made:
                tables.drop(table)

        for name, work in (("create", create), ("rename", rename), ("drop", drop)):
            rates[name] = count / seconds(work)
        return rates


def measure(setting: Setting) -> None:
    """Compare on a durable server, then what the library adds where no disk is waited for."""
    _durable(setting)
    _nosync(setting)


def _durable(setting: Setting) -> None:
    figures, runs = setting.figures, setting.runs + 4
    one = _One(setting.durable)
    bare, load_raw, create_raw = one.bare_raw(), one.load_raw(), one.create_raw()
    writes = setting.count(500)
    found = interleaved(
        {
            "alter_per_s": lambda: one.alter(writes),
            "alter_same_sql_per_s": lambda: one.alter_raw.rate(writes),
            "bare_cas_per_s": lambda: bare.rate(writes),
        },
        runs,
    )
    one.check()
    figures.record("write_vs_same_sql", ratios(found["alter_per_s"], found["alter_same_sql_per_s"]))
    figures.record("write_vs_bare_cas", ratios(found["alter_per_s"], found["bare_cas_per_s"]))
    reads = setting.count(2000)
    found |= interleaved(
        {
            "load_per_s": lambda: one.load(reads),
            "load_same_sql_per_s": lambda: load_raw.rate(reads),
        },
        runs,
    )
    figures.record("read_vs_same_sql", ratios(found["load_per_s"], found["load_same_sql_per_s"]))
    for name, values in found.items():
        figures.record(name, values)
    _lives(setting, one, create_raw)
    statements = {"alter": one.alter_raw, "bare_cas": bare, "create": create_raw, "load": load_raw}
    times = interleaved({k: lambda r=r: r.server_us(writes) for k, r in statements.items()}, setting.runs)  # type: ignore[misc]
    for name, values in times.items():
        figures.record(f"{name}_server_us", values)
    one.close()


def _lives(setting: Setting, one: _One, create_raw: _Raw) -> None:
    count, figures = setting.count(300), setting.figures
    lives: list[dict[str, float]] = []

    def life() -> float:
        lives.append(one.life(count))
        return lives[-1]["create"]

    found = interleaved({"create": life, "create_same_sql": lambda: create_raw.rate(count)}, setting.runs)
    figures.record("create_vs_same_sql", ratios(found["create"], found["create_same_sql"]))
    figures.record("create_same_sql_per_s", found["create_same_sql"])
    for verb in ("create", "rename", "drop"):
        figures.record(f"{verb}_per_s", [rates[verb] for rates in lives[1:]])


def _nosync(setting: Setting) -> None:
    one = _One(setting.nosync)
    writes = setting.count(500)
    found = interleaved(
        {"ours": lambda: one.alter(writes), "raw": lambda: one.alter_raw.rate(writes)}, setting.runs + 4
    )
    one.check()
    setting.figures.record("write_vs_same_sql_nosync", ratios(found["ours"], found["raw"]))
    setting.figures.record("alter_nosync_per_s", found["ours"])
    setting.figures.record("alter_same_sql_nosync_per_s", found["raw"])
    one.close()
