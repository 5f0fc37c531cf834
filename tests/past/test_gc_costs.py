"""A batch of gc costs the same whatever lies beside it: blocks of the generic plan, which a store ends up with."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.reads import PostgresReads
from metastore.backends.sql.gc import POSTGRES_DELETE_STEPS, POSTGRES_PAST_FROM

pytestmark = pytest.mark.postgres

_SMALL, _LARGE = 1_000, 10_000
_PAGE = 200


def _blocks(connection: psycopg.Connection[Any], sql: str, values: dict[str, int]) -> int:
    """Return how many blocks a statement reads, prepared as the store prepares it."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", sql)
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE it ({', '.join('bigint' for _ in names)}) AS {text}")
    given = ", ".join(str(values[name]) for name in names)
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE it({given})"
    ((told,),) = connection.execute(explain).fetchall()
    plan = told[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("analyzed", [True, False])
def test_a_batch_reads_what_it_judges(postgres_url: str, analyzed: bool) -> None:
    limits = {"before": 1 << 60, "unread": 1 << 60, "keep": 1, "horizon": 1 << 60, "after": 0, "page_size": _PAGE}
    asked = {
        "judged": (POSTGRES_PAST_FROM, "operation", "seq"),
        "deleted": (POSTGRES_DELETE_STEPS, "operation", "seq"),
        "swept": (PostgresReads.sql.sweep, "relation", "id"),
    }
    found = dict[str, list[int]]({what: [] for what in asked})
    with ms.open(postgres_url) as store, psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")  # as a store does
        connection.execute("SET plan_cache_mode = 'force_generic_plan'")
        connection.commit()
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        tag, made = store.tags.create("m.pii"), 0
        for wanted in (_SMALL, _LARGE):
            names = [f"t{n}" for n in range(made, wanted)]
            store.tables.create_many("m.c.s", [{"name": name} for name in names])
            store.tags.attach_many(tag, [{"target": f"m.c.s.{name}", "kind": "table"} for name in names])
            for name in names[-_PAGE:]:
                store.tables.alter(f"m.c.s.{name}", ms.SetComment("a second version"))
            made = wanted
            if analyzed:
                connection.execute("ANALYZE")
                connection.commit()
            for what, (sql, table, column) in asked.items():
                query = f"SELECT {column} FROM {table} ORDER BY {column} DESC OFFSET {_PAGE} LIMIT 1"
                ((after,),) = connection.execute(query).fetchall()
                connection.execute("UPDATE info SET writer = 99, past_from = 1 << 60")
                found[what].append(_blocks(connection, sql, {**limits, "after": after}))
                connection.rollback()
    for small, large in found.values():
        assert large <= 1.3 * small, found
