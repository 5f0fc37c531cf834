"""Scenarios without Spark: what their clients ask for, and how a user's files are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import metastore as ms
from metastore.checker.recorder import Recorder
from metastore.checker.records import Operation
from metastore.errors import InvalidArgument
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios import SCENARIOS, Ended, Mix, Scenario, scenario_named
from metastore.loadtest.scenarios.commit_burst import ticks
from metastore.loadtest.scenarios.trace import Trace, read_trace
from metastore.loadtest.scenarios.weights import Weighted, zipf
from tests.loadtest.alone import alone

TRACE = """{"client": "ada", "ops": [["create", "a/b", "1"], ["create", "c", "1"]]}
{"client": "bob", "ops": [["create", "d", "1"], ["rename", "a/b", "x/y/b", "2"]]}
{"client": "ada", "ops": [["alter", "c", "3"], ["drop", "d"]]}
{"head": {"x/y/b": "2", "c": "3"}}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text(TRACE)
    return path


# --- all of them


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_runs_alone_and_together(name: str, tmp_path: Path, trace: Path) -> None:
    """By one client, and by four that take turns: something of each is applied, and nothing is unknown."""
    for clients in (1, 4):
        run = alone(small(name, trace), tmp_path / str(clients), clients=clients, turns=300 // clients)
        outcomes = Counter(operation.outcome for operation in run.operations)
        assert outcomes["applied"] > 0
        assert set(outcomes) <= {"applied", "nothing", "read", "failed"}
        assert run.store.verify() == []


def small(name: str, trace: Path) -> Scenario:
    if name == "zipf":
        return Mix(schemas=3, tables=20, weights={"load": 1, "list": 1, "exists": 1, **dict.fromkeys(WRITES, 1.0)})
    return scenario_named(name, trace=str(trace) if name == "trace" else None)


WRITES = ("alter", "create", "drop", "rename", "move", "transaction", "freeze")


def test_the_same_seed_asks_for_the_same(tmp_path: Path) -> None:
    def asked(seed: int, folder: str) -> list[tuple[str, str | None]]:
        run = alone(SCENARIOS["drop-recreate"](), tmp_path / folder, clients=2, turns=50, seed=seed)
        return [(operation.action, operation.path) for operation in run.operations]

    assert asked(1, "a") == asked(1, "b")
    assert asked(1, "c") != asked(2, "d")


# --- records


def test_a_record_says_what_was_written(tmp_path: Path) -> None:
    """Each operation's writes are in the feed under its name, with the id and the versions that it tells."""
    run = alone(
        Mix(schemas=2, tables=6, reads=20, weights={"load": 1, **dict.fromkeys(WRITES, 1.0)}), tmp_path, turns=200
    )
    events: dict[str | None, list[ms.Change]] = {}
    for change in run.store.changes():
        events.setdefault(change.principal, []).append(change)
    for operation in run.operations:
        wrote = events.pop(operation.principal, [])
        assert bool(wrote) == (operation.outcome == "applied"), operation
        if wrote and operation.action not in ("transaction", "freeze", "drop"):
            (event,) = wrote
            assert (event.entity_id, event.version) == (operation.entity_id, operation.version_after)
            assert (event.action, str(event.operation_id)) == (operation.action, operation.operation_id)
            assert (operation.version_before or 0) + 1 == operation.version_after
    assert set(events) == {None}  # what was there at the start


def test_a_record_says_what_was_read(tmp_path: Path) -> None:
    run = alone(SCENARIOS["drop-recreate"](), tmp_path, clients=4, turns=200)
    by_action: dict[tuple[str, str], list[Operation]] = {}
    for operation in run.operations:
        by_action.setdefault((operation.action, operation.outcome), []).append(operation)
    for operation in by_action["load", "read"]:
        assert [(seen.path, seen.there) for seen in operation.reads] == [(operation.path, True)]
        assert operation.reads[0].version is not None
    for action in ("load", "alter"):
        for operation in by_action[action, "failed"]:
            assert [(seen.path, seen.there) for seen in operation.reads] == [(operation.path, False)]
    for operation in by_action["create", "failed"]:
        assert operation.error == "EntityAlreadyExists"
        assert [(seen.path, seen.there) for seen in operation.reads] == [(operation.path, True)]
    for operation in by_action["drop", "nothing"]:
        assert [(seen.path, seen.there) for seen in operation.reads] == [(operation.path, False)]
    assert any(len(operation.reads) > 1 for operation in by_action["list", "read"])


def test_siblings_promise_that_they_do_not_conflict() -> None:
    siblings = SCENARIOS["siblings"]()
    with ms.open("memory://") as store:
        assert siblings.broken(store, Ended("l.c", 2, False, {"lost": 3, "busy": 1})) == []
        (finding,) = siblings.broken(store, Ended("l.c", 2, False, {"ancestor": 2, "lost": 1}))
    assert "2 of cause ancestor" in finding.message
    assert "lost" not in finding.message


def test_a_burst_comes_after_a_stall(tmp_path: Path) -> None:
    """Ten ticks with a commit each, ten without, ten commits at once; all of it fits into a short run."""
    run = alone(SCENARIOS["commit-burst"](), tmp_path, clients=2, turns=80, seconds=4.0)
    assert ticks(4.0) == pytest.approx(0.1)
    mine = [(at, operation) for at, operation in zip(run.times, run.operations, strict=True) if run.mine(operation, 0)]
    queued = [at for at, operation in mine if operation.values == {"queued": 1.0}]
    assert len(queued) >= 10
    first = queued[:10]
    assert max(first) - min(first) < 0.01
    before = max(at for at, operation in mine if at < min(first))
    assert min(first) - before == pytest.approx(1.0, abs=0.1)
    assert sum(at < min(first) for at, _ in mine) == 10


# --- the mix


def test_zipf_is_as_skewed_as_it_says() -> None:
    dice = Random(5)
    skewed = zipf(1000, 0.99)
    counts = Counter(skewed.draw(dice) for _ in range(50_000))
    whole = sum((n + 1) ** -0.99 for n in range(1000))
    for n in (0, 1, 9, 99):
        assert counts[n] / 50_000 == pytest.approx((n + 1) ** -0.99 / whole, rel=0.25)
    flat = zipf(10, 0.0)
    even = Counter(flat.draw(dice) for _ in range(50_000))
    assert all(count / 50_000 == pytest.approx(0.1, rel=0.1) for count in even.values())


def test_what_has_no_weight_is_never_drawn() -> None:
    dice = Random(1)
    assert {Weighted("abc", (0, 1, 0)).draw(dice) for _ in range(1000)} == {"b"}


def test_the_usual_mix(tmp_path: Path) -> None:
    mix = Mix()
    assert (mix.schemas, mix.tables, mix.reads) == (100, 100_000, 80.0)
    assert sum(mix.shares().values()) == pytest.approx(1.0)
    assert mix.shares()["load"] == pytest.approx(0.8)
    run = alone(Mix(schemas=4, tables=200), tmp_path, turns=2000)
    counts = Counter(operation.action for operation in run.operations)
    for action, share in mix.shares().items():
        if action not in ("create", "drop"):  # who has nothing to drop creates
            assert counts[action] / 2000 == pytest.approx(share, abs=0.03)
    assert counts["create"] + counts["drop"] == pytest.approx(2000 * 0.075, abs=60)


def test_tables_stay_where_others_can_find_them(tmp_path: Path) -> None:
    """Renames and moves lead others astray once, not for ever."""
    weights = {"load": 1.0, "rename": 1.0, "move": 1.0}
    run = alone(Mix(schemas=3, tables=5, reads=80, weights=weights), tmp_path, clients=3, turns=400)
    loads = Counter(operation.outcome for operation in run.operations if operation.action == "load")
    assert loads["read"] > loads["failed"]
    assert len([*_tables(run.store, run.ground)]) == 5


def _tables(store: ms.Store, ground: str) -> Iterator[str]:
    for schema in store.schemas.list(ground):
        yield from store.tables.names(schema)


# --- a user's files


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "schemas = 2\ntables = 30\nskew = 1.2\nreads = 50\nthink = 0.01\n"
        "[weights]\nload = 1\nlist = 1\nalter = 3\nmove = 1\n"
    )
    mix = scenario_named(str(path))
    assert isinstance(mix, Mix)
    assert (mix.name, mix.schemas, mix.tables, mix.skew, mix.think) == ("mine", 2, 30, 1.2, 0.01)
    shares = {"load": 0.25, "list": 0.25, "alter": 0.375, "move": 0.125}
    assert {action: share for action, share in mix.shares().items() if share} == pytest.approx(shares)
    assert scenario_named(str(path), skew=0.5).parameters()["skew"] == 0.5


BAD = {
    "an unknown key": ("tabels = 3", "unknown key 'tabels'; known are name, schemas, tables"),
    "an unknown operation": (
        "[weights]\nalters = 1",
        "unknown operation 'alters'; known are load, exists, list, alter",
    ),
    "no TOML": ("tables = ", "is not TOML"),
    "no number": ('tables = "3"', "tables is an integer of at least 1, not '3'"),
    "no tables": ("tables = 0", "tables is an integer of at least 1"),
    "a truth": ("schemas = true", "schemas is an integer"),
    "more than all": ("reads = 101", "reads is a number from 0 to 100"),
    "not a number": ("skew = nan", "skew is a number from 0 to 10, not nan"),
    "a negative weight": ("[weights]\nload = -1", "the weight of load is a number from 0"),
    "weights that are none": ("weights = 3", "weights is a table"),
    "reads without a kind": (
        "[weights]\nalter = 1",
        "80 % are reads, but no read has a weight; set one of load, exists, list",
    ),
    "writes without a kind": ("[weights]\nload = 1", "20 % are writes, but no write has a weight"),
    "no name": ("name = 3", "name is a text"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_a_bad_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgument) as raised:
        scenario_named(str(path))
    assert message in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hot", {}, "there is no scenario 'hot'; known are hot-table, siblings"),
        ("no/such.toml", {}, r"the scenario no/such\.toml cannot be read: No such file"),
        ("hot-table", {"skew": 0.5}, "hot-table has no skew"),
        ("zipf", {"skew": -1.0}, "skew is a number from 0 to 10"),
        ("siblings", {"trace": "x"}, "siblings replays no trace"),
        ("trace", {}, "needs a trace file"),
        ("trace", {"trace": "/no/such"}, "the trace /no/such cannot be read: No such file"),
    ],
)
def test_scenarios_that_cannot_be(name: str, options: dict[str, float | str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        scenario_named(name, **options)  # type: ignore[arg-type]


# --- traces


def test_a_trace_is_replayed(tmp_path: Path, trace: Path) -> None:
    """By one client, the tree is the trace's; a tree that is not is told."""
    scenario = Trace(path=str(trace))
    run = alone(scenario, tmp_path)
    assert run.finished
    assert not [
        operation for operation in run.operations if operation.outcome == "failed" and operation.action != "load"
    ]
    ended = Ended(run.ground, 1, True, {})
    assert scenario.broken(run.store, ended) == []
    run.store.tables.alter(f"{run.ground}.root.c", ms.SetProperty("value", "4"))
    (finding,) = scenario.broken(run.store, ended)
    assert "1 paths differ, such as c" in finding.message


def test_a_trace_of_names_with_blanks_is_replayed(tmp_path: Path) -> None:
    """Gravitino's own history has a file whose name begins with one."""
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"client": "a", "ops": [["create", " docs/ a.md ", "1"], ["alter", " docs/ a.md ", "2"]]}\n'
        '{"head": {" docs/ a.md ": "2"}}\n'
    )
    scenario = Trace(path=str(path))
    run = alone(scenario, tmp_path)
    assert run.finished
    assert scenario.broken(run.store, Ended(run.ground, 1, True, {})) == []


def test_a_traces_clients_keep_their_order(tmp_path: Path, trace: Path) -> None:
    run = alone(Trace(path=str(trace)), tmp_path, clients=2)
    ground = run.ground
    assert [operation.path for operation in run.operations if run.mine(operation, 0)] == [
        f"{ground}.root.{path}" for path in ("a", "a", "a.b", "c", "c", "d")
    ]
    assert next(operation.path for operation in run.operations if run.mine(operation, 1)) == f"{ground}.root.d"


def test_a_real_trace(tmp_path: Path, shared_data: Path) -> None:
    path = shared_data / "traces" / "tenacity.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    scenario = Trace(path=str(path))
    run = alone(scenario, tmp_path)
    assert run.finished
    assert scenario.broken(run.store, Ended(run.ground, 1, True, {})) == []
    assert len(run.operations) > 1000
    wrote = {(change.principal, change.operation_id) for change in run.store.changes() if change.principal}
    assert len(wrote) == len({principal for principal, _ in wrote})  # what is one record is one operation


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("{}\n", "line 1: this is not a line of a trace"),
        (TRACE + "nonsense\n", "line 5: this is not a line of a trace"),
        ('{"client": "a", "ops": [["paint", "x"]]}\n', "line 1"),
        ('{"client": "a", "ops": [["create", "x"]]}\n', "line 1"),
        ('{"client": "a", "ops": [["create", "x", 3]]}\n', "line 1"),
        ("[]\n", "line 1"),
        ('{"head": []}\n', "line 1"),
    ],
)
def test_bad_traces(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        [*read_trace(str(path))]


def test_a_trace_that_was_cut_off(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(TRACE.encode() * 50)[:60])
    with pytest.raises(InvalidArgument, match="cannot be read"):
        [*read_trace(str(path))]


def test_a_transaction_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    run = alone(SCENARIOS["hot-table"](), tmp_path, turns=0)
    calls = Calls(run.store, Recorder(tmp_path, "x"))
    path = f"{run.ground}.s.hot"
    for value, outcome in (("7", "applied"), ("7", "nothing"), ("8", "applied")):
        calls.transaction(path, lambda within, v=value: within.alter(within.load(path), ms.SetProperty("a", v)))  # type: ignore[misc]
        assert calls.last.outcome == outcome
        calls.alter(path, ms.SetProperty("b", value))
        assert calls.last.outcome == outcome
