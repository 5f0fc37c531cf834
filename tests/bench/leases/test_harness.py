"""The benchmark of leases works, in a run that is too short for figures."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.core.setting import Setting
from tests.bench.figures import Figures
from tests.bench.leases import fenced, results, trips
from tests.bench.leases.bars import groups
from tests.bench.leases.cells import PEERS, Load
from tests.bench.leases.documents import DOCUMENT, filled
from tests.bench.leases.lockers import Lockers
from tests.bench.leases.measure import Run
from tests.bench.leases.places import Ground, ground, lock_servers
from tests.bench.leases.window import enter, leave

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.xdist_group("bench-leases"),
    pytest.mark.one_in(3),
]  # the servers are started once

LOADS = [Load("pair", 2, "many"), Load("commit", 2, "one")]
HERE = ["postgres", "sqlite", "advisory"]
"""What needs no other server."""


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    bars = {name: bar for group in groups(LOADS).values() for name, bar in group.items()}
    made = Setting(Figures("leases", bars), Console(quiet=True), quick=True)
    with made.closing:
        yield made


@pytest.fixture(scope="module")
def everything(setting: Setting) -> Ground:
    return ground(setting, list(PEERS), 2)


@pytest.mark.parametrize("peer", PEERS)
def test_one_excludes_the_other(everything: Ground, peer: str) -> None:
    if peer in everything.missing:
        pytest.skip(everything.missing[peer])
    places = everything.places
    with Lockers(places, [peer], 0, timeout=0.3) as first, Lockers(places, [peer], 1, timeout=0.3) as second:
        one, other = first[peer], second[peer]
        assert one.acquire("a")
        assert not other.acquire("a")
        assert other.acquire("b")
        other.release()
        one.release()
        assert other.acquire("a")
        other.commit()
        other.release()


def test_what_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the program and the package for it, whichever is looked for first."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with ExitStack() as closing:
        ports, missing = lock_servers(closing, ["redis", "etcd"])
    assert ports == {}
    package = "the package etcd3gw is missing (pip install -e '.[bench]')"
    assert missing["etcd"] in ("etcd is missing (apt-get install etcd-server)", package)
    assert set(missing) == {"redis", "etcd"}


def test_processes_take_turns_and_every_figure_has_its_place(setting: Setting, everything: Ground) -> None:
    run = Run(setting, everything, HERE, length=0.2, turns=2)
    run.cells(LOADS)
    assert {len(turns) for turns in run.outcomes.values()} == {2}
    assert sum(outcome.errors for turns in run.outcomes.values() for outcome in turns) == 0
    for load in LOADS:
        for peer in HERE:
            assert setting.figures[f"{load}_{peer}_per_s"] > 0
            assert setting.figures[f"{load}_{peer}_p50_ms"] <= setting.figures[f"{load}_{peer}_p99_ms"]
    text = filled(DOCUMENT.read_text(), results.markdown(run))
    assert all(f"| `{peer}` |" in text for peer in HERE)
    assert filled(text, "other figures\n") == filled(DOCUMENT.read_text(), "other figures\n")


def test_two_holders_at_once_are_seen() -> None:
    inside = multiprocessing.get_context("forkserver").RawValue("i", 0)
    enter(inside, 1)
    with pytest.raises(RuntimeError, match="NOT EXCLUSIVE"):
        enter(inside, 2)
    leave(inside, 1)
    enter(inside, 2)
    with pytest.raises(RuntimeError, match="NOT EXCLUSIVE"):
        leave(inside, 1)


def test_fenced_and_unfenced_commits_take_turns(setting: Setting, everything: Ground) -> None:
    fenced.measure(setting, everything.places.postgres, values=2, processes=(2,))
    assert len(setting.figures.values["fenced_commit_cost"]) == 2
    assert setting.figures["fenced_commit_2_per_s"] > 0


def test_round_trips_meet_their_bars(setting: Setting, everything: Ground) -> None:
    trips.measure(setting, everything, [peer for peer in PEERS if peer not in everything.missing])
    assert setting.figures["acquire_round_trips"] == 1
    assert not [name for name in setting.figures.misses() if name in groups(LOADS)["round_trips"]]
