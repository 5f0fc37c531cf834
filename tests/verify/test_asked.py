"""What ``verify`` asks of the tables has the names that they declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.backends.sql import snapshot
from metastore.backends.sql.tables import metadata
from tests.verify.planting import build


def test_verify_asks_for_declared_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, str]] = set()
    select, select_below = snapshot.select, snapshot.select_below

    def rows(table: str, columns: Any, order: Any, among: str | None = None) -> str:
        asked.update((table, name) for name in (*columns, *order))
        return select(table, columns, order, among)

    def below(columns: Any, among: str, *, gone: bool) -> str:
        asked.update(("guard", name) for name in columns)
        return select_below(columns, among, gone=gone)

    monkeypatch.setattr(snapshot, "select", rows)
    monkeypatch.setattr(snapshot, "select_below", below)
    url = f"sqlite:///{tmp_path / 'a.db'}"
    build(url)
    with ms.open(url) as store:
        store.verify()
    assert asked <= {(table.name, column.name) for table in metadata.tables.values() for column in table.columns}
    assert {table for table, _ in asked} >= {"guard", "entity", "owned", "relation", "operation"}
