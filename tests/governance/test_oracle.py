"""A short run of the oracle of rights, on each backend and through both servers, of more than 14,000 decisions.

``python -m tests.governance.oracle`` is a long one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.governance.oracle.compare import Difference
from tests.governance.oracle.runs import compared, run, swept
from tests.governance.oracle.sweep import Asking, sweep

pytestmark = pytest.mark.one_in(3)


@pytest.mark.parametrize("seed", [304, 305, 314])
def test_users_see_and_do_what_the_rules_say(seed: int) -> None:
    """The first of these worlds is in SQLite, and two stores serve its users."""
    assert run(400, seed) == []


@pytest.mark.parametrize(("seed", "decisions"), [(304, 3_000), (305, 6_000)])
def test_users_see_everything_that_the_rules_say(seed: int, decisions: int) -> None:
    assert swept(decisions, seed) == []


def _judged(stores: list[Store], seed: int, decisions: int, asking: list[Asking], **options: Any) -> int:
    found: list[Difference] = []
    made = compared(sweep(stores, seed, decisions, asking, **options), found)
    assert found == []
    assert stores[0].verify() == []
    return made


def test_users_see_everything_that_the_rules_say_on_postgresql(postgres_url: str) -> None:
    with ms.open(postgres_url, principal="root") as store, ms.open(postgres_url) as other:
        assert _judged([store, other], 1, 1_500, []) >= 1_500


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)], ids=["application", "server"])
def test_both_servers_show_and_do_what_the_rules_say(sqlite_url: str, tmp_path: Path, real: bool) -> None:
    pytest.importorskip("pyiceberg", reason="needs the extra [serve]")
    from tests.governance.oracle.served import icebergs, serving

    with (
        ms.open(sqlite_url if real else "memory://", principal="root") as store,
        serving(store, tmp_path, real=real) as served,
    ):
        assert _judged([store], 3, 3_000, [served], fields=icebergs(tmp_path)) >= 3_000
        assert served.made >= 400
        assert {"done", "denied", "hidden"} <= served.answers
