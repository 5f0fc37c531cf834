"""Invariant 14, what takes a right away: verify says nothing of commits whose rows do not tell what they raised."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

import pytest

import metastore as ms
from tests.migration.schema import run

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

_NOTELESS = ("UPDATE operation SET fences = NULL", "UPDATE operation SET writer = {writer}")


def govern(store: ms.Store) -> None:
    """Take rights away in all ways, in operations of one row and of several."""
    store.metalakes.create("lake")
    ann, reader = store.users.create(("lake", "ann")), store.roles.create("lake.reader")
    store.roles.grant(reader, "use_catalog", "lake")
    store.roles.revoke(reader, "use_catalog", "lake")
    store.roles.grant(reader, "select_table", "lake", effect="deny")
    store.roles.assign(reader, ann)
    store.owners.set("lake", ann)
    store.roles.drop(reader)
    store.roles.restore("lake.reader")
    with store.transaction() as t:
        t.metalakes.alter("lake", ms.SetComment("of bob too"))
        bob = t.users.create(("lake", "bob"))
        t.roles.assign("lake.reader", bob)


def test_a_commit_that_gc_has_cut_is_not_reported(store: ms.Store) -> None:
    """The row that made the user is gone: the others do not say that no right rested on it."""
    govern(store)
    store.users.alter(("lake", "bob"), ms.SetProperty("team", "red"))
    store.gc(retention=timedelta(0), keep_versions=1)
    assert store.verify() == []


def test_steps_of_programs_that_noted_nothing_are_not_reported(url: str, store: ms.Store) -> None:
    """Nor after the export of such a database was restored: that makes them no steps of this program."""
    govern(store)
    found = _without_notes(url, store, "12")
    assert {violation.invariant for violation in found} == {14}
    assert len(found) == 5
    assert _without_notes(url, store, "NULL") == []


@pytest.mark.parametrize("other", ["memory://", "sqlite:///other.db"])
@pytest.mark.parametrize("history", [False, True], ids=["ids", "history"])
def test_restored_steps_are_not_reported(
    url: str, store: ms.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, history: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    govern(store)
    _without_notes(url, store, "NULL")
    stream = io.BytesIO()
    store.export_to(stream, ids=True, history=history)
    with ms.open(other) as restored:
        restored.import_from(stream)
        assert restored.verify() == []
        restored.roles.assign("lake.reader", restored.users.create(("lake", "cyd")))
        assert restored.verify() == []


def _without_notes(url: str, store: ms.Store, writer: str) -> list[ms.Violation]:
    run(url, *[statement.format(writer=writer) for statement in _NOTELESS])
    return store.verify()
