"""The command line lists drops in steps, finishes them, and rolls them back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import metastore as ms
from metastore.cli.app import run

T = "m.c.s.t"


@pytest.fixture
def left(sqlite_url: str) -> str:
    """Give a database with a drop that its process left behind."""
    with ms.open(sqlite_url, principal="ada") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create(T, parents=True)
        store.tables.begin_drop(T, ttl=0.01)
        time.sleep(0.02)
    return sqlite_url


def test_listed(left: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", left, "drops"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in (T, "announced", "ada"))
    assert run(["--url", left, "drops", "--json"]) == 0
    (drop,) = json.loads(capsys.readouterr().out)["drops"]
    assert (drop["path"], drop["kind"], drop["phase"], drop["token"]) == (T, "table", "announced", 1)
    assert run(["--url", left, "drop", T]) == 1
    assert drop["operation"] in capsys.readouterr().err


def test_resumed(
    left: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_to_destroy.py").write_text("def destroy(pending):\n    print('destroys', pending.path)\n")
    assert run(["--url", left, "drops", "resume"]) == 1
    assert "--handler" in capsys.readouterr().err
    for wrong in ("mine_to_destroy:none", "no_such_module:f", "words"):
        assert run(["--url", left, "drops", "resume", "--handler", wrong]) == 1
        assert "MODULE:FUNCTION" in capsys.readouterr().err
    assert run(["--url", left, "drops", "resume", "--handler", "mine_to_destroy:destroy"]) == 0
    assert capsys.readouterr().out == f"destroys {T}\n1 drop finished.\n"
    assert run(["--url", left, "drops", "resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"finished": 0, "without_handler": []}


def test_a_handler_that_ends_the_program_is_no_success(
    left: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ends_at_once.py").write_text("import sys\n\ndef destroy(pending):\n    sys.exit(0)\n")
    assert run(["--url", left, "drops", "resume", "--handler", "ends_at_once:destroy"]) == 1
    assert "stays pending" in capsys.readouterr().err
    with ms.open(left) as store:
        assert [one.phase for one in store.drops.pending()] == ["started"]


def test_rolled_back(left: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", left, "drops", "roll-back", T]) == 0
    assert capsys.readouterr().out == f"{T} is back.\n"
    assert run(["--url", left, "drops", "roll-back", T]) == 1
    with ms.open(left) as store:
        assert store.tables.exists(T)


def test_a_path_that_is_being_dropped_is_not_called_unknown(left: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["restore", T], ["purge", T, "--yes"], ["show", T], ["create", "table", T]):
        assert run(["--url", left, *command]) == 1
        assert "in steps; wait until that is finished or rolled back; see: metastore drops\n" in capsys.readouterr().err
    assert run(["--url", left, "drop", "m.c.s"]) == 1
    said = capsys.readouterr().err
    assert "or give --cascade; listings leave out m.c.s.t, which is being dropped: see: metastore drops" in said


def test_what_has_started_stays_with_its_process(left: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ms.open(left) as store:
        (pending,) = store.drops.pending()
        pending.started()
        before = pending.token
        time.sleep(0.02)
        assert run(["--url", left, "drops", "roll-back", T]) == 1
        assert "it can only be finished; see: metastore drops resume\n" in capsys.readouterr().err
        assert [one.token for one in store.drops.pending()] == [before]
