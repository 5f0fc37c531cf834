"""What every backend promises of intents: written down once, resolved once, in order, with the entity or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore.kinds.entity import Entity
from metastore.port.conditions import DROPPED, LIVE, ROOT_ID, Caller, Guard
from metastore.port.intents import FORMAT, Entry, Mark, Resolution
from metastore.port.writes import Result, Update, Write
from tests.contract.ground import (
    NEW_DOC,
    Ground,
    exclusive,
    insert,
    put,
    renamed,
    update,
)
from tests.contract.intents import (
    announce,
    applied,
    comment,
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

ODD_TEXTS = {
    "quotes": 'it\'s "quoted" and \'quoted\' ""',
    "backslashes": "\\ \\\\ \\n \\' \\\"",
    "braces": '{,} {"a",NULL} [] () $1 %s %(id)s :id ?',
    "NUL": "a\x00b",
    "lines": "\n\r\t\u2028\x1f\x7f",
    "emoji": "\U0001f600 é ñ \u200b \ufeff",
    "large": "x'\"\\é" * 40_000,
}


class TestWriteDown:
    def test_the_row(self, ground: Ground) -> None:
        made = entry(ground.one, "text", caller=Caller(ground.backend.now(), "print"), seconds=5.0)
        (result,) = committed(ground.backend.write_down(made)).results
        assert result is not None
        row = row_of(ground, made.operation_id)
        assert (row.ordinal, row.seq, row.version, row.doc, row.result) == (0, None, None, None, None)
        assert (row.entity_id, row.kind, row.action, row.principal) == (ground.one.id, "schema", "pending", "hand")
        assert (row.path_before, row.path_after, row.changes) == ("m.c.one", None, comment("text"))
        assert (row.format, row.attempt, row.digest, row.fences) == (FORMAT, 0, "print", None)
        assert row.time == result.time
        assert row.deadline is not None
        assert 0 <= row.deadline - result.time - 5_000_000 < 1_000_000

    @pytest.mark.parametrize("action", ["failed", "unchanged"])
    def test_what_came_to_nothing(self, ground: Ground, action: Any) -> None:
        made = Entry(new_id(), action, None, result='{"value": false}')
        committed(ground.backend.write_down(made))
        row = row_of(ground, made.operation_id)
        assert (row.action, row.result, row.seq, row.deadline) == (action, '{"value": false}', None, None)
        assert ground.backend.forbid(made.operation_id) is None
        assert not ground.backend.cancel(made.operation_id)

    def test_twice(self, ground: Ground) -> None:
        made = entry(ground.one)
        committed(ground.backend.write_down(made))
        before = ground.dump()
        conflict(ground.backend.write_down(made), "operation")
        conflict(ground.backend.write_down(replace(made, action="failed", entity_id=ground.two.id)), "operation")
        conflict(ground.send(insert(ground.two, "x"), operation_id=made.operation_id), "operation")
        assert ground.dump() == before

    def test_after_a_commit(self, ground: Ground) -> None:
        done = new_id()
        committed(ground.send(insert(ground.two, "x"), operation_id=done))
        before = ground.dump()
        conflict(ground.backend.write_down(entry(ground.one, operation_id=done)), "operation")
        assert ground.dump() == before

    def test_it_tells_how_many_were_there(self, ground: Ground) -> None:
        outcomes = [committed(ground.backend.write_down(entry(e))) for e in (ground.one, ground.one, ground.two)]
        outcomes.append(committed(ground.backend.write_down(entry(ground.one))))
        results = [outcome.results[0] for outcome in outcomes]
        assert [r and (r.id, r.version) for r in results] == [
            (ground.one.id, 0),
            (ground.one.id, 1),
            (ground.two.id, 0),
            (ground.one.id, 2),
        ]


class TestPending:
    def test_oldest_first_and_ones_own(self, ground: Ground) -> None:
        ids = [announce(ground, ground.one, str(n)) for n in range(5)]
        other, decided = announce(ground, ground.two), announce(ground, ground.one)
        assert ground.backend.cancel(decided)

        def seen(own: UUID | None, limit: int) -> list[int]:
            return [ids.index(s.operation_id) for s in ground.backend.pending(ground.one.id, own, limit).intents]

        assert seen(None, 10) == [0, 1, 2, 3, 4]
        assert seen(None, 2) == [0, 1]
        assert seen(ids[4], 2) == [0, 1, 4]
        assert seen(ids[1], 2) == [0, 1]
        assert seen(ids[3], 1) == [0, 3]
        assert seen(decided, 2) == [0, 1]
        found = ground.backend.pending(ground.one.id, ids[3], 2)
        assert found.own == row_of(ground, ids[3])
        assert found.now >= found.intents[-1].time
        assert found.known == ground.backend.by_id([ground.one.id])[0]
        canceled = ground.backend.pending(ground.one.id, decided, 2).own
        assert canceled is not None
        assert canceled.action == "cancelled"
        assert ground.backend.pending(ground.one.id, new_id(), 2).own is None
        assert [s.operation_id for s in ground.backend.pending(ground.two.id, None, 2).intents] == [other]

    def test_of_what_is_gone(self, ground: Ground) -> None:
        nothing = ground.backend.pending(10**6, None, 10)
        assert (nothing.known, nothing.own, nothing.intents) == (None, None, [])
        own = announce(ground, ground.old)
        found = ground.backend.pending(ground.old.id, own, 10)
        assert found.known is not None
        assert not found.known.live
        assert found.own is not None
        assert found.own.action == "pending"

    def test_turn(self, ground: Ground) -> None:
        ids = [announce(ground, ground.one, str(n)) for n in range(3)]
        announce(ground, ground.two)
        assert [ground.backend.turn(ground.one.id, i)[:2] for i in ids] == [(None, n) for n in range(3)]
        assert ground.backend.cancel(ids[0])
        assert ground.backend.turn(ground.one.id, ids[2])[:2] == (None, 1)
        assert ground.backend.turn(ground.one.id, ids[0]).own == row_of(ground, ids[0])
        committed(ground.backend.help(helping(ground.one, applied(ids[1], NEW_DOC))))
        own, *_ = ground.backend.turn(ground.one.id, ids[1])
        assert own is not None
        assert own == row_of(ground, ids[1])
        assert (own.action, own.doc) == ("alter", NEW_DOC)
        assert ground.backend.turn(ground.one.id, new_id())[:2] == (None, 0)


class TestHelp:
    def test_several_in_one(self, ground: Ground) -> None:
        """One compare-and-swap; a version, a step of history and an event for each that is applied."""
        actions = ("alter", "failed", "unchanged", "alter", "moved", "expired", "alter")
        ids = [announce(ground, ground.one, str(n), principal=f"p{n}") for n in range(len(actions))]
        left = announce(ground, ground.one)
        feed = len(list(ground.store.changes()))
        resolutions = [
            Resolution(
                i,
                action,  # type: ignore[arg-type]
                f"p{n}",
                doc=document(str(n)) if action == "alter" else None,
                result='{"value": 1}' if action in ("failed", "unchanged") else None,
            )
            for n, (i, action) in enumerate(zip(ids, actions, strict=True))
        ]
        results = committed(ground.backend.help(helping(ground.one, *resolutions))).results
        assert [type(r) for r in results] == [Result] * 7
        assert {r.id for r in results if r} == {ground.one.id}
        entity = ground.store.schemas.load("m.c.one")
        assert (entity.version, entity.comment, entity.modified_by) == (4, "6", "p6")
        assert (entity.scope_version, entity.created_by) == (1, ground.one.created_by)
        assert {r.time for r in results if r} == {entity.record.modified_at}
        history = list(ground.store.schemas.history("m.c.one"))
        assert [v.operation_id for v in history[1:]] == [ids[0], ids[3], ids[6]]
        assert [(v.version, v.principal, v.action) for v in history[1:]] == [
            (2, "p0", "alter"),
            (3, "p3", "alter"),
            (4, "p6", "alter"),
        ]
        assert [v.entity and v.entity.comment for v in history[1:]] == ["0", "3", "6"]
        assert [v.changes for v in history[1:]] == [(ms.SetComment(str(n)),) for n in (0, 3, 6)]
        assert history[-1].entity == entity
        changes = list(ground.store.changes())[feed:]
        assert [(c.operation_id, c.version, c.path_before, c.path_after) for c in changes] == [
            (ids[n], version, "m.c.one", "m.c.one") for n, version in ((0, 2), (3, 3), (6, 4))
        ]
        rows = [row_of(ground, i) for i in ids]
        assert tuple(r.action for r in rows) == actions
        assert [r.attempt for r in rows] == [0, 0, 0, 0, 1, 1, 0]
        assert [r.result for r in rows] == [r.result for r in resolutions]
        assert [r.seq is None for r in rows] == [a != "alter" for a in actions]
        assert [(r.doc, r.version) for r in rows if r.action != "alter"] == [(None, None)] * 4
        assert [s.operation_id for s in ground.backend.pending(ground.one.id, None, 9).intents] == [left]

    def test_the_results_are_what_each_came_to(self, ground: Ground) -> None:
        ids = [announce(ground, ground.one) for _ in range(3)]
        resolutions = [applied(ids[0], document("0")), Resolution(ids[1], "moved", None), applied(ids[2], NEW_DOC)]
        results = committed(ground.backend.help(helping(ground.one, *resolutions))).results
        assert [r and r.version for r in results] == [2, 2, 3]

    def test_none_is_applied(self, ground: Ground) -> None:
        ids = [announce(ground, ground.one) for _ in range(2)]
        before = ground.dump()
        failed = Resolution(ids[0], "failed", None, result="{}"), Resolution(ids[1], "expired", None)
        committed(ground.backend.help(helping(ground.one, *failed)))
        after = ground.dump()
        assert {t: rows for t, rows in after.items() if t != "operation"} == {
            t: rows for t, rows in before.items() if t != "operation"
        }
        assert [row_of(ground, i).action for i in ids] == ["failed", "expired"]

    def test_history_may_say_something_else(self, ground: Ground) -> None:
        own = announce(ground, ground.one)
        committed(ground.backend.help(helping(ground.one, applied(own, NEW_DOC, changes="[]"))))
        assert row_of(ground, own).changes == "[]"

    @pytest.mark.parametrize("text", ODD_TEXTS)
    def test_odd_texts(self, ground: Ground, text: str) -> None:
        """From the intent over the document, the path and the error to history, and from SQL to SQL."""
        odd = ODD_TEXTS[text]
        name = "s" + "".join(c for c in odd[:40] if c.isprintable()).strip()
        schema = ground.store.schemas.create(("m", "c", name), comment=odd)
        changes = ms.SetProperty(odd[:100], odd)
        ground.store._session.hot.note(schema.id, ("schema", schema.names))
        found = ground.store.schemas.alter(schema.names, changes, principal=odd[:100].replace("\x00", "0"))
        assert found == ground.store.schemas.load(schema.names)
        assert (found.comment, found.properties) == (odd, {odd[:100]: odd})
        assert list(ground.store.schemas.history(schema))[-1].changes == (changes,)
        kept = [announce(ground, found, odd) for _ in range(2)]
        assert [s.changes for s in ground.backend.pending(schema.id, None, 9).intents] == [comment(odd)] * 2
        result = document(odd)
        seen = applied(kept[0], document("new", k=odd)), Resolution(kept[1], "failed", odd[:9], None, result)
        if "\x00" in result + (seen[0].doc or ""):  # documents are JSON texts, which escape it
            result, escaped = (t.replace("\x00", "\\u0000") for t in (result, seen[0].doc or ""))
            seen = applied(kept[0], escaped), Resolution(kept[1], "failed", None, None, result)
        committed(ground.backend.help(helping(found, *seen)))
        assert ground.store.schemas.load(schema).properties == {"k": odd}
        assert row_of(ground, kept[1]).result == result
        assert ground.backend.turn(schema.id, kept[1]).own == row_of(ground, kept[1])


def violations(g: Ground, own: UUID) -> dict[str, tuple[Any, Any, Any, Any]]:
    """Return helps of which a precondition does not hold: (help, cause, what it may say it found)."""
    apply = applied(own, NEW_DOC)
    guards = helping(g.one, apply).guards
    other = announce(g, g.two)
    cancelled = announce(g, g.one)
    assert g.backend.cancel(cancelled)
    committed(g.send(insert(g.two, "x"), operation_id=(done := new_id())))
    found: dict[str, tuple[Any, Any, Any, Any]] = {
        "version too high": (helping(g.one, apply, version=2), "self", g.one.id, 1),
        "version too low": (helping(g.one, apply, version=0), "self", g.one.id, 1),
        "nothing": (helping(g.one, apply, id=10**6, guards=(Guard(ROOT_ID, 1),)), "self", 10**6, None),
        "own guard": (helping(g.one, apply, guards=(*guards[:-1], Guard(g.one.id, 2))), "ancestor", g.one.id, 1),
        "guard above": (helping(g.one, apply, guards=(*guards, Guard(g.two.id, 9))), "ancestor", g.two.id, 1),
        "guard of nothing": (helping(g.one, apply, guards=(*guards, Guard(10**6, 1))), "ancestor", 10**6, None),
        "cancelled": (helping(g.one, apply, applied(cancelled, NEW_DOC)), "pending", g.one.id, 1),
        "cancelled, the first": (helping(g.one, Resolution(cancelled, "moved", None), apply), "pending", g.one.id, 1),
        "unknown": (helping(g.one, apply, Resolution(new_id(), "expired", None)), "pending", g.one.id, 1),
        "committed": (helping(g.one, apply, applied(done, NEW_DOC)), "pending", g.one.id, 1),
    }
    assert row_of(g, other).action == "pending"
    return found


class TestHelpIsRefused:
    def test_violated_then_held(self, ground: Ground) -> None:
        own = announce(ground, ground.one)
        cases = violations(ground, own)
        before = ground.dump()
        for name, (help_, cause, found_id, found) in cases.items():
            outcome = conflict(ground.backend.help(help_), cause)
            assert outcome.id in {None, found_id}, name
            assert outcome.found in ({found} if cause == "self" else {None, found}), name
            assert ground.dump() == before, name
        committed(ground.backend.help(helping(ground.one, applied(own, NEW_DOC))))

    def test_marked(self, ground: Ground) -> None:
        own = announce(ground, ground.one)
        for scope in (ground.one, ground.catalog, ground.lake):
            for operation_id in (own, new_id()):  # helping is for others: the own mark is in the way as well
                mark(ground, scope, operation_id=operation_id)
                before = ground.dump()
                conflict(ground.backend.help(helping(ground.one, applied(own, NEW_DOC))), "marked")
                assert ground.dump() == before
                assert ground.backend.unmark(scope.id, operation_id)
                quiet_is_over(ground, scope)
        mark(ground, ground.two)
        committed(ground.backend.help(helping(ground.one, applied(own, NEW_DOC))))

    def test_only_once(self, ground: Ground) -> None:
        own = announce(ground, ground.one)
        committed(ground.backend.help(helping(ground.one, applied(own, NEW_DOC))))
        before = ground.dump()
        one = ground.store.schemas.load("m.c.one")
        conflict(ground.backend.help(helping(one, applied(own, NEW_DOC))), "pending")
        conflict(ground.backend.help(helping(ground.one, applied(own, NEW_DOC))), "self")
        assert not ground.backend.cancel(own)
        assert ground.backend.forbid(own) is None
        assert ground.dump() == before

    def test_cancel_comes_first(self, ground: Ground) -> None:
        own, other = announce(ground, ground.one), announce(ground, ground.one)
        assert ground.backend.forbid(own) is None
        announced = row_of(ground, own).time
        assert ground.backend.cancel(own)
        assert row_of(ground, own).time > announced, "gc keeps the outcome for its retention from now on"
        assert not ground.backend.cancel(own)
        assert not ground.backend.cancel(new_id())
        before = ground.dump()
        both = applied(own, document("1")), applied(other, document("2"))
        conflict(ground.backend.help(helping(ground.one, *both)), "pending")
        assert ground.dump() == before
        row = row_of(ground, own)
        assert (row.action, row.attempt, row.version, row.doc) == ("cancelled", 1, None, None)
        committed(ground.backend.help(helping(ground.one, both[1])))
        assert ground.backend.forbid(own) == 2


def quiet_is_over(ground: Ground, scope: Entity) -> None:
    """Wait until a scope takes a new mark: the others' turn is over."""
    while any(found.id == scope.id for found in ground.backend.marked([scope.id])):
        pass


def _restore(g: Ground) -> Update:
    version = list(g.store.schemas.history(g.old))[-1].version
    return Update(g.old.id, version, update(g.old).event, scope_version=2, state=LIVE)


EXCLUSIVE: dict[str, Callable[[Ground], tuple[Entity, Update]]] = {
    "rename": lambda g: (g.two, renamed(g, "due")),
    "drop": lambda g: (g.two, exclusive(g.two, state=DROPPED, empty=True)),
    "cascade": lambda g: (g.one, exclusive(g.one, state=DROPPED)),
    "disable": lambda g: (g.catalog, exclusive(g.catalog, in_use=False)),
    "restore": lambda g: (g.old, _restore(g)),
    "only the scope version": lambda g: (g.one, exclusive(g.one)),
}
PLAIN: dict[str, Callable[[Ground], Sequence[Write]]] = {
    "single": lambda g: [update(g.one, doc=NEW_DOC)],
    "batch": lambda g: [update(g.two, doc=NEW_DOC), update(g.one, doc=NEW_DOC), insert(g.two, "x")],
    "without a document": lambda g: [update(g.one)],
    "stages": lambda g: [update(g.one, doc=NEW_DOC), update(g.one, version=2, doc=document("3"))],
}


class TestOtherWrites:
    @pytest.mark.parametrize("what", EXCLUSIVE)
    def test_exclusive_ones_withdraw(self, ground: Ground, what: str) -> None:
        entity, write = EXCLUSIVE[what](ground)
        newer = announce(ground, entity, format=FORMAT + 1)
        ids = [announce(ground, entity), announce(ground, entity, path=None), newer]
        other = announce(ground, ground.table)
        conflict(ground.send(replace(write, version=99)), "self")
        assert {row_of(ground, i).action for i in ids} == {"pending"}
        committed(ground.send(write))
        assert {(row_of(ground, i).action, row_of(ground, i).attempt) for i in ids} == {("moved", 1)}
        assert row_of(ground, other).action == "pending"
        assert ground.backend.pending(entity.id, None, 9).intents == []
        assert [ground.backend.forbid(i) for i in ids] == [2, 2, 2]

    @pytest.mark.parametrize("what", PLAIN)
    def test_plain_ones_refuse(self, ground: Ground, what: str) -> None:
        writes = PLAIN[what](ground)
        ids = [announce(ground, ground.one), announce(ground, ground.one, path=None)]
        before = ground.dump()
        conflict(ground.send(*writes), "pending")
        assert ground.dump() == before
        committed(ground.send(*writes, overlook=True))
        assert [row_of(ground, i).action for i in ids] == ["pending"] * 2

    @pytest.mark.parametrize("what", PLAIN)
    def test_they_pass_what_is_not_understood(self, ground: Ground, what: str) -> None:
        newer = announce(ground, ground.one, format=FORMAT + 1)
        announce(ground, ground.table)
        assert ground.backend.pending(ground.one.id, None, 9).intents == []
        committed(ground.send(*PLAIN[what](ground)))
        assert row_of(ground, newer).action == "pending"

    def test_what_is_not_understood_is_seen_when_its_time_is_over(self, ground: Ground) -> None:
        """Any program may expire it."""
        announce(ground, ground.one, format=FORMAT + 1)
        over = announce(ground, ground.one, format=FORMAT + 1, seconds=-1.0)
        assert [one.operation_id for one in ground.backend.pending(ground.one.id, None, 9).intents] == [over]

    def test_what_does_not_write_the_row_passes(self, ground: Ground) -> None:
        ids = [announce(ground, e) for e in (ground.one, ground.table)]
        committed(ground.send(insert(ground.one, "x")))
        committed(ground.send(put(ground.table, "q")))
        committed(ground.send(exclusive(ground.catalog, in_use=False)))
        committed(ground.backend.mark(Mark(new_id(), ground.one.id, 60.0)))
        assert [row_of(ground, i).action for i in ids] == ["pending"] * 2


@pytest.mark.parametrize(
    "by", ["another change", "a transaction", "a transaction with more", "a transaction that also creates"]
)
def test_what_changes_nothing_shows_the_version_of_its_own_commit(ground: Ground, by: str) -> None:
    """Such a result is kept before the time of the commit is known. A wrong time looks like a restored backup."""
    ids = list[UUID]()

    def fn(tx: Any) -> None:
        table = tx.tables.alter(ground.table, ms.SetComment("x"))
        if by == "a transaction that also creates":
            tx.tables.create((*table.names[:-1], "more"))
        ids.append(announce(ground, table))
        if by == "a transaction with more":
            tx.schemas.alter(ground.one, ms.SetComment("y"))

    if by == "another change":
        ids += [announce(ground, ground.table), announce(ground, ground.table)]
        ground.store.tables.alter(ground.table, ms.SetComment("x"))
    else:
        ground.store.run(fn)
    table = ground.store.tables.load(ground.table)
    assert [ground.store.outcome(one).result for one in ids] == [table] * len(ids)
