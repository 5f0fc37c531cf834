"""The feed, replayed: event by event, as it should be and as it must not be."""

from __future__ import annotations

import pytest

from metastore.checker.event import Event
from metastore.checker.finding import Finding
from metastore.checker.tree import CHILDREN, DROPPED, NO_NAME, Tree


class Feed:
    """Events in a row."""

    def __init__(self) -> None:
        self.tree, self.seq, self.versions = Tree(), 0, dict[int, int]()
        self.findings: list[Finding] = []

    def add(
        self,
        action: str,
        entity_id: int,
        before: str | None,
        after: str | None,
        *,
        kind: str = "schema",
        version: int | None = None,
        owner_id: int | None = None,
        operation_id: str | None = None,
        asked: str | None = None,
    ) -> Feed:
        self.seq += 1
        makes = self.versions.get(entity_id, 0) + 1 if version is None else version
        self.versions[entity_id] = makes
        event = Event(
            self.seq,
            operation_id or f"o{self.seq}",
            f"c/{self.seq}",
            kind,
            action,
            entity_id,
            owner_id,
            makes,
            before,
            after,
            asked,
        )
        self.findings += self.tree.apply(event)[1]
        return self

    def made(self, entity_id: int, path: str, **more: str) -> Feed:
        return self.add("create", entity_id, None, path, **more)  # type: ignore[arg-type]

    @property
    def rules(self) -> list[str]:
        return [finding.rule for finding in self.findings]


@pytest.fixture
def feed() -> Feed:
    """A tree: l.c.s with a table t, and l.c.r."""
    feed = Feed().made(1, "l", kind="metalake").made(2, "l.c", kind="catalog")
    return feed.made(3, "l.c.s").made(4, "l.c.r").made(5, "l.c.s.t", kind="table")


def test_what_follows_is_right(feed: Feed) -> None:
    feed.add("alter", 5, "l.c.s.t", "l.c.s.t", kind="table")
    feed.add("move", 5, "l.c.s.t", "l.c.r.u", kind="table")
    feed.add("drop", 3, "l.c.s", None, asked="drop")
    feed.add("rename", 4, "l.c.r", "l.c.s")
    feed.add("alter", 5, "l.c.s.u", "l.c.s.u", kind="table")
    feed.add("drop", 2, "l.c", None, kind="catalog")
    feed.add("restore", 2, None, "l.c", kind="catalog")
    feed.add("create", 9, None, "l.c.s.u.p", kind="partition", owner_id=5)
    assert feed.findings == []
    assert sorted(feed.tree.live()) == [
        (1, "metalake", "l", 1),
        (2, "catalog", "l.c", 3),
        (4, "schema", "l.c.s", 2),
        (5, "table", "l.c.s.u", 4),
    ]


@pytest.mark.parametrize(("version", "rules"), [(2, []), (3, ["chain"]), (1, ["chain"])])
def test_versions_are_a_chain(feed: Feed, version: int, rules: list[str]) -> None:
    feed.add("alter", 5, "l.c.s.t", "l.c.s.t", kind="table", version=version)
    assert feed.rules == rules
    if rules:
        assert [one.split(":")[0] for one in feed.findings[0].operations] == ["c/5", "c/6"]


def test_two_versions_of_one_operation(feed: Feed) -> None:
    for _ in range(2):
        feed.add("alter", 5, "l.c.s.t", "l.c.s.t", kind="table", operation_id="one")
    assert feed.rules == ["chain"]


def test_one_name_for_two(feed: Feed) -> None:
    feed.made(6, "l.c.s.t", kind="view")
    assert feed.rules == ["name"]
    feed.add("rename", 4, "l.c.r", "l.c.s")
    assert feed.rules == ["name", "name"]


@pytest.mark.parametrize("how", ["drop", "rename"])
def test_below_a_parent_that_is_gone(feed: Feed, how: str) -> None:
    feed.add(how, 4, "l.c.r", None if how == "drop" else "l.c.q")
    feed.made(6, "l.c.r.t", kind="table")
    assert feed.rules == ["orphan"]
    assert [one.split(":")[0] for one in feed.findings[0].operations] == ["c/6", "c/7"]


def test_a_parent_that_was_not_empty(feed: Feed) -> None:
    feed.add("drop", 3, "l.c.s", None, asked="drop")
    assert feed.rules == ["orphan"]


def test_with_all_below_it(feed: Feed) -> None:
    feed.add("drop", 3, "l.c.s", None, asked="drop_cascade").add("drop", 4, "l.c.r", None)
    assert feed.rules == []
    feed.add("alter", 5, "l.c.s.t", "l.c.s.t", kind="table")
    assert feed.rules == ["replay"]


@pytest.mark.parametrize("action", ["alter", "rename", "drop"])
def test_by_a_path_that_led_elsewhere(feed: Feed, action: str) -> None:
    feed.add("rename", 3, "l.c.s", "l.c.q")
    feed.add(action, 5, "l.c.s.t", {"alter": "l.c.s.t", "rename": "l.c.q.u", "drop": None}[action], kind="table")
    assert feed.rules == ["replay"]


def test_an_owned_row_of_what_is_gone(feed: Feed) -> None:
    feed.add("drop", 5, "l.c.s.t", None, kind="table")
    feed.add("create", 9, None, "l.c.s.t.p", kind="partition", owner_id=5)
    assert feed.rules == ["orphan"]


def test_a_feed_that_gc_has_shortened() -> None:
    feed = Feed()
    feed.add("alter", 1, "l", "l", kind="metalake", version=7)
    assert feed.rules == []


def test_a_feed_that_puts_something_below_itself_is_told_and_ends(feed: Feed) -> None:
    feed.made(6, "l.c.s.n")
    feed.add("move", 3, "l.c.s", "l.c.s.n.s")
    assert [entity_id for entity_id, *_ in feed.tree.live()] == [1, 2, 4]


class TestWhatNoProgramWrites:
    def test_a_second_beginning(self, feed: Feed) -> None:
        feed.add("create", 5, None, "l.c.s.t", kind="table")
        assert feed.rules == ["chain"]

    def test_a_restore_of_what_is_there(self, feed: Feed) -> None:
        feed.add("restore", 5, None, "l.c.s.t", kind="table")
        assert feed.rules == ["chain"]

    def test_an_alter_that_leads_elsewhere(self, feed: Feed) -> None:
        feed.add("alter", 5, "l.c.s.t", "l.c.s.u", kind="table")
        assert feed.rules == ["replay"]

    def test_another_kind(self, feed: Feed) -> None:
        feed.add("alter", 5, "l.c.s.t", "l.c.s.t", kind="view")
        assert feed.rules == ["replay"]

    def test_another_action(self, feed: Feed) -> None:
        feed.add("paint", 5, "l.c.s.t", "l.c.s.t", kind="table")
        assert feed.rules == ["replay"]

    def test_a_beginning_nowhere(self, feed: Feed) -> None:
        feed.add("create", 6, None, None)
        assert feed.rules == ["replay"]

    def test_below_itself(self, feed: Feed) -> None:
        feed.made(6, "l.c.s.d")
        feed.add("move", 3, "l.c.s", "l.c.s.d.s")
        assert feed.rules == ["orphan"]
        assert "below itself" in feed.findings[0].message


def test_owned_rows_have_names_of_their_own(feed: Feed) -> None:
    feed.add("create", 8, None, "l.c.s.t.p", kind="partition", owner_id=5)
    feed.add("create", 9, None, "l.c.s.t.p", kind="statistic", owner_id=5)
    feed.add("drop", 8, "l.c.s.t.p", None, kind="partition", owner_id=5)
    feed.add("create", 10, None, "l.c.s.t.p", kind="partition", owner_id=5)
    assert feed.rules == []
    feed.add("create", 11, None, "l.c.s.t.p", kind="partition", owner_id=5)
    assert feed.rules == ["name"]


def test_children_and_what_was_dropped_come_with_each_event() -> None:
    """Only where they change: a second child changes nothing, and a view is not restored as a table."""
    tree, seen = Tree(), list[tuple[int, list[tuple[int, str, str, int | None]]]]()
    events: list[tuple[str, str, int, int, str | None, str | None]] = [
        ("metalake", "create", 1, 1, None, "l"),
        ("catalog", "create", 2, 1, None, "l.c"),
        ("catalog", "create", 3, 1, None, "l.d"),
        ("catalog", "drop", 2, 2, "l.c", None),
        ("catalog", "drop", 3, 2, "l.d", None),
        ("catalog", "create", 4, 1, None, "l.c"),
        ("catalog", "rename", 4, 2, "l.c", "l.e"),
        ("catalog", "drop", 4, 3, "l.e", None),
        ("catalog", "restore", 4, 4, None, "l.c"),
        ("catalog", "drop", 4, 5, "l.c", None),
        ("catalog", "purge", 4, 6, "l.c", None),
        ("catalog", "restore", 2, 3, None, "l.c"),
    ]
    for seq, (kind, action, entity_id, version, before, after) in enumerate(events, 1):
        event = Event(seq, f"o{seq}", None, kind, action, entity_id, None, version, before, after)
        placed, findings = tree.apply(event)
        assert findings == []
        seen.append((seq, [tuple(n) for n in placed.names if n.family.startswith(NO_NAME)]))  # type: ignore[misc]
    has, had, gone = (1, CHILDREN, "", 1), (1, CHILDREN, "", None), DROPPED + "catalog"
    assert [(seq, sorted(names, key=str)) for seq, names in seen] == [
        *((1, []), (2, [has]), (3, []), (4, [(1, gone, "c", 2)]), (5, [had, (1, gone, "d", 3)]), (6, [has]), (7, [])),
        *((8, [had, (1, gone, "e", 4)]), (9, [has, (1, gone, "e", None)]), (10, [had, (1, gone, "c", 4)])),
        *((11, [(1, gone, "c", 2)]), (12, [has, (1, gone, "c", None)])),
    ]


def test_a_restore_is_of_the_newest_of_its_kind() -> None:
    """A table and a view share their names; what is restored is the newest of one kind."""
    feed = Feed().made(1, "l", kind="metalake").made(2, "l.c", kind="catalog").made(3, "l.c.s")
    feed.made(5, "l.c.s.t", kind="table").add("drop", 5, "l.c.s.t", None, kind="table")
    feed.made(6, "l.c.s.t", kind="view").add("drop", 6, "l.c.s.t", None, kind="view")
    feed.add("restore", 5, None, "l.c.s.t", kind="table", asked="restore")
    assert feed.findings == []
