"""Versions, ids, limits, deadlines, positions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from tests.bad_input.conftest import TABLE
from tests.bad_input.refusal import refused

NO_POSITIVE_INTEGERS: dict[str, Any] = {
    "0": 0,
    "-1": -1,
    "True": True,
    "False": False,
    "a string": "1",
    "a float": 1.5,
    "a whole float": 1.0,
    "not a number": float("nan"),
    "2**63": 2**63,
    "2**70": 2**70,
    "of 5,000 digits": 10**5000,
    "-2**70": -(2**70),
    "bytes": b"1",
    "a list": [1],
}
CHANGE = ms.SetComment("written")
USES: dict[str, Callable[[ms.Store, Any], Any]] = {
    "load": lambda s, v: s.tables.load(TABLE, version=v),
    "alter": lambda s, v: s.tables.alter(TABLE, CHANGE, expected_version=v),
    "alter in hand": lambda s, v: s.tables.alter(s.tables.load(TABLE), CHANGE, expected_version=v),
    "rename": lambda s, v: s.tables.rename(TABLE, "x", expected_version=v),
    "drop": lambda s, v: s.tables.drop(TABLE, expected_version=v),
    "list": lambda s, v: s.tables.list("m.c.s", page_size=v),
    "names": lambda s, v: s.tables.names("m.c.s", page_size=v),
    "dropped": lambda s, v: s.schemas.dropped("m.c", page_size=v),
    "partitions": lambda s, v: s.partitions.list(TABLE, page_size=v),
    "gc": lambda s, v: s.gc(retention=timedelta(days=1), keep_versions=v),
}


@pytest.mark.parametrize("use", USES)
def test_no_positive_integer(kept: ms.Store, use: str) -> None:
    for name, value in NO_POSITIVE_INTEGERS.items():
        error = refused(ms.InvalidArgument, lambda v=value: USES[use](kept, v))  # type: ignore[misc]
        assert len(str(error)) < 200, name


def test_a_large_version_is_a_plain_mismatch(kept: ms.Store) -> None:
    refused(ms.VersionConflict, lambda: kept.tables.alter(TABLE, CHANGE, expected_version=2**63 - 1))
    refused(ms.VersionConflict, lambda: kept.tables.drop(TABLE, expected_version=2))
    refused(ms.EntityNotFound, lambda: kept.tables.load(TABLE, version=2**63 - 1), "no version")
    refused(ms.EntityNotFound, lambda: kept.tables.load(TABLE, version=2), "no version")


def test_the_largest_numbers_work(kept: ms.Store) -> None:
    largest = 2**63 - 1
    assert [t.name for t in kept.tables.list("m.c.s", page_size=largest)] == ["t"]
    assert len(list(kept.changes(limit=largest))) == 6
    assert len(list(kept.changes(limit=0))) == 0


@pytest.mark.parametrize("limit", [-1, True, "1", 1.5, 2**63, 2**70, b"1"])
def test_limits(kept: ms.Store, limit: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.changes(limit=limit), "a limit")


NO_DEADLINES: dict[str, Any] = {
    "0": 0,
    "-1": -1.0,
    "True": True,
    "a string": "1",
    "not a number": float("nan"),
    "for ever": float("inf"),
    "more than a thread can wait": 1e10,
    "1e300": 1e300,
    "of 400 digits": 10**400,
    "of 5,000 digits": 10**5000,
    "a timedelta": timedelta(seconds=1),
}


@pytest.mark.parametrize("deadline", NO_DEADLINES.values(), ids=NO_DEADLINES)
def test_deadlines(kept: ms.Store, kept_url: str, deadline: Any) -> None:
    refused(ms.InvalidArgument, lambda: ms.open(kept_url, deadline=deadline), "a deadline")
    refused(ms.InvalidArgument, lambda: kept.tables.alter(TABLE, CHANGE, deadline=deadline), "a deadline")
    refused(ms.InvalidArgument, lambda: kept.tables.create("m.c.s.x", deadline=deadline), "a deadline")
    refused(ms.InvalidArgument, lambda: kept.tables.drop(TABLE, deadline=deadline), "a deadline")
    refused(ms.InvalidArgument, lambda: kept.transaction(deadline=deadline), "a deadline")
    refused(ms.InvalidArgument, lambda: kept.run(lambda _: None, deadline=deadline), "a deadline")


def test_a_store_has_a_deadline(kept_url: str) -> None:
    """None means the store's own: it is for calls and views."""
    refused(ms.InvalidArgument, lambda: ms.open(kept_url, deadline=None), "a deadline")  # type: ignore[arg-type]


def test_a_very_long_deadline_works(ground: ms.Store, url: str) -> None:
    with ms.open(url, deadline=1_000_000_000) as store:
        assert store.tables.alter(TABLE, CHANGE, deadline=999_999_999.5).comment == "written"


@pytest.mark.parametrize("retention", [timedelta(days=-1), 5, "1 day", None, timedelta(microseconds=-1)])
def test_retentions(kept: ms.Store, retention: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.gc(retention=retention), "the retention")


def test_the_longest_retention_collects_nothing(kept: ms.Store) -> None:
    assert kept.gc(retention=timedelta.max) == ms.Collected(0, 0, 0)


@pytest.mark.parametrize("wrong", [2**63 - 1, 999, -1, 0])
def test_restore_of_an_id_that_is_not_there(kept: ms.Store, wrong: int) -> None:
    refused(ms.EntityNotFound, lambda: kept.schemas.restore("m.c.gone", id=wrong), "no dropped schema")


def test_restore_of_what_is_no_id(kept: ms.Store) -> None:
    for wrong in (True, "x", 1.5, 2**70, -(10**5000), b"1", object()):
        refused(ms.InvalidArgument, lambda w=wrong: kept.schemas.restore("m.c.gone", id=w), "an id is an integer")  # type: ignore[misc]


@pytest.mark.parametrize("wrong", ["", "x", "-", "x-1", "-1", 5, b"x", 0, True, "\0"])
def test_positions(kept: ms.Store, wrong: Any) -> None:
    refused(ms.InvalidArgument, lambda: kept.changes(after=wrong))


def test_positions_that_were_tampered_with(kept: ms.Store) -> None:
    good = next(kept.changes()).position
    epoch, _, _ = good.rpartition("-")
    for wrong in (epoch, epoch + "-", epoch + "-zz", epoch + "--1", "0" + good, good + "x", good.upper() + "Z"):
        refused(ms.InvalidArgument, lambda w=wrong: kept.changes(after=w))  # type: ignore[misc]


def test_a_position_beyond_all_numbers(kept: ms.Store) -> None:
    epoch, _, _ = next(kept.changes()).position.rpartition("-")
    refused(ms.InvalidArgument, lambda: kept.changes(after=f"{epoch}-{'f' * 30}"))
