"""``metastore serve --check`` says what is unsafe. tests/migration/test_roles.py has the checks of roles."""

from __future__ import annotations

import json
import re
import shlex
import socket
import sqlite3
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.port.format import RESTORING, SCHEMA_FORMAT
from tests.iceberg.test_limits import certificate

pytestmark = pytest.mark.one_in(3)


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
    tokens, (cert, key) = tmp_path / "tokens", certificate(tmp_path, "server")
    tokens.write_text("ann secret\n")
    for file in (tokens, key):
        file.chmod(0o600)
    known, proxy = ["--token-file", str(tokens)], ["--proxy-header", "X-User"]
    assert unsafe(url, capsys) == {}
    assert "serve refuses to start" in unsafe(url, capsys, "--host", "0.0.0.0")["address"]
    assert "without TLS" in unsafe(url, capsys, "--host", "0.0.0.0", *known)["address"]
    tls = ["--tls-cert", str(cert), "--tls-key", str(key)]
    assert "names any user" in unsafe(url, capsys, "--host", "0.0.0.0", *proxy, *tls)["address"]
    assert unsafe(url, capsys, "--host", "0.0.0.0", *known, *tls) == {}
    assert unsafe(url, capsys, "--host", "127.0.0.1", *known) == {}
    issuer = ["--oidc-issuer", "https://idp.example", "--oidc-audience", "lake"]
    assert unsafe(url, capsys, "--host", "0.0.0.0", "--authorization", *issuer, *tls) == {}
    secret = tmp_path / "secret"
    secret.write_text("secret of the console\n")
    secret.chmod(0o644)
    client = ["--oidc-client-id", "console", "--oidc-client-secret-file", str(secret)]
    assert "others may read" in unsafe(url, capsys, *issuer, *client, "--public-url", "https://lake.example")["file"]
    wrong = [issuer[:2], [*issuer, *proxy], [*issuer, *client], [*issuer, *client[2:]], client]
    wrong += [
        ["--public-url", "https://lake.example"],
        [*issuer, *client, "--public-url", "https://lake.example", "--no-console"],
    ]
    assert [run(["--url", url, "serve", "--check", *words]) for words in wrong] == [1] * len(wrong)
    said = " ".join(capsys.readouterr().err.split())
    assert "--public-url need --oidc-client-id" in said
    assert "--oidc-client-id needs --oidc-issuer, --public-url, and the console" in said
    assert "both --oidc-issuer and --oidc-audience" in said
    assert "choose one" in said
    with pytest.MonkeyPatch.context() as without:
        without.setitem(sys.modules, "metastore.serve.oidc", None)
        assert run(["--url", url, "serve", *issuer]) == 1
    assert "pip install 'versioned-metastore[serve,oidc]'" in " ".join(capsys.readouterr().err.split())
    assert unsafe(url, capsys, *proxy) == {}


def test_a_server_says_that_it_serves_once_it_does(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.serve.audit.show", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["--url", url, "serve", "--port", str(taken.getsockname()[1])]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert " ".join(said.err.split()).endswith("Address already in use; choose another")
    assert run(["--url", f"{url}.none", "console"]) == 1
    assert "there is no database" in capsys.readouterr().err


def test_options_with_which_serve_does_not_start_are_named(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "serve refuses to start" in unsafe(url, capsys, "--authorization")["address"]
    assert run(["--url", url, "serve", "--check", "--admin", "ada"]) == 1
    assert "--admin needs --authorization" in " ".join(capsys.readouterr().err.split())
    tokens, (cert, _), (_, other) = tmp_path / "tokens", certificate(tmp_path, "server"), certificate(tmp_path, "other")
    for text, found in (("ann\n", "line 1 of the token file"), ("", "has no token")):
        tokens.write_text(text)
        assert found in unsafe(url, capsys, "--token-file", str(tokens))["file"]
    assert "cannot be used" in unsafe(url, capsys, "--tls-cert", str(cert), "--tls-key", str(other))["file"]
    for words in (
        "--gc-retention 1h",
        "--warehouse lake=file:///tmp/x",
        "--credential lake.ice:s3.region=eu",
        "--max-connections 999999999",
        "--warehouse lake.ice=ftp://host/x",
        "--warehouse lake.ice=folder",
        "--warehouse lake.ice=file://folder",
        "--warehouse lake.ice=/a --warehouse lake.ice=/b",
        "--proxy-header Authorization",
        "--proxy-header X:User",
        "--allow-location s3:folder",
        "--reveal LAKE_",
        "--reveal :",
        "--no-gravitino --reveal env:LAKE_",
        "--take-over-jobs",
        "--job-workers 1",
    ):
        said = []
        for check in (["--check"], []):
            assert run(["--url", url, "serve", "--port", "0", *check, *words.split()]) == 1
            said.append(capsys.readouterr().err)
        assert said[0] == said[1]
    for option in ("--warehouse", "--credential"):
        assert run(["--url", url, "serve", "--check", option, "nonsense"]) == 1
        assert "is written metalake.catalog" in capsys.readouterr().err


def test_a_file_that_others_read_or_change_is_named(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = tmp_path / "tokens"
    assert "cannot be read: No such file" in unsafe(url, capsys, "--token-file", str(tokens))["file"]
    for mode, found in ((0o644, "read it"), (0o620, "change it"), (0o666, "read and change it")):
        tokens.write_text("ann secret\n")
        tokens.chmod(mode)
        assert f"others may {found}" in unsafe(url, capsys, "--token-file", str(tokens))["file"]
    tokens.chmod(0o640)  # its group is the service's
    assert unsafe(url, capsys, "--token-file", str(tokens)) == {}
    assert run(["--url", url, "serve", "--check", "--token-file", str(tokens)]) == 0
    assert f"its group {tokens.stat().st_gid} can read it" in capsys.readouterr().out


def test_an_old_file_is_named_and_stays_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = f"sqlite:///{tmp_path / 'old.db'}"
    ms.migrate(old, to="0010")
    for _ in range(2):
        assert "migrations are due" in unsafe(old, capsys)["format"]
    assert run(["--url", old, "serve", "--check"]) == 1
    assert "NO" in capsys.readouterr().out


def test_a_file_of_a_newer_program_or_an_unfinished_import_is_judged_by_its_format(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = SCHEMA_FORMAT + 1
    for values, found in (
        ((SCHEMA_FORMAT, RESTORING, SCHEMA_FORMAT), "an import into the database is not finished"),
        ((newer, newer, newer), "is too old for it"),
        ((newer, SCHEMA_FORMAT, newer), None),  # it admits this program
    ):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.execute("UPDATE info SET format = ?, compatible_from = ?", values[:2])
            file.execute("UPDATE alembic_version SET version_num = ?", (str(values[2]).zfill(4),))
        assert found in unsafe(url, capsys)["format"] if found else unsafe(url, capsys) == {}


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("lake.ice=arn:aws:iam::123456789012:role/lake", "metalake.catalog:key=value"),
        ("lake.ice:duration=1h", "needs one of role=ARN"),
        ("lake.ice:roll=x", "needs one of role=ARN"),
        ("lake.ice:role=lake", "an ARN"),
        ("lake.ice:azure-account=Lake!", "3 to 24 small letters"),
        ("lake.ice:gcs-bucket=gs://lake", "a bucket is"),
    ],
)
def test_a_vendor_that_is_written_wrong_is_named(
    url: str, option: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--url", url, "serve", "--check", "--vend", option]) == 1
    assert word in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["role=x", "gcs-bucket=lake"], "needs one of role=ARN"),
        (["role=x", "roll=y"], "also allows only duration and endpoint"),
        (["azure-account=lake", "role-arn=y"], "also allows only duration and endpoint"),
        (["azure-account=lake", "duration=1m"], "15 minutes"),
        (["gcs-bucket=lake", "duration=1h"], "also allows only endpoint, not 'duration'"),
    ],
)
def test_settings_of_a_vendor_that_do_not_fit_together_are_named(
    url: str, options: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for option in options for word in ("--vend", f"lake.ice:{option}")]
    assert run(["--url", url, "serve", "--check", *words]) == 1
    assert word in capsys.readouterr().err.replace("\n", " ")


def test_the_vendors_of_the_documentation_are_written_right(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need a cloud to give a key, and none to be checked."""
    monkeypatch.setenv("LAKE_SECRET", "secret")
    text = (Path(__file__).resolve().parents[2] / "docs" / "iceberg.md").read_text(encoding="utf-8")
    shown = [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "--vend" in block]
    assert len(shown) == 3
    for block in shown:
        words = shlex.split(block.replace("\\\n", " "))
        options = [pair for pair in pairwise(words) if pair[0] in ("--warehouse", "--credential", "--vend")]
        given = [word for option in options for word in option]
        run(["--url", url, "serve", "--check", *given])
        assert capsys.readouterr().err == "", block
