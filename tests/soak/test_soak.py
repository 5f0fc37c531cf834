"""The soak's checker finds what is wrong; a short run of the whole keeps it working."""

from __future__ import annotations

from pathlib import Path

import pytest

import metastore as ms
from tests.concurrency.checks import seed
from tests.progress.accounts import LATE, Ledger, wrong
from tests.soak import memory
from tests.soak.__main__ import main


def test_the_checker_finds_what_is_wrong(sqlite_url: str, tmp_path: Path) -> None:
    """The negative control: calls that tell lies."""
    seed(sqlite_url, "lake.cat.s.t")
    path = tmp_path / "p1"
    with ms.open(sqlite_url) as store:

        def create(principal: str) -> None:
            store.tables.create(f"lake.cat.s.{principal}", principal=principal)

        def twice(principal: str) -> None:
            create(principal)
            store.tables.alter(f"lake.cat.s.{principal}", ms.SetComment("again"), principal=principal)

        def nothing(principal: str) -> None:
            pass

        def fails_after_all(principal: str) -> None:
            create(principal)
            raise ms.DeadlineExceeded("it says that it was not applied")

        def unknown(principal: str) -> None:
            create(principal)
            raise ms.OutcomeUnknown(ms.new_operation_id())

        ledger = Ledger(path, "p1")
        for call in (create, twice, nothing, fails_after_all, unknown):
            ledger.call(call, 5.0)
        ledger.call(create, -LATE - 1.0)
        ledger.close()
        create("p1-stranger")
    found, totals = wrong(sqlite_url, [path])
    assert totals == {"ok": 4, "DeadlineExceeded": 1, "unknown": 1}
    assert sorted(line.partition(":")[0] for line in found) == ["p1-2", "p1-3", "p1-4", "p1-6", "p1-stranger"]


@pytest.mark.only_whole
@pytest.mark.postgres
@pytest.mark.slow
def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "0.05", "--clients", "3", "--seed", "3"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_growth_counts_sessions_that_lived_through_the_second_half() -> None:
    samples = [{1: 9}, {1: 10, 2: 10}, {1: 11, 2: 10, 3: 1}, {1: 12, 3: 40}, {1: 15, 3: 80}]
    assert memory.growth(samples) == {1: 4, 3: 79}


@pytest.mark.long
@pytest.mark.postgres
def test_sessions_do_not_grow_when_batches_fail() -> None:
    assert memory.main(["--minutes", "0.5", "--seed", "3"]) == 0
