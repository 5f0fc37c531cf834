"""Deliberately broken variants of the store: the checks that pass for the real one must fail for these."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastore.backends.postgres import alter, create
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.writes import Update

__all__ = ["ignore_guards", "ignore_versions"]


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text, f"the statement has changed; {old!r} is not in it"
    return text.replace(old, new)


def ignore_versions(patch: pytest.MonkeyPatch) -> None:
    """Write back what was read, whatever has happened to it since: no compare in the compare-and-swap."""
    compare = "AND version = %(version)s::bigint "
    patch.setattr(alter, "ALTER", _replaced(alter.ALTER, compare, ""))

    original = SqliteBackend.commit

    def overwrite(backend: SqliteBackend, commit: Commit) -> CommitOutcome:
        (write,) = commit.writes
        assert isinstance(write, Update)
        (known,) = backend.by_id([write.id])
        assert known is not None
        return original(backend, replace(commit, writes=(replace(write, version=known.record.version),)))

    patch.setattr(SqliteBackend, "commit", overwrite)


def ignore_guards(patch: pytest.MonkeyPatch) -> None:
    """Look at the ancestors without holding them (PostgreSQL), or not at all (SQLite)."""
    patch.setattr(create, "CREATE", _replaced(create.CREATE, "ORDER BY id FOR KEY SHARE", "ORDER BY id"))
    original = SqliteBackend.commit
    patch.setattr(SqliteBackend, "commit", lambda backend, commit: original(backend, replace(commit, guards=())))
