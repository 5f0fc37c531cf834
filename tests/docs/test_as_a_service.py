"""The unit for systemd and the container file: what this machine can check of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metastore.cli.app import run as cli
from tests.docs.examples import ROOT

FOLDER = ROOT / "docs" / "examples" / "server"
UNIT = (FOLDER / "metastore.service").read_text()
CONTAINER = (FOLDER / "Containerfile").read_text()
EXPOSURE = 2.0


def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("needs systemd-analyze (apt-get install systemd)")

    def analyze(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([systemd, "--no-pager", *words], capture_output=True, text=True, check=False)

    file = tmp_path / "metastore.service"
    file.write_text(UNIT.replace("/opt/metastore/bin/metastore", sys.executable))  # verify looks for the program
    verified = analyze("verify", str(file))
    assert (verified.returncode, verified.stderr) == (0, "")
    file.write_text(file.read_text().replace("[Service]", "[Service]\nNoSuchSetting=yes"))
    assert "NoSuchSetting" in analyze("verify", str(file)).stderr
    judged = analyze("security", "--offline=true", str(FOLDER / "metastore.service")).stdout
    overall = re.search(r"Overall exposure level .*: ([\d.]+)", judged)
    assert overall is not None, judged
    assert float(overall[1]) <= EXPOSURE


@pytest.mark.parametrize("file", ["metastore.service", "Containerfile"])
def test_both_start_a_server_that_asks_who_it_is(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = re.findall(
        r"^(?:ExecStart=\S+ |CMD )(.*)$", {"metastore.service": UNIT, "Containerfile": CONTAINER}[file], re.MULTILINE
    )
    words = json.loads(line) if line.startswith("[") else line.split()
    cli(["--url", "memory://", *words, "--check", "--json"])
    found = {
        one["check"]: one["found"] for one in json.loads(capsys.readouterr().out)["checks"]
    }  # each option is known
    assert "serve refuses to start" not in found["address"]
    assert "--authorization" in words


def test_the_container_runs_as_an_ordinary_user_and_holds_no_secret() -> None:
    last = CONTAINER.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (\d+):\1$", last, re.MULTILINE)
    assert not re.search(r"^(ENV|ARG|ADD)\b", CONTAINER, re.MULTILINE)
    assert re.findall(r"^COPY (?:--from=build )?(\S+)", CONTAINER, re.MULTILINE) == [
        "versioned_metastore-*.whl",
        "/opt/metastore",
    ]
    assert "EnvironmentFile=" in UNIT
    assert not re.search(r"^Environment=", UNIT, re.MULTILINE)
