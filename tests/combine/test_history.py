"""``make combined-history``: a check that was cut off can be repeated, and finds what is wrong in the record."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(900)]
_HERE = Path(__file__).resolve().parents[2]


def history(*arguments: object) -> tuple[int, str]:
    """Run it; return its exit code, and what it said."""
    command = [sys.executable, "-m", "tests.combine.history", *map(str, arguments)]
    done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the record folder of a small run that was clean."""
    folder = tmp_path_factory.mktemp("history") / "record"
    code, said = history("--operations", 3000, "--every", 2, "--threads", 8, "--folder", folder)
    assert code == 0, said
    assert "verify: 0 problems" in said
    return folder


def test_a_check_is_repeated(recorded: Path) -> None:
    code, said = history("--check", recorded)
    assert code == 0, said
    assert "nothing is wrong" in said


def test_it_finds_an_acknowledged_write_that_is_called_failed(recorded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recorded, tmp_path / "record")
    shutil.rmtree(folder / "operations")
    _call_failed(folder)
    code, said = history("--check", folder)
    assert code == 1
    assert "its outcome was 'failed', and it wrote" in " ".join(said.split())


def test_a_log_that_is_missing_is_no_clean_run(recorded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recorded, tmp_path / "record")
    shutil.rmtree(folder / "operations")
    log = min((folder / "log").iterdir(), key=lambda path: -path.stat().st_size)
    log.unlink()
    code, said = history("--check", folder)
    assert code == 1
    assert f"{log.stem} left no records, and the feed has" in " ".join(said.split())


def test_it_tells_what_the_run_itself_found(recorded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recorded, tmp_path / "record")
    (folder / "ended.json").write_text(json.dumps(["thread p1t1 died"]))
    code, said = history("--check", folder)
    assert code == 1
    assert "thread p1t1 died" in said


def test_a_run_that_was_cut_off_has_no_verdict(recorded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recorded, tmp_path / "record")
    (folder / "ended.json").unlink()
    code, said = history("--check", folder)
    assert code == 1
    assert "Make another run" in " ".join(said.split())


def _call_failed(folder: Path) -> None:
    """Change one line of the logs: a change that was applied."""
    for log in sorted((folder / "log").iterdir()):
        lines = log.read_text().splitlines(keepends=True)
        for n, text in enumerate(lines):
            if '"outcome":"applied"' in text and '"action":"alter"' in text and '"end":{' in text:
                lines[n] = text.replace('"outcome":"applied"', '"outcome":"failed"')
                log.write_text("".join(lines))
                return
    raise AssertionError("no change was applied")
