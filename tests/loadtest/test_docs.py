"""What docs/loadtest.md shows can be typed: its commands up to the start of Spark, its file, its trace."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from metastore.cli.app import run
from metastore.loadtest.scenarios import SCENARIOS, Mix, scenario_named
from metastore.loadtest.scenarios.trace import read_trace

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "loadtest.md").read_text(encoding="utf-8")
COMMANDS = re.findall(
    r"^\$ metastore (.*loadtest .*)$", TEXT + (DOCS / "cli.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*shlex.split(command), "--master", "nonsense"]) == 1
    assert "'nonsense' is not a Spark master" in capsys.readouterr().err


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 4


def test_the_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "mine.toml").write_text(example)
    mix = scenario_named(str(tmp_path / "mine.toml"))
    assert isinstance(mix, Mix)
    assert (mix.name, mix.reads, len(mix.weights)) == ("evening", 60, 10)


def test_the_trace(tmp_path: Path) -> None:
    (example,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "t.jsonl").write_text(example)
    assert len([*read_trace(str(tmp_path / "t.jsonl"))]) == 5


def test_all_scenarios_are_there() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \|", TEXT, re.MULTILINE)) >= set(SCENARIOS)
