"""A long page of the feed holds no more texts in memory than a short one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metastore as ms
from metastore.port.records import RowPage, Step

_PAGE = 10
_TEXT = "x" * 1000
_MOST = 4 * len(_TEXT) * _PAGE
"""The documents and changes of a page; each has the text once."""


@pytest.fixture
def store(sqlite_url: str) -> Iterator[ms.Store]:
    with ms.open(sqlite_url, principal="tester") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        for schema in ("hidden", "seen"):
            store.schemas.create(f"m.c.{schema}")
        yield store


def _create(store: ms.Store, schema: str) -> list[str]:
    rows = [{"name": f"t{n:03}", "properties": {"long": _TEXT}} for n in range(20 * _PAGE)]
    store.tables.create_many(schema, rows)
    return [f"{schema}.{row['name']}" for row in rows]


def _sizes(monkeypatch: pytest.MonkeyPatch, reads: object, *names: str) -> list[int]:
    """Note how much text each of these reads returns."""
    sizes = list[int]()

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            answer = method(*args, **options)
            rows = answer.rows if isinstance(answer, RowPage) else answer
            texts = [(r.doc, r.changes) if isinstance(r, Step) else (r.record.doc,) for r in rows if r is not None]
            sizes.append(sum(len(text or "") for row in texts for text in row))
            return answer

        return noted

    for name in names:
        monkeypatch.setattr(type(reads), name, noting(getattr(type(reads), name)))
    return sizes


def test_hidden_changes_bring_no_texts_and_shown_ones_come_in_parts(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.feed.feed._PAGE", _PAGE)
    store.users.create("m.ann")
    store.roles.create("m.r")
    store.roles.assign("m.r", "m.ann")
    store.roles.grant("m.r", "use_catalog", "m.c", kind="catalog")
    for privilege in ("use_schema", "select_table"):
        store.roles.grant("m.r", privilege, "m.c.seen", kind="schema")
    since = store.position()
    for path in _create(store, "m.c.hidden"):
        store.tables.alter(path, ms.SetProperty("long", f"{_TEXT}!"))
    shown = _create(store, "m.c.seen")
    sizes = _sizes(monkeypatch, store._session.backend, "feed", "steps_at")
    found = list(store.as_user("ann").changes(after=since))
    assert [one.path_after for one in found] == shown
    assert all(one.entity is not None and one.entity.properties == {"long": _TEXT} for one in found)
    assert max(sizes) < _MOST < sum(sizes)


def test_what_was_purged_is_placed_without_its_documents(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in _create(store, "m.c.hidden"):
        store.tables.purge(path)
    sizes = _sizes(monkeypatch, store._session.backend.past, "by_id")
    schema = store.schemas.load("m.c.hidden")
    assert sum(one.action == "purge" for one in store.changes(under=schema)) == 20 * _PAGE
    assert sizes
    assert max(sizes) < _MOST
