"""Fresh databases of all three backends at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import Databases

NewUrl = Callable[[str], str]


@pytest.fixture
def new_url(
    postgres_databases: Databases, postgres_template: str, sqlite_template: Path, tmp_path: Path
) -> Iterator[NewUrl]:
    """Give a function that makes a fresh, migrated database of a kind, and returns its URL."""
    made: list[str] = []
    made_here: list[str] = []

    def new(kind: str) -> str:
        if kind == "sqlite":
            made_here.append(kind)
            return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'{len(made_here)}.db')}"
        if kind == "memory":
            return "memory://"
        made.append(postgres_databases.create_database(template=postgres_template.rpartition("/")[2]))
        return made[-1]

    yield new
    for url in made:
        postgres_databases.drop_database(url)
