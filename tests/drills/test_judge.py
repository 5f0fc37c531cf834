"""The judge of drills finds what is wrong in planted records. No cluster is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.drills import cluster
from tests.drills.__main__ import main
from tests.drills.judge import Verdict, judged
from tests.joints.judge.verdict import EXIT

S = 10**9


class _Planted:
    """A record of a good drill: a fail-over at 10 s, and a new leader at 20 s."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        times = [*range(1, 10), *range(20, 30)]
        values = [str(t) for t in times]
        self.told: dict[str, Any] = {
            "kind": "node-killed",
            "synchronous": True,
            "began": 10 * S,
            "led": 20 * S,
            "whole": 22 * S,
            "wrong": [],
            "applied": {"p1t0-1": 1, "p1t0-2": 1},
            "feed": ["t2-a", "t2-b", "t2-c"],
            "watched": [None, *values],
            "bare": times,
        }
        self.ledger = [
            "begun p1t0-1",
            "ok p1t0-1",
            "begun p1t0-2",
            "unknown p1t0-2",
            "begun p1t0-3",
            "LeaseHeld p1t0-3",
        ]
        self.calls: dict[str, list[dict[str, Any]]] = {
            "announcer": [_call(t, value=str(t)) for t in times],
            "bare": [_call(t, value=t) for t in times],
            "validated": [_call(t + 0.5, value=str(t)) for t in times],
            "leased": [_call(t + 0.5, value=str(t)) for t in times],
            "holder1": [_call(2, token=1, held=4 * S), _call(24, token=3, held=25 * S)],
            "holder2": [_call(5, token=2, held=6 * S)],
            "consumer": [_call(3, read=["a", "b"], refused=False), _call(23, read=["c"], refused=False)],
        }

    def judged(self, *, synchronous: bool | None = None) -> Verdict:
        (self.folder / "journals").mkdir()
        (self.folder / "ledgers").mkdir()
        (self.folder / "run.json").write_text(json.dumps(self.told))
        (self.folder / "ledgers" / "p1t0").write_text("\n".join(self.ledger))
        for name, calls in self.calls.items():
            lines = [json.dumps({"n": n, **call}) for n, call in enumerate(calls, 1)]
            (self.folder / "journals" / f"{name}.jsonl").write_text("\n".join(lines))
        return judged(self.folder, synchronous=synchronous)


def _call(at: float, **told: Any) -> dict[str, Any]:
    return {"start": int(at * S), "end": int((at + 0.1) * S), "ok": True, **told}


@pytest.fixture
def planted(tmp_path: Path) -> _Planted:
    return _Planted(tmp_path)


def test_a_good_record_is_clean(planted: _Planted) -> None:
    verdict = planted.judged()
    assert (verdict.word, verdict.found, verdict.doubts) == ("clean", [], [])
    assert verdict.figures["acknowledged"] == 20
    assert verdict.figures["without service"] == verdict.figures["bare without service"] == 11.0


def _lose(planted: _Planted) -> None:
    del planted.told["applied"]["p1t0-1"]


def _lose_a_number(planted: _Planted) -> None:
    planted.told["watched"].remove("9")
    planted.calls["validated"] = planted.calls["leased"] = planted.calls["validated"][-5:]


LOSSES = {"a call": _lose, "a number": _lose_a_number}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_loss_is_wrong_where_replicas_confirm(planted: _Planted, lose: Any) -> None:
    """Without ``synchronous_standby_names`` a "synchronous" drill leaves such a record."""
    lose(planted)
    planted.told["synchronous"] = False  # as the cluster was
    assert planted.judged(synchronous=True).word == "contradicted"


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_loss_is_counted_where_they_do_not(planted: _Planted, lose: Any) -> None:
    lose(planted)
    planted.told["synchronous"] = False
    verdict = planted.judged()
    assert (verdict.word, verdict.found) == ("clean", [])
    assert verdict.figures["lost"] == 1


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_token_that_is_given_again_is_wrong(planted: _Planted, synchronous: bool) -> None:
    """As it was after an asynchronous fail-over, before tokens began again above all that were given."""
    planted.told["synchronous"] = synchronous
    planted.calls["holder1"][1]["token"] = 2
    verdict = planted.judged()
    assert (verdict.found, verdict.figures["tokens again"]) == (["the token 2 was given 2 times"], 1)


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_smaller_token_is_wrong_unless_an_old_leader_may_give_it(planted: _Planted, synchronous: bool) -> None:
    planted.told["synchronous"] = synchronous
    planted.calls["holder1"][0]["token"] = 9
    assert planted.judged().word == ("contradicted" if synchronous else "clean")


def test_what_is_lost_and_still_shown_is_counted(planted: _Planted) -> None:
    planted.told["synchronous"] = False
    planted.calls["leased"].append(_call(31, value="lost"))
    assert planted.judged().figures["leased of lost writes"] == 1


@pytest.mark.parametrize("synchronous", [True, False])
def test_what_no_fail_over_excuses_is_wrong(planted: _Planted, synchronous: bool) -> None:
    planted.told["synchronous"] = synchronous
    planted.told["applied"] |= {"p1t0-2": 2, "p1t0-3": 1, "p9t0-1": 1}
    planted.told["watched"].append("5")
    planted.told["wrong"].append("a name twice")
    planted.calls["consumer"].append(_call(30, read=["b"], refused=False))
    assert len(planted.judged().found) == 6


@pytest.mark.parametrize(
    ("name", "at", "word"),
    [("validated", 21.5, "clean"), ("validated", 28.2, "contradicted"), ("leased", 21.5, "contradicted")],
)
def test_a_stale_read_is_wrong_unless_it_asks_one_of_two_leaders(
    planted: _Planted, name: str, at: float, word: str
) -> None:
    """The cluster is whole again at 22 s."""
    planted.told["kind"] = "frozen"
    planted.calls[name].append(_call(at, value="9"))
    verdict = planted.judged()
    assert (verdict.word, verdict.figures[f"{name} stale"]) == (word, 1)


def test_stale_reads_and_two_holders_are_wrong(planted: _Planted) -> None:
    planted.calls["leased"].append(_call(28.2, value="9"))
    planted.calls["holder1"][0]["held"] = int(5.5 * S)
    assert len(planted.judged().found) == 2


@pytest.mark.parametrize("kind", ["node-killed", "frozen"])
def test_a_read_that_goes_back_is_wrong_unless_two_lead(planted: _Planted, kind: str) -> None:
    """20 is written from 20.0 to 20.1 s: both reads began before."""
    planted.told["kind"] = kind
    planted.calls["leased"] += [_call(20.01, value="20"), _call(20.04, value="9")]
    for call in planted.calls["leased"][-2:]:
        call["end"] = call["start"] + S // 100
    verdict = planted.judged()
    assert verdict.word == ("clean" if kind == "frozen" else "contradicted")
    assert (verdict.figures["leased stale"], verdict.figures["leased went back"]) == (0, 1)


def test_long_without_service_is_wrong(planted: _Planted) -> None:
    planted.calls["bare"] = [_call(t, value=t) for t in range(1, 30)]
    planted.told["bare"] = [*range(1, 30)]
    (found,) = planted.judged().found
    assert found == "11.0 s without service; a bare client was for 1.0 s"


@pytest.mark.parametrize("refused", [True, False])
def test_a_change_that_is_gone_must_not_stay_unnoticed(planted: _Planted, refused: bool) -> None:
    planted.calls["consumer"].insert(1, _call(12, read=["gone"], refused=False))
    if refused:
        planted.calls["consumer"][2:] = [_call(22, read=[], refused=True), _call(23, read=["a", "b"], refused=False)]
    verdict = planted.judged()
    assert verdict.word == ("clean" if refused else "contradicted")
    assert verdict.figures["events undone"] == 1


@pytest.mark.parametrize("name", ["validated", "holder1", "consumer"])
def test_what_never_happened_is_not_clean(planted: _Planted, name: str) -> None:
    planted.calls[name] = planted.calls[name][:1] if name != "consumer" else []
    assert planted.judged().word == "unsure"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(cluster, "_FETCHED", tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # the cluster adds to it
    assert main(["node-killed"]) == EXIT["unsure"]
    assert "missing" in capsys.readouterr().out
