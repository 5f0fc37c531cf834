"""The benchmark beside the peers works: each is right, waits as often as is said, and the wrong one is found out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

import metastore as ms
from metastore.checker.recorder import Recorder
from tests.bench.core.setting import Setting
from tests.bench.figures import Figures
from tests.bench.leases.documents import filled
from tests.bench.peers import results
from tests.bench.peers.anomalies import in_records, in_tables
from tests.bench.peers.bars import bars
from tests.bench.peers.contender import WAITS, Contender, Did, count_waits
from tests.bench.peers.contenders import CONTENDERS, SERVERS, opened
from tests.bench.peers.documents import BEGIN, DOCUMENT
from tests.bench.peers.ground import Ground
from tests.bench.peers.locked import Locked, above
from tests.bench.peers.measure import Run
from tests.bench.peers.mix import SHARES, Lake, steps
from tests.bench.peers.printed import MESSAGES
from tests.bench.peers.process_tree import Forest, ProcessTree
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.xdist_group("bench-peers"),
]  # the servers are started once

LAKE = Lake(schemas=2, tables=40)
HERE = [name for name in CONTENDERS if name not in SERVERS]
"""What needs no other server."""
VERBS = ("load", "alter", "rename", "drop", "create")
OURS = {"load": 1, "alter": 2, "create": 1, "drop": 2, "rename": 2}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    setting = Setting(Figures("peers", bars((2,))), Console(quiet=True), quick=True)
    with setting.closing:
        yield Ground(setting, setting.nosync, LAKE, HERE)


@pytest.fixture(scope="module")
def everything(ground: Ground) -> Ground:
    return Ground(ground.setting, ground.server, LAKE, list(SERVERS))


@pytest.fixture(scope="module")
def run(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(ground.setting, ground, length=0.4, recorded=0.2, turns=1, clients=(2,))
    made.measure(tmp_path_factory.mktemp("recorded"))
    made.record()
    return made


def test_the_mix_is_as_frozen() -> None:
    drawn = list(islice(steps(Lake(), "c0", 1), 40_000))
    shares = Counter(step.action for step in drawn)
    assert {action: pytest.approx(share, abs=0.01) for action, share in SHARES.items()} == {
        action: number / len(drawn) for action, number in shares.items()
    }
    ranks = Counter(int(step.path.rpartition(".t")[2]) for step in drawn if step.action == "load")
    assert ranks[0] / ranks.total() == pytest.approx(1 / sum((n + 1) ** -0.99 for n in range(10_000)), abs=0.01)
    assert drawn == list(islice(steps(Lake(), "c0", 1), 40_000))


@pytest.mark.parametrize("name", HERE)
def test_what_it_writes_is_what_the_library_understands(run: Run, name: str) -> None:
    (url,) = [url for whose, url, _ in run.histories if whose == name]
    assert run.operations[name] > 0
    if name != "treelock":  # which may be wrong
        assert run.wrong(name) == 0
        with ms.open(url) as store:
            assert store.verify() == []


def test_all_are_measured_and_held_against_each_other(run: Run) -> None:
    figures = run.setting.figures
    assert figures["mixed_2_vs_best_lock_peer"] > 0
    assert figures["anomalies_ours"] == 0
    assert all(figures[f"mixed_2_{name}_per_s"] > 0 for name in HERE)
    console = Console(record=True, width=200, quiet=True)
    results.show(run, console)
    assert all(f"| 2 | {name} |" in results.markdown(run) for name in HERE)
    assert all(f"| 2x16 | {name} |" in results.markdown(run) for name in HERE if name != "ours_in_hand")
    assert figures["mixed_2x16_vs_best_lock_peer"] > 0
    assert figures["round_trips_vs_best_lock_peer"] < 1  # of threads that share a store
    filled(DOCUMENT.read_text(), "", BEGIN)


@pytest.mark.parametrize("name", ["ours", *MESSAGES])
def test_it_waits_as_often_as_is_printed(ground: Ground, everything: Ground, name: str) -> None:
    if name in everything.missing:
        pytest.skip(everything.missing[name])
    count_waits()
    with PostgresProxy("127.0.0.1", ground.server.port) as proxy:
        contender = opened(name, proxy.url_for(ground.fresh()), "p", everything.ports.get(name), Forest())
        found = [_waits(contender, proxy) for _ in range(6)][-1]
        contender.close()
    if name == "ours":
        assert found == {verb: (count, count) for verb, count in OURS.items()}
    for verb, messages in MESSAGES.get(name, {}).items():
        waited = [message for message in messages if "not waited for" not in message]
        of_locks = [message for message in waited if message in ("LOCK", "UNLOCK")]
        assert found[verb] == (len(waited), len(waited) - len(of_locks)), verb


def _waits(contender: Contender, proxy: PostgresProxy) -> dict[str, tuple[int, int]]:
    """How often each operation waits: as we count it, and on the wire to PostgreSQL."""
    path, me, found = LAKE.path(0), threading.get_ident(), {}
    calls: dict[str, Callable[[], Did]] = {
        "load": lambda: contender.load(path),
        "alter": lambda: contender.alter(path, "key", str(WAITS[me])),
        "rename": lambda: contender.rename(path, "away"),
        "drop": lambda: contender.drop(f"{path.rpartition('.')[0]}.away"),
        "create": lambda: contender.create(path),
    }
    for verb in VERBS:
        before, on_the_wire = WAITS[me], proxy.round_trips
        assert calls[verb]().outcome in ("applied", "read")
        found[verb] = WAITS[me] - before, proxy.round_trips - on_the_wire
    return found


@pytest.mark.parametrize("name", SERVERS)
def test_a_tree_of_locks_is_one(everything: Ground, name: str) -> None:
    """A writer keeps out those on its node or below, and nobody beside it."""
    if name in everything.missing:
        pytest.skip(everything.missing[name])
    url, port = everything.fresh(), everything.ports[name]
    clients = [opened(name, url, str(n), port, Forest()) for n in range(2)]
    first, second = [client._tree for client in clients if isinstance(client, Locked)]
    there, beside = above(LAKE.path(0)), above(LAKE.path(1))
    with ThreadPoolExecutor(1) as pool:
        for held, alone, wanted, exclusive in (
            (there[:-1], True, there, False),
            (there, True, there, True),
            (there, True, there, False),
            (there, False, there, True),
            (there, False, there[:-1], True),
            (there, True, there[:-1], True),
        ):
            first.acquire(held, exclusive=alone)
            if held == there:
                second.acquire(beside, exclusive=True)
                second.release()
            waiting = pool.submit(second.acquire, wanted, exclusive=exclusive)
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
            first.release()
            assert waiting.result(10) > 0
            second.release()
    first.acquire(there, exclusive=False)
    second.acquire(there, exclusive=False)
    first.release()
    second.release()
    for client in clients:
        client.close()


def test_two_servers_with_a_tree_each_lose_updates(ground: Ground, tmp_path: Path) -> None:
    """Both have read before either writes; with one tree for both, the second waits for the first."""
    assert _two_alters(ground, tmp_path / "two", Forest(), Forest()) == {"lost update": 1, "acknowledged alter lost": 1}
    forest = Forest()
    assert _two_alters(ground, tmp_path / "one", forest, forest) == {}


def _two_alters(ground: Ground, folder: Path, one: Forest, other: Forest) -> Counter[str]:
    url, path = ground.fresh(), LAKE.path(0)
    first, second = (Locked(url, "p", ProcessTree(forest)) for forest in (one, other))
    recorders = [Recorder(folder, f"c{n}w0") for n in range(2)]
    write, reached, go_on = first._plain._session.one, threading.Event(), threading.Event()

    def paused(text: str, parameters: dict[str, object]) -> object:
        if "UPDATE entity" in text:
            reached.set()
            go_on.wait(10)
        return write(text, parameters)

    first._plain._session.one = paused  # type: ignore[method-assign,assignment]
    threads = [
        threading.Thread(target=_alter, args=(client, path, recorder, f"c{n}"))
        for n, (client, recorder) in enumerate(zip((first, second), recorders, strict=True))
    ]
    threads[0].start()
    assert reached.wait(10)
    threads[1].start()
    wait_until(lambda: _version(url, path) > 1 or bool(one is other and _waits_for_lock(one, path)), 10)
    go_on.set()
    for thread in threads:
        thread.join()
    first.close()
    second.close()
    return in_tables(url) + in_records(url, folder)


def _alter(client: Contender, path: str, recorder: Recorder, key: str) -> None:
    operation = recorder.begin("alter", "table", path)
    client.principal = operation.principal
    did = client.alter(path, key, str(operation.number))
    operation.entity_id, operation.version_after = did.entity_id, did.version
    recorder.end(operation, did.outcome)


def _version(url: str, path: str) -> int:
    with ms.open(url) as store:
        return store.tables.load(path).version


def _waits_for_lock(forest: Forest, path: str) -> bool:
    return forest.lock(path)._waiting > 0


DAMAGE = {
    "lost update": "UPDATE operation SET doc = replace(doc, '\"key\"', '\"other\"') WHERE action = 'alter'",
    "broken chain": "DELETE FROM operation WHERE action = 'create' AND path_after LIKE '%.t0'",
    "changed after its drop": "UPDATE operation SET action = 'drop' WHERE path_after LIKE '%.t0' AND action = 'create'",
    "written by a path that led elsewhere": "UPDATE operation SET path_before = 'x' WHERE action = 'alter'",
    "orphan": "UPDATE guard SET state = 1, scope_version = scope_version + 1 WHERE kind = 'schema' AND name = 's0'",
    "history differs from the tables": "UPDATE entity SET version = version + 1 WHERE version = 2",
}


@pytest.mark.parametrize("rule", DAMAGE)
def test_an_anomaly_is_counted(ground: Ground, rule: str) -> None:
    url = ground.fresh()
    contender = opened("for_update", url, "p", None, Forest())
    contender.alter(LAKE.path(0), "key", "value")
    contender.close()
    assert in_tables(url) == {}
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(DAMAGE[rule].encode())
    assert in_tables(url)[rule] > 0
