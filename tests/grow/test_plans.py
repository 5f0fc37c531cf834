"""No statement of a bounded answer reads more in a larger store, with statistics or without: the plans say so.

A page of a listing and a batch of gc are bounded too: no node of their plans reads more than a few pages.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import psycopg
import pytest

import metastore as ms
from metastore.feed.feed import _LONGEST
from tests.bad_input import surface
from tests.grow.__main__ import RICH, calls, mend
from tests.grow.lines import ANSWERS
from tests.grow.plans import SETTINGS, Log, Ran, wide
from tests.grow.report import TRUSTED
from tests.grow.skew import Skew, fill
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.postgres]

_SMALL, _LARGE = 1_500, 15_000
_ROWS = 3_000
"""So many rows one node of a plan may read for a bounded answer."""
_FEED, _HIDDEN = ("store.changes", "changes for one", "store.changes_page"), 2 * _LONGEST
"""A user's page of the feed may be long, where little of it is shown."""
Plans = dict[tuple[str, str], list[Ran]]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings=SETTINGS, in_memory=True) as one:
        yield one


def _ran(server: PostgresServer, entities: int, analyzed: bool) -> Plans:
    ms.migrate(url := server.create_database())
    fill(url, Skew(entities))
    if analyzed:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
    log, found = Log(server.log), Plans()
    with ms.open(url, principal="grow", deadline=60.0) as store:
        for call, by, work in calls(store):
            if ANSWERS[call] == "all" and call != "store.gc":
                continue
            log.new()
            with contextlib.suppress(ms.MetastoreError):
                answer = work()
                list(answer) if isinstance(answer, Iterator) else None
            found[call, by] = log.new()
            mend(store)
    return found


@pytest.mark.parametrize("analyzed", [True, False])
def test_a_bounded_answer_reads_the_same_in_a_larger_store(server: PostgresServer, analyzed: bool) -> None:
    small, large = (_ran(server, entities, analyzed) for entities in (_SMALL, _LARGE))
    assert len(large) > len(surface.METHODS) // 2
    assert "$" in json.dumps(large["load a table", TRUSTED][0].plan)  # the plan for any parameters is the one that ran
    for by_name in ("catalogs.rename", "catalogs.drop"):
        assert any("there AS MATERIALIZED" in ran.text for ran in large[by_name, TRUSTED])  # MOVE_NAMED
    broken = [
        f"{call}: {why} in {ran.text[:300]}"
        for call, found in large.items()
        for ran in found
        for why in wide(ran, _HIDDEN if call[0] in _FEED and call[1] != TRUSTED else _ROWS)
    ]
    for call, found in large.items():
        if ANSWERS[call[0]] != "one":
            continue  # what returns many costs what it returns: ``make grow`` judges that
        before, after = (sum(ran.blocks for ran in some) for some in (small[call], found))
        of_roles = _LARGE // _SMALL if call[1] in RICH else 1  # a user's rights cost what it has
        if after > 1.3 * of_roles * before + 60:
            broken.append(f"{call}: {before} blocks became {after}")
    assert broken == []
