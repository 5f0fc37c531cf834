"""What clients were told, against the feed: histories made by hand."""

from __future__ import annotations

import pytest

from metastore.checker.finding import RULES
from metastore.checker.operation import ClientOperation
from metastore.checker.records import Seen
from metastore.checker.tree import CHILDREN, DROPPED, Named, Placed
from tests.checker.histories import created, dropped, found, lost, operation, saw, wrote

BEFORE = (created(1, 7, "a", "setup"), created(2, 8, "b", "setup"))


def rules(*operations: ClientOperation, before: tuple[Placed, ...] = BEFORE, since: int = 2) -> list[str]:
    return [finding.rule for finding in found(operations, before=before, since=since)]


def alter(who: str, start: int, end: int | None, seq: int, what: int, makes: int, **more: object) -> ClientOperation:
    return operation(who, start, end, events=[wrote(seq, what, makes, who)], **more)  # type: ignore[arg-type]


def load(who: str, start: int, end: int, *seen: object) -> ClientOperation:
    return operation(who, start, end, action="load", reads=[saw(*seen)])  # type: ignore[arg-type]


def test_a_history_as_it_should_be_has_nothing() -> None:
    history = (
        load("c/1", 0, 1, "a", 7, 1),
        alter("d/1", 1, 9, 3, 7, 2),
        load("c/2", 2, 8, "a", 7, 1),
        load("e/1", 2, 8, "a", 7, 2),
        load("c/3", 10, 11, "a", 7, 2),
        load("c/4", 12, 13, "x"),
        operation("d/2", 14, 15, action="drop", events=[dropped(4, 7, "a", "d/2")]),
        load("c/5", 16, 17, "a"),
    )
    assert rules(*history) == []


class TestReads:
    def test_one_that_is_older_than_what_had_been_acknowledged(self) -> None:
        (finding,) = found([alter("d/1", 0, 1, 3, 7, 2), load("c/1", 2, 3, "a", 7, 1)], before=BEFORE, since=2)
        assert finding.rule == "read"
        assert len(finding.operations) == 2
        assert finding.operations[0].startswith("d/1 made version 2")
        assert finding.operations[1].startswith("c/1: load")

    def test_one_that_is_older_than_what_another_had_read(self) -> None:
        slow = alter("d/1", 0, 99, 3, 7, 2)
        assert rules(slow, load("c/1", 1, 2, "a", 7, 2), load("e/1", 3, 4, "a", 7, 1)) == ["read"]
        assert rules(slow, load("c/1", 1, 2, "a", 7, 1), load("e/1", 3, 4, "a", 7, 2)) == []

    def test_one_of_what_was_written_later(self) -> None:
        assert rules(load("c/1", 0, 1, "a", 7, 2), alter("d/1", 2, 3, 3, 7, 2)) == ["read"]

    def test_one_of_what_nobody_wrote(self) -> None:
        assert rules(load("c/1", 0, 1, "a", 7, 5)) == ["read"]

    def test_absent_and_it_had_been_created(self) -> None:
        create = operation("d/1", 0, 1, action="create", events=[created(3, 9, "c", "d/1")])
        assert rules(create, load("c/1", 2, 3, "c")) == ["read"]
        assert rules(create, load("c/1", 0, 3, "c")) == []

    def test_another_entity_of_the_name(self) -> None:
        drop = operation("d/1", 0, 1, action="drop", events=[dropped(3, 7, "a", "d/1")])
        again = operation("d/2", 2, 3, action="create", events=[created(4, 9, "a", "d/2")])
        assert rules(drop, again, load("c/1", 4, 5, "a", 7, 1)) == ["read"]
        assert rules(drop, again, load("c/1", 1, 5, "a", 9, 1)) == []

    def test_a_path_through_a_renamed_parent(self) -> None:
        child = created(3, 9, "c", "setup", parent_id=7, family="catalog")
        names = (Named(0, "metalake", "a", None), Named(0, "metalake", "z", 7))
        renamed = Placed(4, "od/1", "d/1", 7, 2, False, True, names)
        moved = operation("d/1", 0, 1, action="rename", events=[renamed])
        old = load("c/1", 2, 3, "a.c", 9, 1)._replace(kind="catalog")
        new = load("c/2", 2, 3, "z.c", 9, 1)._replace(kind="catalog")
        assert rules(moved, old, new, before=(*BEFORE, child), since=3) == ["read"]
        assert rules(moved, new, before=(*BEFORE, child), since=3) == []

    def test_two_entities_may_show_in_another_order_than_their_positions(self) -> None:
        """The commit at 3 is slow to become visible: who does not see it yet has seen the one at 4."""
        slow, quick = alter("d/1", 0, 99, 3, 7, 2), alter("e/1", 0, 1, 4, 8, 2)
        assert rules(slow, quick, load("c/1", 2, 3, "b", 8, 2), load("c/2", 4, 5, "a", 7, 1)) == []

    def test_what_a_path_meant_before_a_swap_does_not_count(self) -> None:
        """The path led to 9 before 6, and to 10 since; the commit at 7 is slow to become visible."""
        children = [created(3, 9, "c", "setup", parent_id=7, family="catalog")]
        children.append(created(4, 10, "d", "setup", parent_id=7, family="catalog"))
        again = Placed(5, "o5", "setup", 7, 2, False, True, (Named(0, "metalake", "a", 7),))
        swapped = (Named(7, "catalog", "c", 10), Named(7, "catalog", "d", 9))
        swap = Placed(6, "o6", "setup", 10, 2, False, True, swapped)
        slow, quick = alter("d/1", 0, 99, 7, 10, 3), alter("e/1", 0, 1, 8, 9, 2)
        read = load("c/1", 2, 3, "a.c", 10, 2)._replace(kind="catalog")
        assert rules(slow, quick, read, before=(*BEFORE, *children, again, swap), since=6) == []

    def test_what_nobody_recorded_may_be_seen_or_not(self) -> None:
        strange = wrote(3, 7, 2, "somebody")
        for version in (1, 2):
            assert rules(load("c/1", 0, 1, "a", 7, version), before=(*BEFORE, strange)) == []
        assert rules(load("c/1", 0, 1, "a", 7, 2), load("c/2", 2, 3, "a", 7, 1), before=(*BEFORE, strange)) == ["read"]


class TestWhatIsNoName:
    """Whether an entity has children, and whether something that was dropped can be restored, are reads too."""

    def test_a_container_that_was_empty_before_and_after(self) -> None:
        child = Placed(3, "od/1", "d/1", 9, 1, False, False, (Named(7, "catalog", "c", 9), Named(7, CHILDREN, "", 7)))
        gone = Placed(
            4, "od/2", "d/2", 9, 2, True, True, (Named(7, "catalog", "c", None), Named(7, CHILDREN, "", None))
        )
        fill = operation("d/1", 2, 4, action="create", events=[child])
        empty = operation("d/2", 6, 8, action="drop", events=[gone])
        for start, end, there, expected in [
            *((0, 1, True, ["read"]), (0, 3, True, []), (5, 5, False, ["read"]), (7, 10, True, []), (9, 10, False, [])),
            *((9, 10, True, ["read"]), (0, 1, False, [])),
        ]:
            seen = Seen("a", there, kind="metalake", of="children")
            told = operation("c/1", start, end, action="exists", outcome="read", reads=[seen])
            assert rules(fill, empty, told) == expected, (start, end, there)

    def test_nothing_to_restore(self) -> None:
        names = (Named(0, "metalake", "a", None), Named(0, DROPPED + "metalake", "a", 7))
        drop = operation("d/1", 2, 4, action="drop", events=[Placed(3, "od/1", "d/1", 7, 2, True, True, names)])
        nothing = Seen("a", False, kind="metalake", of="dropped")
        for start, end, expected in [(0, 1, []), (0, 3, []), (5, 6, ["read"])]:
            told = operation("c/1", start, end, action="exists", outcome="read", reads=[nothing])
            assert rules(drop, told) == expected


class TestOnce:
    def test_acknowledged_and_lost(self) -> None:
        assert rules(operation("c/1", 0, 1)) == ["once"]

    @pytest.mark.parametrize("outcome", ["failed", "conflicted", "nothing"])
    def test_refused_and_applied(self, outcome: str) -> None:
        assert rules(alter("c/1", 0, 1, 3, 7, 2, outcome=outcome)) == ["once"]

    @pytest.mark.parametrize("outcome", ["unknown", "open"])
    def test_unknown_is_applied_once_or_not_at_all(self, outcome: str) -> None:
        assert rules(operation("c/1", 0, None, outcome=outcome)) == []
        assert rules(alter("c/1", 0, None, 3, 7, 2, outcome=outcome)) == []
        ends = None if outcome == "open" else 1
        late = alter("c/1", 0, ends, 4, 7, 2, outcome=outcome)  # applied after the client got OutcomeUnknown
        assert rules(late, alter("d/1", 2, 3, 3, 8, 2), load("e/1", 4, 5, "a", 7, 1)) == []
        twice = [wrote(3, 7, 2, "c/1"), wrote(4, 7, 3, "c/1", operation_id="another")]
        assert rules(operation("c/1", 0, None, outcome=outcome, events=twice)) == ["once"]

    def test_a_version_that_another_made(self) -> None:
        assert rules(alter("c/1", 0, 1, 3, 7, 2, entity_id=7, version=3)) == ["once"]
        assert rules(alter("c/1", 0, 1, 3, 7, 2, entity_id=7, version=2)) == []


def test_called_after_another_had_returned_and_before_it_in_the_feed() -> None:
    findings = found([alter("c/1", 0, 1, 4, 7, 2), alter("d/1", 2, 3, 3, 8, 2)], before=BEFORE, since=2)
    assert [f.rule for f in findings] == ["order"]
    assert [one.split(":")[0] for one in findings[0].operations] == ["c/1", "d/1"]


def test_on_another_clock_there_is_no_order() -> None:
    far = alter("c/1", 0, 1, 4, 7, 2)
    sweep_of_here = found([alter("d/1", 2, 3, 3, 8, 2)], before=[*BEFORE, *far.events], since=2)
    assert sweep_of_here == []


class TestTransactions:
    def pair(self, second_reads: int) -> list[ClientOperation]:
        """Both read a and b; one writes a, the other b."""
        both = [saw("a", 7, 1), saw("b", 8, 1)]
        other = [saw("a", 7, second_reads), saw("b", 8, 1)]
        return [
            operation("c/1", 0, 9, action="transaction", reads=both, events=[wrote(3, 7, 2, "c/1")]),
            operation("d/1", 0, 9, action="transaction", reads=other, events=[wrote(4, 8, 2, "d/1")]),
        ]

    def test_write_skew(self) -> None:
        (finding,) = found(self.pair(1), before=BEFORE, since=2)
        assert finding.rule == "cycle"
        assert [one.split(" ")[0].rstrip(":") for one in finding.operations] == ["c/1", "d/1"]
        assert rules(*self.pair(2)) == []

    @pytest.mark.parametrize("action", ["transaction", "freeze"])
    def test_each_read_is_of_its_own_kind(self, action: str) -> None:
        child = created(3, 9, "c", "setup", parent_id=7, family="catalog")
        reads = [saw("a.c", 9, 1)._replace(kind="catalog"), saw("a", 7, 1)]
        good = operation("c/1", 0, 9, action=action, reads=reads, events=[wrote(4, 8, 2, "c/1")])
        assert rules(good, before=(*BEFORE, child), since=3) == []
        stale = good._replace(reads=(saw("a.c", 9, 2)._replace(kind="catalog"),))
        assert rules(stale, before=(*BEFORE, child), since=3) == ["cycle"]

    def test_a_name_that_was_taken_meanwhile(self) -> None:
        create = operation("c/1", 0, 9, action="create", events=[created(3, 9, "c", "c/1")])
        skewed = operation("d/1", 0, 9, action="transaction", reads=[saw("c")], events=[wrote(4, 8, 2, "d/1")])
        assert rules(create, skewed) == ["cycle"]

    def test_what_began_later_and_committed_before(self) -> None:
        reads = [saw("a", 7, 2)]
        late = operation("c/1", 0, 9, action="transaction", reads=reads, events=[wrote(4, 8, 2, "c/1")])
        assert rules(late, alter("d/1", 1, 2, 3, 7, 2)) == []

    def test_what_was_never_so_together(self) -> None:
        """A transaction that wrote nothing: the new of one, and the old of another that was there before it."""
        first, second = alter("d/1", 1, 2, 3, 7, 2), alter("e/1", 3, 4, 4, 8, 2)
        half = operation("c/1", 0, 9, action="transaction", outcome="nothing", reads=[saw("a", 7, 1), saw("b", 8, 2)])
        whole = half._replace(reads=(saw("a", 7, 2), saw("b", 8, 1)))
        assert rules(half, first, second) == ["cycle"]
        assert rules(whole, first, second) == []
        assert rules(half._replace(action="look"), first, second) == []

    def test_what_any_operation_read_that_wrote(self) -> None:
        skewed = operation("c/1", 0, 9, action="swap", reads=[saw("a", 7, 1)], events=[wrote(4, 8, 2, "c/1")])
        assert rules(skewed, alter("d/1", 1, 2, 3, 7, 2)) == ["cycle"]

    @pytest.mark.parametrize(("read", "expected"), [(70, ["cycle"]), (71, [])])
    def test_an_owned_row_that_took_the_place_of_another_at_the_same_version(
        self, read: int, expected: list[str]
    ) -> None:
        def owned(seq: int, entity_id: int, version: int, by: str, *, there: bool) -> Placed:
            names = (Named(9, "partition", "p", entity_id if there else None),)
            return Placed(seq, f"o{by}", by, entity_id, version, not there, False, names)

        above = [
            created(n, 5 + n, name, "setup", parent_id=4 + n if n > 1 else 0, family=family)
            for n, (name, family) in enumerate(
                [("m", "metalake"), ("c", "catalog"), ("s", "schema"), ("t", "table")], start=1
            )
        ]
        first = owned(5, 70, 1, "setup", there=True)
        again = [owned(6, 70, 2, "d/1", there=False), owned(7, 71, 1, "d/1", there=True)]
        swap = operation("d/1", 1, 2, action="swap", events=again)
        seen = saw("m.c.s.t.p", read, 1)._replace(kind="partition")
        skewed = operation("c/1", 0, 9, action="transaction", reads=[seen], events=[wrote(8, 6, 2, "c/1")])
        assert rules(swap, skewed, before=(*above, first), since=5) == expected

    def test_owned_rows_whose_owner_has_no_one_kind_are_not_looked_at(self) -> None:
        read = operation("c/1", 0, 9, action="load", reads=[saw("a.p", 70, 1)._replace(kind="statistic")])
        assert rules(read) == []


class TestConflicts:
    def test_that_somebody_won(self) -> None:
        loser = alter("c/1", 0, 9, 4, 7, 3, conflicts=[lost("self", 7, 1)])
        assert rules(loser, alter("d/1", 1, 2, 3, 7, 2)) == []

    def test_that_nobody_won(self) -> None:
        assert rules(alter("c/1", 0, 9, 3, 7, 2, conflicts=[lost("self", 7, 2)])) == ["conflict"]
        assert rules(alter("c/1", 0, 9, 3, 7, 2, conflicts=[lost("ancestor")])) == ["conflict"]
        assert rules(alter("c/1", 0, 9, 3, 7, 2, conflicts=[lost("unavailable")])) == []

    def test_that_it_lost_to_itself(self) -> None:
        told = alter("c/1", 0, 9, 3, 7, 2, conflicts=[lost("self", 7, 1)], helped=False)
        assert rules(told) == ["conflict"]
        assert rules(told._replace(helped=True)) == []  # another's commit made that version
        assert rules(told._replace(helped=None)) == []  # or did, for all we know

    def test_that_the_name_was_taken_long_before(self) -> None:
        taken = operation("c/1", 0, 9, action="create", outcome="failed", conflicts=[lost("name")], reads=[saw("a", 7)])
        assert rules(taken) == []
        assert rules(taken._replace(reads=())) == ["conflict"]

    def test_that_somebody_won_whose_calls_are_not_known(self) -> None:
        loser = alter("c/1", 0, 9, 4, 8, 2, conflicts=[lost("serialization")])
        assert rules(loser) == ["conflict"]
        assert rules(loser, before=(*BEFORE, wrote(3, 7, 2, "elsewhere"))) == []

    def test_an_exclusive_operation_before_it(self) -> None:
        drop = operation("d/1", 0, 1, action="drop", events=[dropped(3, 7, "a", "d/1")])
        assert rules(drop, alter("c/1", 2, 3, 4, 8, 2, conflicts=[lost("ancestor")])) == []


def test_the_past_is_forgotten_and_nothing_else() -> None:
    """A long history with few entities: what is kept stays small, and a stale read at its end is still found."""
    from metastore.checker.sweep import Sweep

    sweep, seq, versions = Sweep(2), 2, {7: 1, 8: 1}
    sweep.place(BEFORE)
    for n in range(40_000):
        seq, who = seq + 1, f"c/{n}"
        entity_id = 7 + n % 2
        versions[entity_id] += 1
        told = alter(who, 10 * n, 10 * n + 15, seq, entity_id, versions[entity_id])
        assert list(sweep.take(told)) == []
        name = f"n{n}"
        if n % 4 == 0:
            seq += 2
            both = [created(seq - 1, 100 + n, name, f"d/{n}"), dropped(seq, 100 + n, name, f"e/{n}")]
            for m, event in enumerate(both):
                told = operation(f"{'de'[m]}/{n}", 10 * n + 1 + m, 10 * n + 3 + m, action="work", events=[event])
                assert list(sweep.take(told)) == []
    kept = len(sweep._names) + len(sweep._versions) + len(sweep._stands)
    assert kept < 6_000, kept  # without forgetting: 40,000
    lines = [len(line.seqs) for line in sweep._versions._lines.values()]
    assert max(lines) < 6_000, max(lines)  # without: 20,000
    stale = load("f/1", 500_000, 500_001, "a", 7, versions[7] - 1)
    assert [f.rule for f in [*sweep.take(stale), *sweep.close()]] == ["read"]


@pytest.mark.parametrize("action", ["alter", "create", "rename", "restore"])
def test_what_was_not_asked_for(action: str) -> None:
    assert rules(operation("c/1", 0, 9, action=action, events=[dropped(3, 7, "a", "c/1")])) == ["once"]


def test_it_returned_before_it_was_called() -> None:
    assert "order" in rules(alter("c/1", 9, 5, 3, 7, 2))


def test_every_rule_is_known() -> None:
    assert set(RULES) >= {"chain", "once", "order", "read", "cycle", "conflict", "name", "orphan", "replay"}
