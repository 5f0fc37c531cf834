"""That the cost of an operation does not depend on how much there is."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

import psycopg

import metastore as ms
from metastore.kinds.entity import Entity
from metastore.store import Store
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, document, new_lake
from tests.bench.timing import interleaved, ratios, seconds

__all__ = ["fill", "measure"]

FILL = (
    """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
SELECT %(base)s::bigint + n, %(parent)s::bigint, 'table', 'table', 'table_' || n, 'table_' || n, false, 0, true, 1
FROM generate_series(1, %(count)s::int) n""",
    """INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
SELECT %(base)s::bigint + n, 1, %(doc)s::text, 'bench', %(now)s::bigint, 'bench', %(now)s::bigint
FROM generate_series(1, %(count)s::int) n""",
    """INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, principal, time,
  path_after, changes, scope_version, in_use, doc)
SELECT 99, md5(%(base)s::text || n / 1000)::uuid, n %% 1000, nextval('change_seq'), %(base)s::bigint + n, 1, 'table',
  'create', 'bench', %(now)s::bigint, %(path)s::text || '.table_' || n, '[]', 1, true, %(doc)s::text
FROM generate_series(1, %(count)s::int) n""",
    "SELECT setval('entity_id_seq', %(base)s::bigint + %(count)s::int)",
)
"""What create_many would leave behind, written by the server itself."""

Timed = dict[str, Callable[[], float]]


def measure(setting: Setting) -> None:
    """Compare large schemas with small ones; each size has a database of its own, so that no index is shared."""
    large, small = new_lake(setting.durable, "m1", "k100"), new_lake(setting.durable, "k10", "k1", "s10")
    million, many = (200_000, 20_000) if setting.quick else (1_000_000, 100_000)
    fill(large, {"m1": million, "k100": many})
    fill(small, {"k10": 10_000, "k1": 1_000, "s10": 10})
    with ms.open(large, principal="bench") as big, ms.open(small, principal="bench") as little:
        _exclusive(setting, big, little)
        _reads(setting, big, little, million)
    _grown(setting)
    for url in (large, small):
        setting.durable.drop_database(url)


def _grown(setting: Setting) -> None:
    """Compare a connection that prepared its statements on an empty database with one that did so later.

    Between the two 50,000 tables come, and no ANALYZE: a plan that was kept must not depend on sizes.
    """
    url = new_lake(setting.durable, "s")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for table in ("guard", "entity", "operation"):
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    with ms.open(url, principal="bench") as early, ms.open(url, principal="bench") as late:
        first = early.tables.create(f"{CATALOG}.s.first", columns=COLUMNS)
        calls: tuple[Callable[[Store], object], ...] = (
            lambda store: store.tables.load(first.path),
            lambda store: store.tables.load(first),
        )
        for call in calls:
            for _ in range(6):
                call(early)
        fill(url, {"s": 50_000}, analyze=False)
        count = setting.count(300)
        for name, call in zip(("load", "load_by_id"), calls, strict=True):
            found = interleaved({"early": _calls(call, early, count), "late": _calls(call, late, count)}, setting.runs)
            setting.figures.record(f"{name}_grown_50k_vs_fresh", ratios(found["early"], found["late"]))


def _calls(call: Callable[[Store], object], store: Store, count: int) -> Callable[[], float]:
    return lambda: seconds(lambda: [call(store) and None for _ in range(count)])


def fill(url: str, schemas: dict[str, int], *, analyze: bool = True) -> None:
    """Give each schema so many tables, as ``create_many`` would leave them behind."""
    doc = document(COLUMNS[:2])
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for name, count in schemas.items():
            row = connection.execute("SELECT id FROM guard WHERE kind = 'schema' AND key = %s", (name,)).fetchone()
            base = connection.execute("SELECT nextval('entity_id_seq'), 1700000000000000").fetchone()
            assert row
            assert base
            values = {"parent": row[0], "base": base[0], "now": base[1], "count": count, "doc": doc}
            for statement in FILL:
                connection.execute(statement, {**values, "path": f"{CATALOG}.{name}"}, prepare=False)
        if analyze:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CREATE EXTENSION pg_prewarm")  # both sizes from memory: not how fast the disk is
            for relation in ("guard", "guard_live_name", "guard_pkey", "entity", "entity_pkey"):
                connection.execute("SELECT pg_prewarm(%s)", (relation,))
            connection.execute("CHECKPOINT")


def _exclusive(setting: Setting, big: Store, little: Store) -> None:
    """Time one rename, and one drop of everything, on 100,000 tables and on 10."""
    figures, count = setting.figures, setting.count(20)
    runs = setting.runs + 2
    ends = {"100k": _Scope(big, "k100"), "10": _Scope(little, "s10")}
    renames = interleaved({k: lambda s=s: s.rename(count) for k, s in ends.items()}, runs)  # type: ignore[misc]
    drops = interleaved({k: lambda s=s: s.drop(count) for k, s in ends.items()}, runs)  # type: ignore[misc]
    figures.record("rename_schema_100k_vs_10", ratios(renames["100k"], renames["10"]))
    figures.record("drop_cascade_100k_vs_10", ratios(drops["100k"], drops["10"]))
    figures.record("rename_schema_100k_ms", [1000 * s for s in renames["100k"]])
    figures.record("drop_cascade_100k_ms", [1000 * s for s in drops["100k"]])


class _Scope:
    """One schema that is renamed, dropped and restored; each gives the seconds of one operation."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._path = f"{CATALOG}.{name}"
        self._schema: Entity = store.schemas.load(self._path)

    def rename(self, count: int) -> float:
        def work() -> None:
            for n in range(count):
                self._schema = self._store.schemas.rename(self._schema, f"renamed{n}")

        taken = seconds(work)
        self._schema = self._store.schemas.rename(self._schema, self._path.rpartition(".")[2])
        return taken / count

    def drop(self, count: int) -> float:
        taken = 0.0
        for _ in range(count):
            schema = self._schema
            taken += seconds(lambda s=schema: self._store.schemas.drop(s, cascade=True))  # type: ignore[misc]
            self._schema = self._store.schemas.restore(self._path)
        return taken / count


def _reads(setting: Setting, big: Store, little: Store, million: int) -> None:
    figures, runs = setting.figures, setting.runs
    count = setting.count(1000)
    loads = interleaved(
        {"1m": _loader(big, "m1", million, count), "10k": _loader(little, "k10", 10_000, count)}, runs + 4
    )
    pages = interleaved({"1m": _first_page(big, "m1"), "1k": _first_page(little, "k1")}, runs + 4)
    names = interleaved({"1m": _first_names(big, "m1"), "1k": _first_names(little, "k1")}, runs + 4)
    figures.record("load_1m_vs_10k", ratios(loads["1m"], loads["10k"]))
    figures.record("load_1m_us", [1e6 * s for s in loads["1m"]])
    figures.record("first_page_1m_vs_1k", ratios(pages["1m"], pages["1k"]))
    figures.record("first_page_1m_ms", [1000 * s for s in pages["1m"]])
    figures.record("first_page_names_1m_vs_1k", ratios(names["1m"], names["1k"]))


def _loader(store: Store, schema: str, size: int, count: int) -> Callable[[], float]:
    chance = random.Random(size)

    def loads() -> float:
        paths = [f"{CATALOG}.{schema}.table_{chance.randint(1, size)}" for _ in range(count)]
        return seconds(lambda: [store.tables.load(path) and None for path in paths]) / count

    return loads


def _first_page(store: Store, schema: str) -> Callable[[], float]:
    parent = store.schemas.load(f"{CATALOG}.{schema}")
    return lambda: min(seconds(lambda: list(islice(store.tables.list(parent), 1000))) for _ in range(3))


def _first_names(store: Store, schema: str) -> Callable[[], float]:
    parent = store.schemas.load(f"{CATALOG}.{schema}")
    return lambda: min(seconds(lambda: list(islice(store.tables.names(parent), 1000))) for _ in range(3))
