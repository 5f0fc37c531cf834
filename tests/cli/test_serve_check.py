"""``metastore serve --check`` says what is unsafe. tests/migration/test_roles.py has the checks of roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.cli.app import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path / 'a.db'}"
    ms.migrate(found)
    return found


def unsafe(url: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """Return what the check names; its exit code says whether that is anything."""
    code = run(["--url", url, "serve", "--check", "--json", *options])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["safe"] else 1)
    return {one["check"]: one["found"] for one in answer["checks"] if not one["safe"]}


def test_an_address_that_others_reach_needs_users_and_tls(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens, key = tmp_path / "tokens", tmp_path / "key.pem"
    for file in (tokens, key):
        file.touch(0o600)
    known = ["--token-file", str(tokens)]
    assert unsafe(url, capsys) == {}
    assert "serve refuses to start" in unsafe(url, capsys, "--host", "0.0.0.0")["address"]
    assert "without TLS" in unsafe(url, capsys, "--host", "0.0.0.0", *known)["address"]
    tls = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(key)]
    assert unsafe(url, capsys, "--host", "0.0.0.0", *known, *tls) == {}
    assert unsafe(url, capsys, "--host", "127.0.0.1", *known) == {}


def test_a_file_that_others_read_or_change_is_named(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = tmp_path / "tokens"
    assert "cannot be read: No such file" in unsafe(url, capsys, "--token-file", str(tokens))["file"]
    for mode, found in ((0o644, "read it"), (0o620, "change it"), (0o666, "read and change it")):
        tokens.touch()
        tokens.chmod(mode)
        assert f"others may {found}" in unsafe(url, capsys, "--token-file", str(tokens))["file"]
    tokens.chmod(0o640)  # its group is the service's
    assert unsafe(url, capsys, "--token-file", str(tokens)) == {}


def test_an_old_file_is_named_and_stays_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = f"sqlite:///{tmp_path / 'old.db'}"
    ms.migrate(old, to="0010")
    for _ in range(2):
        assert "migrations are due" in unsafe(old, capsys)["format"]
    assert run(["--url", old, "serve", "--check"]) == 1
    assert "NO" in capsys.readouterr().out
