"""The judge, on the record of a small run: the unchanged record is clean, and a changed one never is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import metastore as ms
from tests.joints import world
from tests.joints.crew import Crew
from tests.joints.journal import Journal, opened
from tests.joints.judge.call import Call
from tests.joints.judge.errors import untrue_errors
from tests.joints.judge.stuck import stuck
from tests.joints.judge.verdict import EXIT, Verdict, judged
from tests.joints.lane import Lane
from tests.joints.record import keep

Line = dict[str, Any]
_CALLS = 150


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the record of two clients of one process, one after the other."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "journals").mkdir()
    url = f"sqlite:///{folder}/store.db"
    crew = Crew("threads", ("mixed", "mover"), name="p1", folder=str(folder), url=url)
    (folder / "started.jsonl").write_text(json.dumps(crew.as_started()) + "\n")
    (folder / "weather.jsonl").touch()
    world.begin(url)
    file = opened(folder, "p1")
    with ms.open(url) as store:
        for client, role in zip(crew.clients, crew.roles, strict=True):
            journal = Journal(file, client)
            Lane(journal, role, f"seed {role}", 0.0).run(store, partial(_has_enough, journal))
    keep(url, folder)
    told = {"database": "sqlite", "wrong": [], "weather": {}, "rough": 0, "largest": 0, "left": 1.0, "seed": 0}
    (folder / "run.json").write_text(json.dumps(told))
    return folder


def _has_enough(journal: Journal) -> bool:
    return journal.number >= _CALLS


@pytest.fixture
def record(clean: Path, tmp_path: Path) -> Path:
    """Return a copy that the test may change."""
    return shutil.copytree(clean, tmp_path / "copy")


def _lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write(path: Path, lines: list[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _journal(record: Path) -> Path:
    return record / "journals" / "p1.jsonl"


def _changed(record: Path, action: str, change: Callable[..., None]) -> Verdict:
    """Change the first call of a kind that returned an entity, a list or a truth; return the verdict."""
    lines = _lines(_journal(record))
    begun = {(line["client"], line["n"]): line for line in lines if "start" in line}
    for line in lines:
        call = begun.get((line["client"], line.get("n", 0)))
        if (
            call
            and call["action"] == action
            and ("path" in call or action == "changes")
            and "user" not in call
            and line.get("answer")
        ):
            change(call, line)
            break
    else:
        raise AssertionError(f"no {action} was answered")
    _write(_journal(record), lines)
    return judged(record)


def _is_plain(call: Line) -> bool:
    """Whether a call is not made by id, nor by a user."""
    return "id" not in call and "user" not in call


def test_a_record_as_it_was_written_is_clean(record: Path) -> None:
    verdict = judged(record)
    assert (verdict.found, verdict.doubts, verdict.word) == ((), (), "clean")
    assert verdict.calls == 2 * _CALLS
    assert verdict.counts["alter"] > 10
    assert verdict.counts["rename of an ancestor"] > 10


def _older(call: Line, line: Line) -> None:
    line["answer"]["version"] += 1


def _other_entity(call: Line, line: Line) -> None:
    line["answer"]["id"] += 1


def _other_document(call: Line, line: Line) -> None:
    line["answer"]["properties"]["k0"] = "nobody"


def _other_path(call: Line, line: Line) -> None:
    call["path"] = call["path"][:-1] + "9"


def _late(call: Line, line: Line) -> None:
    call["deadline"] = 0.1
    line["end"] = call["start"] + 20 * 10**9


def _early(call: Line, line: Line) -> None:
    del line["answer"]
    line.update({"error": "DeadlineExceeded", "message": "", "about": {}})


def _inner(call: Line, line: Line) -> None:
    del line["answer"]
    line.update({"error": "KeyError", "message": "", "about": {}})


def _away(call: Line, line: Line) -> None:
    del line["answer"]
    line.update({"error": "BackendUnavailable", "message": "", "about": {}})


def _untold(call: Line, line: Line, after: float = 0.3) -> None:
    """Tell nothing of an alter, so many seconds after its deadline."""
    del line["answer"]
    line.update({"error": "OutcomeUnknown", "message": "", "about": {}})
    line["end"] = call["start"] + round((call["deadline"] + after) * 1e9)


def _untrue(call: Line, line: Line) -> None:
    del line["answer"]
    line.update({"error": "EntityNotFound", "message": "", "about": {"path": call["path"]}})


def _starved(call: Line, line: Line) -> None:
    line["runs"] = 90


def _lost(call: Line, line: Line) -> None:
    line["answer"] = line["answer"][1:]


def _skips(call: Line, line: Line) -> None:
    del line["answer"][1]


LIES: dict[str, tuple[str, Callable[[Line, Line], None], str]] = {
    "a version that is not there yet": ("load", _older, "read"),
    "another entity than the one at the path": ("load", _other_entity, "read"),
    "a document that was never committed": ("load", _other_document, "document"),
    "a write at another path": ("alter", _other_path, "elsewhere"),
    "a returned document that its own write did not make": ("alter", _other_document, "document"),
    "an entity that its path does not name": ("load", _other_path, "elsewhere"),
    "a call that ends after its deadline": ("load", _late, "late"),
    "a deadline that has not passed": ("exists", _early, "early"),
    "a write whose client was told that it was not applied": ("create", _early, "once"),
    "an error from the library's inside": ("load", _inner, "error"),
    "a network that was not away": ("load", _away, "error"),
    "an outcome that nobody asked for to the end": ("alter", _untold, "error"),
    "an error that was never true": ("load", _untrue, "read"),
    "a transaction that runs again and again": ("transaction", _starved, "starved"),
    "a change of the feed that a follower did not get": ("changes", _skips, "feed"),
    "a listing that leaves somebody out": ("page", _lost, "read"),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_what_cannot_be_is_found(record: Path, lie: str) -> None:
    action, change, rule = LIES[lie]
    verdict = _changed(record, action, change)
    assert verdict.word == "contradicted"
    assert rule in verdict.rules, verdict.found


@pytest.mark.parametrize(("waited", "late"), [(19.5, False), (5.0, True)])
def test_who_got_no_processor_is_not_late(record: Path, waited: float, late: bool) -> None:
    after = max(line["end"] for line in _lines(_journal(record)) if "end" in line) + 60 * 10**9
    (record / "starved").mkdir()
    (record / "starved" / "p1.jsonl").write_text(f"[0, 0.0]\n[{after}, {waited}]\n[{after}, 9")
    assert ("late" in _changed(record, "load", _late).rules) is late


@pytest.mark.parametrize(("database", "rules"), [("sqlite", set()), ("postgres", {"error"})])
def test_sqlites_one_writer_may_keep_an_announced_change(record: Path, database: str, rules: set[str]) -> None:
    """What withdraws it is a write, too: who was kept out for the whole half second knows nothing."""
    told = json.loads((record / "run.json").read_text())
    (record / "run.json").write_text(json.dumps({**told, "database": database}))
    assert set(_changed(record, "alter", partial(_untold, after=0.6)).rules) == rules


@pytest.mark.parametrize(("left", "after", "rules"), [(0.5, 0.3, set()), (0.5, 0.2, {"error"}), (0.9, 0.3, {"error"})])
def test_a_busy_server_may_say_nothing_after_a_deadline(
    record: Path, left: float, after: float, rules: set[str]
) -> None:
    told = json.loads((record / "run.json").read_text())
    (record / "run.json").write_text(json.dumps({**told, "database": "postgres", "left": left}))
    assert set(_changed(record, "alter", partial(_untold, after=after)).rules) == rules
    if not rules:  # one call met that; a server that does it to many is broken
        assert "error" in _changed(record, "alter", partial(_untold, after=after)).rules


def test_a_call_of_a_user_that_had_no_right_any_more_is_found(record: Path) -> None:
    """A call of the library itself, told as one of a user, after a right was taken away and before it came back."""
    lines = _lines(_journal(record))
    taken = next(line for line in lines if line.get("action") == "revoke")
    events = _lines(record / "feed.jsonl")
    schema = next(one["path_after"] for one in events if one["entity_id"] == taken["id"])
    number = max(line["n"] for line in lines if line["client"] == taken["client"] and "n" in line)
    table = next(one for one in events if one["kind"] == "table" and one["path_after"] == f"{schema}.t0")
    answer = {"id": table["entity_id"], "version": 1, "path": f"{schema}.t0", "by": "world", **table["document"]}
    given = [line["start"] for line in lines if line.get("action") == "grant" and line["id"] == taken["id"]]
    ended = next(
        line["end"]
        for line in lines
        if line.get("n") == taken["n"] and "end" in line and line["client"] == taken["client"]
    )
    assert given[0] > ended
    mine = {"client": taken["client"], "n": number + 1}
    call = {"action": "load", "path": f"{schema}.t0", "user": "ann", "deadline": 5.0, "start": ended + 1}
    _write(_journal(record), [*lines[:-1], {**mine, **call}, {**mine, "end": ended + 2, "answer": answer}, lines[-1]])
    assert "right" in judged(record).rules


def test_what_was_acknowledged_and_is_not_there_is_found(record: Path) -> None:
    events = _lines(record / "feed.jsonl")
    _write(record / "feed.jsonl", events[:-1])
    assert "once" in judged(record).rules


def test_what_is_there_without_a_call_is_found(record: Path) -> None:
    events = _lines(record / "feed.jsonl")
    events[-1]["principal"] = "somebody"
    _write(record / "feed.jsonl", events)
    assert {"nobody", "once"} <= judged(record).rules.keys()


def test_a_stale_read_is_told_with_the_call_that_changed_it(record: Path) -> None:
    """The smallest contradiction: the change, which had returned, and the read."""
    lines = _lines(_journal(record))
    loads = [line for line in lines if line.get("action") == "load" and line.get("path", "").count(".") == 3]
    answers = {(line["client"], line["n"]): line for line in lines if "end" in line and "answer" in line}
    first: dict[str, Line] = {}
    for call in loads:
        answer = answers.get((call["client"], call["n"]))
        if answer is None:
            continue
        before = first.setdefault(call["path"], answer)
        if before["answer"] != answer["answer"]:
            answer["answer"] = before["answer"]
            break
    _write(_journal(record), lines)
    (found,) = judged(record).found
    assert "which was so until" in found.message
    assert len(found.calls) == 2
    assert f"{call['client']}/{call['n']}: load {call['path']}" in found.calls[1]


def _no_journal(record: Path) -> None:
    _journal(record).unlink()


def _empty_journal(record: Path) -> None:
    _journal(record).write_text("")


def _no_client(record: Path) -> None:
    _write(_journal(record), [line for line in _lines(_journal(record)) if line["client"] == "p1-0"])


def _no_end(record: Path) -> None:
    _write(_journal(record), [line for line in _lines(_journal(record)) if "done" not in line])


def _half_a_line(record: Path) -> None:
    _journal(record).write_text(_journal(record).read_text()[:-10])


def _a_gap(record: Path) -> None:
    lines = _lines(_journal(record))
    _write(_journal(record), [line for line in lines if line.get("n") != 7 or line["client"] != "p1-0"])


def _no_answer(record: Path) -> None:
    lines = _lines(_journal(record))
    _write(_journal(record), [one for one in lines if not ("end" in one and one["n"] == 7 and one["client"] == "p1-0")])


def _nobody(record: Path) -> None:
    (record / "started.jsonl").write_text("")


def _another(record: Path) -> None:
    with (record / "started.jsonl").open("a") as file:
        file.write(json.dumps({"process": "p2", "clients": ["p2-0"], "how": "threads"}) + "\n")


def _unknown(record: Path) -> None:
    shutil.copy(_journal(record), record / "journals" / "p9.jsonl")


def _died(record: Path) -> None:
    (record / "died").write_text("p1: a defect of the tool")


GAPS = [
    _no_journal, _empty_journal, _no_client, _no_end, _half_a_line, _a_gap, _no_answer, _nobody, _another, _unknown,
    _died,
]  # fmt: skip


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.__name__.strip("_"))
def test_a_record_that_is_not_whole_is_never_clean(record: Path, gap: Callable[[Path], None]) -> None:
    gap(record)
    verdict = judged(record)
    assert verdict.doubts
    assert EXIT[verdict.word] != 0


def test_what_a_killed_client_leaves_is_whole(record: Path) -> None:
    """A call without an answer, and half a line."""
    lines = [line for line in _lines(_journal(record)) if line["client"] == "p1-0"]
    text = "".join(json.dumps(line) + "\n" for line in lines[:-2])
    _journal(record).write_text(text + json.dumps(lines[-2])[:20])
    with (record / "started.jsonl").open("a") as file:
        file.write(json.dumps({"killed": "p1"}) + "\n")
    assert judged(record).doubts == ()


def test_a_run_in_which_something_never_happened_is_unsure(record: Path) -> None:
    verdict = judged(record, ["alter", "kill"])
    assert (verdict.word, len(verdict.doubts)) == ("unsure", 1)
    assert "kill" in verdict.doubts[0]


def test_writes_that_all_give_up_are_stuck() -> None:
    """One client alone is not kept from writing by others, nor is one among whose calls another gets through."""

    def found(clients: str, *, through: int | None = None) -> int:
        evidence: Any = SimpleNamespace(weather=[], run={"left": 1.0}, found=lambda *what: what)
        evidence.calls = [
            Call(one, n, "alter", n * 4 * 10**9, 5.0, "lake.c.s.t", end=(n * 4 + 5) * 10**9, error="DeadlineExceeded")
            for n, one in enumerate(clients)
        ]
        if through is not None:
            evidence.calls[through].error = None
        return len(list(stuck(evidence)))

    assert (found("abab"), found("aaaa"), found("abab", through=2), found("ab")) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("action", "seconds", "found"), [("bulk", 20.0, 0), ("bulk", 19.0, 1), ("alter", 20.0, 1), ("load", 20.0, 1)]
)
def test_only_a_call_of_many_rows_may_get_no_connection_at_its_deadline(
    action: str, seconds: float, found: int
) -> None:
    """It used its time itself; a small call that got none for so long starved."""
    evidence: Any = SimpleNamespace(weather=[], run={"left": 1.0}, found=lambda *what: what, starved_in=lambda _: 0.0)
    evidence.calls = [Call("a", 1, action, 0, 20.0, "lake.c.s", end=round(seconds * 10**9), error="PoolExhausted")]
    assert len(list(untrue_errors(evidence))) == found


@pytest.mark.parametrize(("starved", "found"), [(9.0, 1), (11.0, 0)])
def test_a_process_that_does_not_run_gives_no_connection_back(starved: float, found: int) -> None:
    evidence: Any = SimpleNamespace(weather=[], run={}, found=lambda *what: what, starved_in=lambda _: starved)
    evidence.calls = [Call("a", 1, "load", 0, 20.0, "lake.c.s", end=20 * 10**9, error="PoolExhausted")]
    assert len(list(untrue_errors(evidence))) == found
