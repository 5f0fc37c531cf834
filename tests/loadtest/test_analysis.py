"""The figures of an analysis, against answers known beforehand and against plain Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from metastore.checker.records import OUTCOMES, Lost, Operation
from metastore.errors import InvalidArgument
from metastore.loadtest.report.model import Analysis, Run
from tests.loadtest.plain import plain_run
from tests.loadtest.record_folders import operation, write_run


def analyse(spark: Any, folder: Path) -> Analysis:
    from metastore.loadtest.report.analysis import analyse

    return analyse(spark, folder)


CASES: dict[str, Callable[[Path], object]] = {}
"""What writes the records of the test of that name. All of them are runs of one ramp: Spark looks at them once."""


def records(write: Callable[[Path], object]) -> Callable[[Path], object]:
    CASES[write.__name__] = write
    return write


@pytest.fixture(scope="module")
def ramp(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("ramp")
    for number, write in enumerate(CASES.values()):
        write(folder / f"clients-{number}")
    (folder / "clients-99" / "log").mkdir(parents=True)  # interrupted before it was gathered
    return analyse(spark, folder)


@pytest.fixture
def run(ramp: Analysis, request: pytest.FixtureRequest) -> Run:
    """Give the run whose records the case of the test's own name wrote."""
    return ramp.runs[list(CASES).index(request.node.originalname.removeprefix("test_"))]


@records
def known_operations(folder: Path) -> None:
    made = [operation("a", n, ms=float(n), start=n / 10) for n in range(1, 101)]  # 1 … 100 ms, over ten seconds
    made += [
        operation("b", 1, ms=400.0, attempts=5, causes=["self", "self", "pending", "self"], helped=True, start=2.0)
    ]
    made += [operation("b", 2, ms=9000.0, outcome="conflicted", attempts=3, causes=["marked"] * 3, start=0.1)]
    made += [operation("b", 3, ms=None, outcome="open", start=1.0), operation("b", 4, outcome="unknown", start=1.0)]
    made += [operation("b", 5, action="create", outcome="failed", ms=7.0, start=1.0)]
    made += [operation("b", n, action="load", outcome="read", ms=0.5, attempts=0, start=1.0) for n in range(6, 16)]
    made += [operation("b", 16, action="load", outcome="conflicted", ms=3.0, attempts=0, start=1.0)]
    write_run(folder, made)


def test_known_operations(run: Run) -> None:
    assert run.whole.outcomes == {
        "applied": 101, "nothing": 0, "read": 10, "failed": 1, "conflicted": 2, "unknown": 1, "open": 1
    }  # fmt: skip
    assert [action.name for action in run.actions] == ["alter", "create", "load"]
    alter, create, load = run.actions
    assert (alter.operations, create.operations, load.operations) == (104, 1, 11)
    assert alter.commit is not None
    assert (alter.commit.count, alter.commit.p50, alter.commit.p90, alter.commit.p99) == (101, 51.0, 91.0, 100.0)
    assert alter.commit.max == 400.0
    assert alter.commit.mean == pytest.approx((5050 + 400) / 101)
    assert create.commit is None
    assert create.read is None
    assert load.read is not None
    assert (load.read.count, load.read.p99, load.writes, load.attempts) == (10, 0.5, 0, 0)
    assert (alter.writes, alter.attempts, alter.attempts_max, alter.attempts_p99) == (104, 110, 5, 3)
    assert alter.attempts_mean == 110 / 104
    assert (alter.conflicts, run.whole.conflicts) == (7, 7)
    assert list(alter.causes.items()) == [("marked", 3), ("self", 3), ("pending", 1)]
    assert run.whole.causes == alter.causes
    assert run.whole.conflict_rate == 7 / 111
    assert (run.whole.helped, run.whole.helped_share) == (1, 1 / 101)
    assert run.attempts_histogram == ((1, 103), (3, 1), (5, 1))
    assert run.seconds == pytest.approx(10.0, abs=1e-3)  # from 0.1 to 10.1 s
    assert run.operations_per_second == pytest.approx(115 / 10.0, rel=1e-3)  # with the three that gave up
    assert (run.whole.gave_up, load.gave_up) == (3, 1)
    assert [(share.client, share.operations, share.conflicts) for share in run.shares] == [("a", 100, 0), ("b", 12, 7)]
    assert run.slowest_fastest == (12, 100)
    assert run.fairness == pytest.approx(112**2 / (2 * (100**2 + 12**2)))


@records
def stall(folder: Path) -> None:
    made = [operation("a", n, start=n * 0.05, ms=10) for n in range(20)]
    made += [operation("a", 20 + n, start=1.0, ms=9000 + n, causes=["self"], attempts=2) for n in range(5)]
    made += [operation("b", 1, action="load", outcome="read", attempts=0, start=9.5, ms=800)]
    made += [operation("b", 2, outcome="open", ms=None, start=5.0)]
    write_run(folder, made)


def test_stall(run: Run) -> None:
    """A stall is zeros, not a gap; what counts is when it returned."""
    assert run.seconds == pytest.approx(10.3, abs=1e-3)
    assert run.moments[0].start == 0.0
    assert run.moments[-1].start + run.moments[-1].seconds == run.seconds
    assert all(one.start + one.seconds == pytest.approx(two.start) for one, two in pairwise(run.moments))
    assert {round(moment.seconds, 6) for moment in run.moments[:-1]} == {0.2}
    assert sum(moment.operations for moment in run.moments) == 26
    assert sum(moment.writes for moment in run.moments) == 25
    assert [moment.operations for moment in run.moments if 1.2 <= moment.start < 9.6] == [0] * 42
    late = [moment for moment in run.moments if moment.conflicts]
    assert [(moment.start, moment.conflicts, moment.attempts, moment.conflict_rate) for moment in late] == [
        (10.0, 5, 10, 0.5)
    ]


@records
def hot_entities(folder: Path) -> None:
    made = [operation("a", n, causes=["self"] * 2, on=5, path="l.c.s.old", start=n) for n in range(3)]
    made += [operation("a", 3, causes=["self"] * 5, on=6, path="l.c.s.six", start=1)]
    made += [operation("a", 4, action="rename", on=6, path="l.c.s.six", to="l.c.s.seven", start=2)]
    made += [operation("a", 5, causes=["name"] * 4, on=None, path="l.c.s.new", start=3)]
    made += [operation("a", 6, action="transaction", causes=["read"] * 3, on=None, path="l.c.t.new", start=4)]
    made += [operation("a", 7, causes=["operation"], on=5, path=None, start=9)]
    made[-1].conflicts = [Lost("operation")]
    made += [operation("a", 8, causes=["busy"] * 99, on=None, path=None)]  # nobody knows where
    made += [operation("b", n, causes=["self"], on=100 + n, path=f"l.c.s.t{n}", start=3) for n in range(20)]
    events = [(1, 5, None, "l.c.s.old"), (2, 5, "l.c.s.old", "l.c.t.new"), (3, 5, "l.c.t.new", None)]
    write_run(folder, made, events=events)


def test_hot_entities(run: Run) -> None:
    """Each stands where it was last: the feed knows best, then the operations. Who knows only a path means it, too."""
    assert [(hot.entity_id, hot.path, hot.conflicts, hot.operations) for hot in run.hot[:3]] == [
        (5, "l.c.t.new", 6 + 3 + 1, 3 + 2),
        (6, "l.c.s.seven", 5, 2),
        (None, "l.c.s.new", 4, 1),
    ]
    assert len(run.hot) == 10


@records
def idle_clients(folder: Path) -> None:
    made = [operation(client, n) for client in ("r1-2", "r1-10", "r1-2.1") for n in range(2)]
    facts = {"clients": 3, "names": ["r1-0", "r1-2", "r1-10"], "calls": {"r1-0": 0, "r1-10": 2, "r1-2.1": 2}}
    write_run(folder, made, facts | {"url": "postgresql://me:secret@host/db"})


def test_idle_clients(run: Run) -> None:
    """One that says that it made no call got nothing done; one that was begun again is one client."""
    assert [(share.client, share.operations) for share in run.shares] == [("r1-0", 0), ("r1-2", 4), ("r1-10", 2)]
    assert (run.clients, run.missing) == (3, ())
    assert run.fairness == pytest.approx(6**2 / (3 * (16 + 4)))
    assert run.slowest_fastest == (0, 4)
    assert "secret" not in str(run.facts)


@records
def missing_clients(folder: Path) -> None:
    """Of ``c-1`` the whole log is missing, of ``c-2`` that of its first incarnation, of ``c-3`` a part."""
    made = [operation(client, n) for client in ("c-0", "c-2.1", "c-3") for n in range(2)]
    facts = {"clients": 5, "names": [f"c-{n}" for n in range(5)], "calls": {"c-1": 9, "c-2.1": 2, "c-3": 3}, "since": 1}
    writers = {1: "c-4/1", 2: "c-1/1", 3: "c-1/2", 4: "c-2/1", 5: "c-2.1/1", 6: "another/1"}
    write_run(folder, made, facts, [(seq, 5, None, "l.c.s.t") for seq in writers], writers)


def test_missing_clients(run: Run) -> None:
    """None of them is idle: the run knows who its clients were, and the feed what they have written in it."""
    assert run.missing == (
        "c-1 left no records, and the feed has 2 events of it",
        "c-2 left no records, and the feed has 1 event of it",
        "c-3 made 3 calls, and left 2 records",
        "c-4 left no records",
    )
    assert [share.client for share in run.shares] == ["c-0", "c-2", "c-3"]
    assert (run.clients, run.fairness) == (5, 1.0)


@records
def fewer_than_clients(folder: Path) -> None:
    write_run(folder, [operation("c-0", 1)], {"clients": 3})


def test_fewer_than_clients(run: Run) -> None:
    """An older run that knows only how many there were."""
    assert (run.clients, run.missing) == (3, ("2 of 3 clients left no records",))


@records
def elsewhere(folder: Path) -> None:
    write_run(folder, [operation("x", 1, on=5, causes=["claim"])], events=[(1, 5, None, "another.place")])


def test_elsewhere(run: Run, ramp: Analysis) -> None:
    """One run's feed, ids and causes say nothing of another's."""
    assert run.whole.causes == {"claim": 1}
    assert [(hot.path, hot.conflicts, hot.operations) for hot in run.hot] == [("another.place", 1, 1)]
    assert ramp.is_ramp
    assert [one.folder for one in ramp.runs] == [f"clients-{n}" for n in range(len(CASES))]


@records
def empty(folder: Path) -> None:
    (write_run(folder, []) / "run.json").write_text("{")


def test_empty(run: Run) -> None:
    """Ctrl-C before the first call, and half a ``run.json``."""
    assert run.facts == {}
    assert run.missing == ("no client left a record",)
    assert set(run.whole.outcomes) == set(OUTCOMES)
    assert (run.clients, run.seconds, run.operations_per_second, run.fairness) == (0, 0.0, 0.0, 1.0)
    assert (run.actions, run.moments, run.commit_histogram, run.attempts_histogram, run.hot) == ((),) * 5


@records
def all_open(folder: Path) -> None:
    write_run(folder, [operation("a", n, outcome="open", ms=None, start=n) for n in range(3)])


def test_all_open(run: Run) -> None:
    assert (run.whole.operations, run.whole.returned, run.seconds, run.fairness) == (3, 0, 0.0, 1.0)


@pytest.mark.only_whole
def test_a_run_alone_is_what_it_is_in_a_ramp(spark: Any, ramp: Analysis, tmp_path: Path) -> None:
    CASES["hot_entities"](tmp_path / "alone")
    (run,) = analyse(spark, tmp_path / "alone").runs
    assert run == replace(ramp.runs[list(CASES).index("hot_entities")], folder="alone")


def test_a_folder_without_records_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no records in .*: expected operations/"):
        analyse(spark, tmp_path)


some_operations = st.lists(
    st.builds(
        operation,
        st.sampled_from(["c1", "c2", "c10"]),
        st.integers(1, 1 << 40),
        action=st.sampled_from(["alter", "create", "load", "transaction"]),
        outcome=st.sampled_from(OUTCOMES),
        start=st.floats(0, 4.5),
        ms=st.floats(0, 1e3),
        attempts=st.integers(0, 5),
        causes=st.lists(st.sampled_from(["self", "pending"]), max_size=4),
        on=st.sampled_from([1, 2, 3]),
        helped=st.sampled_from([None, True, False]),
    ),
    max_size=200,
)


@pytest.mark.only_whole
@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(runs=st.lists(some_operations, min_size=5, max_size=10))
def test_it_equals_plain_python(spark: Any, runs: list[list[Operation]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, made in enumerate(runs):
            for one in made:
                one.end = None if one.outcome == "open" else one.end
            write_run(Path(folder) / f"clients-{number}", made)
        found = analyse(spark, Path(folder)).runs
    for run, made in zip(found, runs, strict=True):
        close(asdict(run), asdict(plain_run(run.folder, made)))


def close(one: Any, other: Any) -> None:
    """Compare values of which the numbers may differ in their last digits."""
    if isinstance(one, Mapping):
        assert one.keys() == other.keys()
        close(list(one.values()), [other[key] for key in one])
    elif isinstance(one, list | tuple):
        for left, right in zip(one, other, strict=True):
            close(left, right)
    else:
        assert one == (pytest.approx(other, rel=1e-6, abs=1e-6) if isinstance(one, float) else other)
