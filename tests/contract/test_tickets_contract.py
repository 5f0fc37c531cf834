"""What every backend promises of tickets: a line for each entity, which ordinary commits and helps respect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.entity import Entity
from metastore.port.commit import Committed, Conflicted
from metastore.port.intents import Help, Mark, Resolution
from metastore.port.writes import Event
from tests.contract.ground import NEW_DOC, Ground, exclusive, update
from tests.contract.intents import (
    announce,
    applied,
    committed,
    conflict,
    document,
    entry,
    helping,
    mark,
    new_id,
    row_of,
)

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


def carried(entity: Entity, above: int, *resolutions: Resolution) -> Help:
    """Return what is resolved on top of so many versions of ``entity``."""
    return replace(helping(entity, *resolutions, version=entity.version + above), guards=())


class TestLine:
    def test_tickets_stand_in_the_order_in_which_they_were_taken(self, ground: Ground) -> None:
        backend, ids = ground.backend, [ground.one.id]
        first, second = backend.queue(ids, 1.0), backend.queue(ids, 2.0)
        assert first < second
        assert backend.line(ids, first)[:3] == (True, None, 0)
        there = backend.line(ids, second)
        assert (there.held, there.head, there.ahead, there.patience) == (True, first, 1, 1.0)
        assert there.moves == ground.one.version
        anyone = backend.line(ids, None)
        assert (anyone.held, anyone.head, anyone.ahead) == (False, first, 2)

    def test_a_ticket_waits_for_older_ones_on_any_of_its_entities(self, ground: Ground) -> None:
        backend = ground.backend
        first, second = backend.queue([ground.one.id], 1.0), backend.queue([ground.two.id], 1.0)
        both = backend.queue([ground.one.id, ground.two.id], 1.0)
        assert backend.line([ground.one.id, ground.two.id], both)[:3] == (True, first, 2)
        assert backend.leave([ground.one.id], first)
        assert backend.line([ground.one.id, ground.two.id], both)[:3] == (True, second, 1)

    def test_who_was_removed_is_not_in_line_any_more(self, ground: Ground) -> None:
        backend, ids = ground.backend, [ground.one.id, ground.two.id]
        ticket = backend.queue(ids, 1.0)
        assert backend.leave([ground.one.id], ticket)
        assert not backend.line(ids, ticket).held
        assert backend.leave(ids, ticket)
        assert not backend.leave(ids, ticket)

    def test_nobody_is_in_line_for_what_was_purged(self, ground: Ground) -> None:
        ticket = ground.backend.queue([999_999_999], 1.0)
        assert ground.backend.line([999_999_999], ticket)[:3] == (True, None, 0)
        assert not ground.backend.leave([999_999_999], ticket)

    def test_after_a_long_turn_the_others_have_theirs(self, ground: Ground) -> None:
        backend, ids = ground.backend, [ground.one.id]
        first, second = backend.queue(ids, 1.0), backend.queue(ids, 1.0)
        assert backend.leave(ids, first, 60.0)
        third = backend.queue(ids, 1.0)
        assert backend.line(ids, second).gap > 1.0
        assert backend.line(ids, third).gap > 1.0, "the gap is there for those to come too"
        assert backend.line(ids, None).head is None
        assert isinstance(ground.send(update(ground.one, doc=NEW_DOC)), Committed)

    def test_a_long_turn_at_one_of_its_entities_holds_for_a_ticket(self, ground: Ground) -> None:
        backend, ids = ground.backend, [ground.one.id, ground.two.id]
        assert backend.leave(ids[:1], backend.queue(ids[:1], 1.0), 60.0)
        assert backend.line(ids, backend.queue(ids, 1.0)).gap > 1.0

    def test_gc_removes_what_was_left(self, ground: Ground) -> None:
        ticket = ground.backend.queue([ground.one.id], 1.0)
        ground.backend.forget_tickets()
        assert ground.backend.line([ground.one.id], ticket).held, "it may still be in use"


class TestCommits:
    def test_an_ordinary_commit_is_refused(self, ground: Ground) -> None:
        ticket = ground.backend.queue([ground.one.id], 1.0)
        before = ground.dump()
        conflict(ground.send(update(ground.one, doc=NEW_DOC)), "ticket")
        conflict(ground.send(update(ground.one, doc=NEW_DOC), update(ground.two, doc=NEW_DOC)), "ticket")
        assert ground.dump() == before
        assert isinstance(ground.send(update(ground.two, doc=NEW_DOC)), Committed)
        assert ground.backend.leave([ground.one.id], ticket)
        assert isinstance(ground.send(update(ground.one, doc=NEW_DOC)), Committed)

    def test_a_help_is_refused(self, ground: Ground) -> None:
        intent = announce(ground, ground.one)
        ground.backend.queue([ground.one.id], 1.0)
        conflict(ground.backend.help(helping(ground.one, applied(intent, document("x")))), "ticket")
        assert ground.backend.pending(ground.one.id, intent, 64).queued
        assert ground.backend.turn(ground.one.id, intent).line.head is not None
        assert row_of(ground, intent).action == "pending"

    @pytest.mark.parametrize("several", [False, True])
    def test_the_oldest_ticket_commits_and_a_younger_one_does_not(self, ground: Ground, several: bool) -> None:
        ids = [ground.one.id]
        first, second = ground.backend.queue(ids, 1.0), ground.backend.queue(ids, 1.0)
        writes = [update(ground.one, doc=NEW_DOC), *([update(ground.two, doc=NEW_DOC)] if several else [])]
        conflict(ground.send(*writes, ticket=second, carries=(carried(ground.one, 1),)), "ticket")
        mine = ground.send(*writes, ticket=first, leaves=tuple(ids), carries=(carried(ground.one, 1),))
        assert [r and r.version for r in committed(mine).results] == [2] * len(writes)
        assert ground.backend.line(ids, second)[:2] == (True, None), "the commit took the ticket away"

    def test_a_ticket_that_is_gone_is_worth_nothing(self, ground: Ground) -> None:
        ids = [ground.one.id]
        gone, other = ground.backend.queue(ids, 1.0), ground.backend.queue(ids, 1.0)
        ground.backend.leave(ids, gone)
        conflict(ground.send(update(ground.one, doc=NEW_DOC), ticket=gone), "ticket")
        ground.backend.leave(ids, other)
        assert isinstance(ground.send(update(ground.one, doc=NEW_DOC), ticket=gone), Committed)

    def test_a_refused_commit_keeps_its_ticket(self, ground: Ground) -> None:
        ids = [ground.one.id]
        ticket = ground.backend.queue(ids, 1.0)
        old = replace(update(ground.one, doc=NEW_DOC), version=7)
        outcome = ground.send(old, ticket=ticket, leaves=tuple(ids))
        conflict(outcome, "self")
        assert ground.backend.line(ids, ticket).held

    def test_an_exclusive_operation_does_not_wait_for_tickets(self, ground: Ground) -> None:
        ground.backend.queue([ground.two.id], 1.0)
        assert isinstance(ground.send(exclusive(ground.two, state=1)), Committed)

    def test_nor_does_a_commit_with_a_mark(self, ground: Ground) -> None:
        ground.backend.queue([ground.one.id], 1.0)
        holder = mark(ground, ground.one)
        outcome = ground.send(update(ground.one, doc=NEW_DOC), operation_id=holder, held=ground.one.id)
        assert isinstance(outcome, Committed)

    def test_a_mark_passes_a_ticket(self, ground: Ground) -> None:
        ticket = ground.backend.queue([ground.one.id], 1.0)
        assert isinstance(ground.backend.mark(Mark(new_id(), ground.one.id, 60.0)), Committed)
        outcome = ground.send(update(ground.one, doc=NEW_DOC), ticket=ticket, carries=(carried(ground.one, 1),))
        assert isinstance(outcome, Conflicted)
        assert outcome.cause == "marked"


class TestCarry:
    @pytest.mark.parametrize("several", [False, True])
    def test_intents_come_on_top_of_the_own_version(self, ground: Ground, several: bool) -> None:
        first, second = announce(ground, ground.one, "a"), announce(ground, ground.one, "b")
        ticket = ground.backend.queue([ground.one.id], 1.0)
        help_ = carried(ground.one, 1, applied(first, document("a")), applied(second, document("b")))
        writes = [
            update(one, doc=NEW_DOC, event=Event("schema", "alter", one.path, one.path))
            for one in (ground.one, *([ground.two] if several else []))
        ]
        outcome = ground.send(*writes, ticket=ticket, leaves=(ground.one.id,), carries=(help_,))
        assert committed(outcome).results[0] is not None
        assert [row_of(ground, i).version for i in (first, second)] == [3, 4]
        (known,) = ground.backend.by_id([ground.one.id])
        assert known is not None
        assert (known.record.version, known.record.doc) == (4, document("b"))
        positions = [step.seq for step in ground.backend.history(ground.one.id, 1, 9)]
        assert positions == sorted(positions, key=lambda seq: seq or 0)
        assert ground.store.verify() == []

    @pytest.mark.parametrize("several", [False, True])
    def test_all_or_nothing(self, ground: Ground, several: bool) -> None:
        kept, gone = announce(ground, ground.one, "a"), announce(ground, ground.one, "b")
        assert ground.backend.cancel(gone)
        before = ground.dump()
        help_ = carried(ground.one, 1, applied(kept, document("a")), applied(gone, document("b")))
        writes = [update(ground.one, doc=NEW_DOC), *([update(ground.two, doc=NEW_DOC)] if several else [])]
        conflict(ground.send(*writes, carries=(help_,)), "pending", "read")
        assert ground.dump() == before

    def test_what_it_does_not_name_stays_pending(self, ground: Ground) -> None:
        intent = announce(ground, ground.one)
        outcome = ground.send(update(ground.one, doc=NEW_DOC), carries=(carried(ground.one, 1),))
        assert isinstance(outcome, Committed)
        assert row_of(ground, intent).action == "pending"


class TestOperations:
    def test_a_change_waits_until_nobody_is_in_line(self, store: ms.Store) -> None:
        """The head stands still: its owner has died. The change removes it, and is applied."""
        lake = store.metalakes.create("m")
        store._session.backend.queue([lake.id], 0.25)
        assert store.metalakes.alter("m", ms.SetComment("x")).comment == "x"
        assert store.metalakes.alter("m", ms.SetComment("y"), expected_version=2).comment == "y"

    def test_a_change_that_cannot_be_announced_stands_in_line(self, store: ms.Store) -> None:
        lake = store.metalakes.create("m")
        intent = entry(lake, "other")
        committed(store._session.backend.write_down(intent))
        store._session.backend.queue([lake.id], 0.25)
        assert store.metalakes.alter(lake, ms.SetProperty("k", "v"), expected_version=1).version == 2
        assert store.metalakes.load("m").comment == "other", "it carried what was announced"
        assert store._session.backend.line([lake.id], None).head is None
        assert store.verify() == []

    def test_a_run_on_a_hot_entity_is_not_run_twice(self, store: ms.Store) -> None:
        lake = store.metalakes.create("m")
        store._session.hot.note(lake.id, ("metalake", ("m",)))
        intent = entry(lake, "other")
        committed(store._session.backend.write_down(intent))
        runs: list[int] = []

        def fn(tx: Any) -> None:
            runs.append(1)
            found = tx.metalakes.load("m")
            tx.metalakes.alter(found, ms.SetProperty("n", str(found.version)))

        store.run(fn)
        there = store.metalakes.load("m")
        assert (len(runs), there.properties["n"], there.comment, there.version) == (1, "1", "other", 3)
        assert store._session.backend.line([lake.id], None).head is None

    def test_a_run_inside_of_a_run_does_not_wait_for_itself(self, store: ms.Store) -> None:
        lake = store.metalakes.create("m")
        store._session.hot.note(lake.id, ("metalake", ("m",)))
        done: list[int] = []

        def inner(tx: Any) -> None:
            tx.metalakes.alter(tx.metalakes.load("m"), ms.SetProperty("inner", "1"))

        def outer(tx: Any) -> None:
            found = tx.metalakes.load("m")
            if not done:
                done.append(1)
                store.run(inner, deadline=20.0)
            tx.metalakes.alter(found, ms.SetProperty("outer", "1"))

        store.run(outer)
        assert set(store.metalakes.load("m").properties) == {"inner", "outer"}

    @pytest.mark.parametrize("inside", [False, True])
    def test_a_run_whose_time_ends_in_line_leaves_it(self, store: ms.Store, inside: bool) -> None:
        """Its own time is over, but it takes its ticket away: others would wait until it stood still for too long.

        ``inside``: the time is that of a run around it.
        """
        lake = store.metalakes.create("m")
        backend = store._session.backend
        other = backend.queue([lake.id], 60.0)

        def fn(tx: Any) -> None:
            tx.metalakes.alter(tx.metalakes.load("m"), ms.SetComment("x"))

        with pytest.raises(ms.DeadlineExceeded):
            store.run((lambda _: store.run(fn)) if inside else fn, deadline=0.5)
        assert backend.leave([lake.id], other)
        assert backend.line([lake.id], None).head is None
        assert store.metalakes.load("m").version == 1
