"""Relations and rights in the feed of a real store: clean as it is, and each planted contradiction is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.checker.event import Event
from metastore.checker.tree import Tree
from tests.contract.authorized import prepare


def _feed() -> list[Event]:
    """Return the feed of a store in which relations and rights came and went."""
    with ms.open("memory://") as store:
        lake = prepare(store)
        lake.reader()
        role = lake.role("writer", ("modify_table", "table", "lake.sales.eu.orders"))
        store.tags.create("lake.pii")
        store.tags.attach(lake.orders, "lake.pii", value="x")
        store.owners.set(lake.orders, ("lake", "ann@corp"))
        store.owners.set(lake.orders, ("lake", "bob@corp"))
        ann = store.as_user("ann@corp")
        ann.tables.alter("lake.sales.eu.orders", ms.SetComment("ann's"))
        store.roles.revoke(role, "modify_table", lake.orders)
        store.roles.grant(role, "modify_table", lake.orders)
        ann.tables.alter("lake.sales.eu.orders", ms.SetComment("again"))
        store.tags.detach(lake.orders, "lake.pii")
        store.tags.attach(lake.orders, "lake.pii")
        store.tables.rename("lake.sales.eu.orders", "sold")
        store.tags.drop("lake.pii")
        return _events(store)


def _events(store: Store) -> list[Event]:
    steps = store._session.backend.feed(0, 1_000).rows
    names = [name for name in Event._fields if name not in ("seq", "operation_id", "asked", "wrong")]
    return [
        Event(step.seq or 0, str(step.operation_id), **{name: getattr(step, name) for name in names}) for step in steps
    ]


def _rules(events: list[Event]) -> list[str]:
    tree = Tree()
    return [finding.rule for event in events for finding in tree.apply(event)[1]]


def _found(events: list[Event], kind: str, action: str = "create") -> int:
    return next(n for n, event in enumerate(events) if (event.kind, event.action) == (kind, action))


def _late_attach(events: list[Event]) -> list[Event]:
    """Attach after the drop of the tag."""
    n = _found(events, "tag_on")
    return [*events, events[n]._replace(entity_id=9_999, seq=9_999)]


def _second_owner(events: list[Event]) -> list[Event]:
    n = _found(events, "owner")
    return [*events[: n + 1], events[n]._replace(entity_id=9_999, operation_id="x"), *events[n + 1 :]]


def _wrong_end(events: list[Event]) -> list[Event]:
    n = _found(events, "tag_on")
    return [*events[:n], events[n]._replace(other_path="lake.other"), *events[n + 1 :]]


def _lost_right(events: list[Event]) -> list[Event]:
    """Give the last write of ann the evidence of the first, which the revocation made stale."""
    first, last = [n for n, event in enumerate(events) if event.kind == "table" and event.principal == "ann@corp"]
    return [*events[:last], events[last]._replace(fences=events[first].fences), *events[last + 1 :]]


def _no_version(events: list[Event]) -> list[Event]:
    n = _found(events, "owner", "alter")
    return [*events[:n], events[n]._replace(version=5), *events[n + 1 :]]


PLANTED: dict[str, tuple[Callable[[list[Event]], list[Event]], str]] = {
    "an attach after the drop of its tag": (_late_attach, "orphan"),
    "a second owner": (_second_owner, "name"),
    "an end at another path": (_wrong_end, "replay"),
    "a write after its revocation": (_lost_right, "rights"),
    "a version that is missing": (_no_version, "chain"),
}


def test_a_clean_feed_has_no_finding() -> None:
    assert _rules(_feed()) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found(planted: str) -> None:
    plant, rule = PLANTED[planted]
    assert rule in _rules(plant(_feed()))


def test_a_note_that_cannot_be_read_is_a_finding() -> None:
    events: list[Any] = _feed()
    events[3] = events[3]._replace(fences="{}}")
    assert _rules(events) == ["rights"]
