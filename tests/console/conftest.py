"""Two servers for all tests of a module: one that everybody may use, and one with tokens and rights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import metastore as ms
from metastore.serve import Principals, TokenFile
from tests.console.lake import build
from tests.console.server import Console, served


@pytest.fixture(scope="module")
def lake_url(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the URL of a store with an entity of each kind."""
    url = f"sqlite:///{shutil.copy(sqlite_template, tmp_path_factory.mktemp('lake') / 'metastore.db')}"
    with ms.open(url, principal="ada") as store:
        build(store)
    return url


@pytest.fixture(scope="module")
def console(lake_url: str) -> Iterator[Console]:
    """Serve the store; nothing is checked."""
    with served(lake_url) as console:
        yield console


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the file of tokens of the guarded server."""
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("root root-token\nnarrow narrow-token\nstranger stranger-token\n")
    return file


@pytest.fixture(scope="module")
def guarded(lake_url: str, tokens: Path) -> Iterator[Console]:
    """Serve the same store; users sign in with tokens, and each page is checked. ``root`` is an admin."""
    with served(lake_url, Principals(TokenFile(tokens)), admins=("root",)) as console:
        yield console
