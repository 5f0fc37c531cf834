"""Who makes a request: by a token, by a proxy's header; a request of nobody is refused before it is read."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog import load_catalog

import metastore as ms
from metastore.serve import Principals, TokenFile, tokens_of
from metastore.serve.principals import NotAuthenticated
from tests.iceberg.server import served


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("ann@corp.com first-secret\n\nbob second-secret\n")
    return file


def _creators(url: str) -> dict[str | None, str | None]:
    with ms.open(url) as store:
        return {change.path_after: change.principal for change in store.changes() if change.kind == "schema"}


def test_a_token_says_who_asks(sqlite_url: str, tmp_path: Path, tokens: Path) -> None:
    with served(sqlite_url, tmp_path / "w", Principals(tokens_of(tokens))) as address:
        for name, token in (("a", "first-secret"), ("b", "second-secret")):
            load_catalog("x", type="rest", uri=address, warehouse="lake.ice", token=token).create_namespace(name)
        for wrong in ({}, {"Authorization": "Bearer third"}, {"Authorization": "Basic YW5uOg=="}, {"X-User": "ann"}):
            answer = httpx.post(f"{address}/v1/lake.ice/namespaces", content=b"{torn", headers=wrong)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "NotAuthorizedException")
            assert "secret" not in answer.text
            other = httpx.get(address.replace("/iceberg", "/api/metalakes"), headers=wrong)
            assert other.status_code == 401  # the other protocol of the server asks for it too
    assert _creators(sqlite_url) == {"lake.ice.a": "ann@corp.com", "lake.ice.b": "bob"}


def test_a_proxy_says_who_asks(sqlite_url: str, tmp_path: Path) -> None:
    with served(sqlite_url, tmp_path / "w", Principals(header="X-User")) as address:
        body = {"namespace": ["a"]}
        assert httpx.post(f"{address}/v1/lake.ice/namespaces", json=body).status_code == 401
        sent = httpx.post(f"{address}/v1/lake.ice/namespaces", json=body, headers={"X-User": "ann"})
        assert sent.status_code == 200
    assert _creators(sqlite_url) == {"lake.ice.a": "ann"}


def test_a_proxy_names_a_user_in_utf_8(sqlite_url: str, tmp_path: Path) -> None:
    """It was read as Latin-1: the history named somebody else, and the user had no rights."""
    with served(sqlite_url, tmp_path / "w", Principals(header="X-User")) as address:
        for value, status in (("caf\u00e9".encode(), 200), ("caf\u00e9".encode("latin-1"), 401)):
            body = {"namespace": ["a"]}
            sent = httpx.post(f"{address}/v1/lake.ice/namespaces", json=body, headers={b"X-User": value})
            assert sent.status_code == status
    with ms.open(sqlite_url) as store:
        assert store.schemas.load("lake.ice.a").created_by == "caf\u00e9"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ann\n", "line 1"),
        ("\n", "no token"),
        ("ann a b", "line 1"),
        ("ann a\nbob a", "line 2 .* another user's token"),
        (None, "No such file"),
    ],
)
def test_a_bad_token_file_is_refused_without_its_secrets(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ms.InvalidArgument, match=message):
        tokens_of(file)


@pytest.mark.parametrize("header", [None, "x-user"])
def test_the_last_token_that_is_taken_out_ends_too(tmp_path: Path, header: str | None) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann first\n")
    principals = Principals(TokenFile(file), header)
    asked = {"authorization": "Bearer first", "x-user": "ann"}
    assert principals.principal(asked).name == "ann"
    file.write_text("\n")
    for headers in (asked, {"x-user": "ann"}):
        with pytest.raises(NotAuthenticated):
            principals.principal(headers)
    file.write_text("ann second\n")
    assert principals.principal({**asked, "authorization": "Bearer second"}).name == "ann"


def test_tokens_are_in_no_text_of_the_principals(tokens: Path) -> None:
    assert "secret" not in repr(Principals(tokens_of(tokens)))
