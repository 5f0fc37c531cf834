"""A run inside of a function that has its turn does not wait in line behind that function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from contextvars import Context, copy_context
from typing import Any

import pytest

import metastore as ms
from metastore.operation import tickets as tickets_of
from metastore.operation.tickets import running
from metastore.transaction import line
from metastore.transaction.line import InLine

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@pytest.mark.parametrize("raises", [False, True])
def test_it_goes_on_the_ticket_of_the_function_around_it(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    store.metalakes.create("m")
    outer, inner, tickets = list[int](), list[int](), list[int]()
    _note_tickets(store, monkeypatch, tickets)

    def look(tx: Any) -> None:
        inner.append(tx.metalakes.load("m").version)
        if raises:
            raise KeyError

    def count(tx: Any) -> None:
        outer.append(tx.metalakes.load("m").version)
        if len(outer) == 1:  # so that it waits in line
            store.metalakes.alter("m", ms.SetComment("another caller"))
        with pytest.raises(KeyError) if raises else nullcontext():
            store.run(look)
        tx.metalakes.alter("m", ms.SetProperty("n", str(len(outer))))

    store.run(count)
    assert (outer, inner) == ([1, 2], [2, 2])
    assert len(tickets) == 1
    assert store.metalakes.load("m").version == 3


def test_it_does_not_go_on_a_ticket_of_another_database(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity there may have the same id."""
    with ms.open("memory://") as other:
        assert store.metalakes.create("m").id == other.metalakes.create("m").id
        tickets: dict[str, list[int]] = {"outer": [], "inner": []}
        _note_tickets(store, monkeypatch, tickets["outer"])
        _note_tickets(other, monkeypatch, tickets["inner"])
        runs = list[int]()

        def loses_once(tx: Any) -> None:
            runs.append(tx.metalakes.load("m").version)
            if len(runs) == 1:
                other.metalakes.alter("m", ms.SetComment("another caller"))
            tx.metalakes.alter("m", ms.SetProperty("n", "1"))

        def count(tx: Any) -> None:
            if tx.metalakes.load("m").version == 1:  # so that it waits in line
                store.metalakes.alter("m", ms.SetComment("another caller"))
            else:
                other.run(loses_once)
            tx.metalakes.alter("m", ms.SetProperty("n", "1"))

        store.run(count)
    assert (len(tickets["outer"]), len(tickets["inner"]), runs) == (1, 1, [1, 2])


def test_the_function_around_it_sees_what_it_has_changed(store: ms.Store) -> None:
    """The turn began with an older state: on that, each of its runs would lose."""
    store.metalakes.create("m")
    runs = list[int]()

    def fn(tx: Any) -> None:
        if not runs:
            _lose(store, tx)
        else:
            store.run(_count)
        runs.append(tx.metalakes.load("m").version)
        tx.metalakes.alter("m", ms.SetComment("around"))

    store.run(fn, deadline=5.0)
    assert runs == [1, 3]


def test_two_inside_of_one_function_go_one_after_the_other(store: ms.Store) -> None:
    """They have one ticket, so that each would make the other lose."""
    store.metalakes.create("m")
    meeting, met = threading.Barrier(2), list[bool]()

    def meet() -> None:
        try:
            met.append(meeting.wait(0.2) >= 0)
        except threading.BrokenBarrierError:
            met.append(False)

    def count(tx: Any) -> None:
        _count(tx, meet)

    _in_its_turn(store, lambda: _at_once(store.run, [count, count]))
    assert met == [False, False]
    assert store.metalakes.load("m").properties == {"n": "2"}


@pytest.mark.parametrize("other", [[], ["x"]])
def test_a_function_in_between_need_not_touch_the_entity(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, other: list[str]
) -> None:
    """The innermost one waited for the outermost one, which waits for it."""
    for name in ("m", "x"):
        store.metalakes.create(name)
    tickets = list[int]()
    _note_tickets(store, monkeypatch, tickets)

    def between(tx: Any) -> None:
        for name in other:
            tx.metalakes.load(name)
        store.run(_count)

    runs = _in_its_turn(store, lambda: _at_once(store.run, [between, between]))
    assert (runs, len(tickets)) == (2, 1)
    assert store.metalakes.load("m").properties == {"n": "2"}


@pytest.mark.parametrize("how", ["run", "alter", "alter pinned"])
def test_a_ticket_that_others_have_removed_is_lent_no_more(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The function took so long that they did not wait. One of them has died in line, and holds up all without one."""
    entity, tickets, sent = store.metalakes.create("m").id, list[int](), list[object]()
    _note_tickets(store, monkeypatch, tickets)
    backend = store._session.backend
    commit = backend.commit

    def noted(one: Any) -> Any:
        sent.append(one)
        return commit(one)

    def fn(tx: Any) -> None:
        if not tickets:
            _lose(store, tx)
        elif len(tickets) == 1:
            assert backend.leave([entity], tickets[0])
            backend.queue([entity], 0.0)
            with monkeypatch.context() as counting:
                counting.setattr(backend, "commit", noted)
                if how == "run":
                    store.run(_count, deadline=10.0)
                else:
                    version = None if how == "alter" else 2
                    store.metalakes.alter("m", ms.SetProperty("n", "1"), expected_version=version, deadline=10.0)
        tx.metalakes.alter("m", ms.SetComment("around"))

    store.run(fn)
    assert len(sent) <= 4
    assert store.metalakes.load("m").properties == {"n": "1"}


@pytest.mark.parametrize("how", ["alter", "alters at once", "move", "create"])
def test_a_single_call_goes_on_that_ticket_too(store: ms.Store, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Announced, or in line, it waited for the function around it, which waits for it: until others took the ticket."""
    store.metalakes.create("m")
    tickets, removed = list[int](), list[object]()
    _note_tickets(store, monkeypatch, tickets)
    leave = store._session.backend.leave

    def noted(*given: Any) -> None:
        removed.append(given)
        leave(*given)

    monkeypatch.setattr(store._session.backend, "leave", noted)

    def call(n: int = 0) -> None:
        if how == "move":
            store.metalakes.rename("m", "renamed")
            store.metalakes.rename("renamed", "m")
        elif how == "create":
            store.metalakes.create("m", comment="again", if_exists="replace")
        else:
            store.metalakes.alter("m", ms.SetProperty(f"p{n}", "1"))

    def inside() -> None:
        if how == "alters at once":
            _at_once(call, range(5))
        else:
            call()
        assert not removed

    assert (_in_its_turn(store, inside), len(tickets)) == (2, 1)
    count = {"alter": 1, "alters at once": 5}.get(how, 0)
    assert len(store.metalakes.load("m").properties) == count


@pytest.mark.parametrize("how", ["run", "alter", "alter pinned"])
def test_two_functions_that_call_inside_of_their_turns_do_not_wait_for_each_other(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each waited behind the other's ticket, until others took one away: here that takes longer than they have."""
    monkeypatch.setattr(tickets_of, "_PATIENCE", 60.0)
    monkeypatch.setattr(tickets_of, "_LONGEST_PATIENCE", 60.0)
    names = {"m": "x", "x": "m"}
    for name in names:
        store.metalakes.create(name)

    def inside(name: str) -> None:
        if how == "run":
            store.run(lambda tx: tx.metalakes.alter(name, ms.SetProperty("inside", "1")))
        else:
            version = store.metalakes.load(name).version if how == "alter pinned" else None
            store.metalakes.alter(name, ms.SetProperty("inside", "1"), expected_version=version)

    def around(name: str) -> None:
        runs = list[int]()

        def fn(tx: Any) -> None:
            runs.append(1)
            if len(runs) == 1:
                tx.metalakes.load(name)
                store.metalakes.alter(name, ms.SetComment("another caller"))
            elif len(runs) == 2:
                meeting.wait(30.0)
                with suppress(ms.VersionConflict):
                    inside(names[name])
            tx.metalakes.alter(name, ms.SetProperty("around", str(len(runs))))

        store.run(fn)
        ended.append(len(runs))

    meeting, ended = threading.Barrier(2), list[int]()
    _at_once(around, names)
    assert max(ended) <= 4
    assert all("around" in store.metalakes.load(name).properties for name in names)
    assert len(ended) == 2


def test_two_functions_that_call_inside_of_their_marks_do_not_wait_for_each_other(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waited until the other's mark had ended."""
    monkeypatch.setattr(line, "_BARRED", 5.0)
    _table(store)
    store.schemas.create("m.c.x")
    names, cleared = {"m.c.s": "m.c.x", "m.c.x": "m.c.s"}, list[object]()
    monkeypatch.setattr(store._session.backend, "clear", lambda *given: cleared.append(given))
    meeting, ended = threading.Barrier(2), list[str]()

    def around(schema: str) -> None:
        runs = list[int]()

        def fn(tx: Any) -> None:
            runs.append(1)
            list(tx.tables.names(schema))
            if len(runs) == 1:
                store.tables.create(f"{schema}.another_caller")
            elif len(runs) == 2:
                meeting.wait(30.0)
                store.tables.create(f"{names[schema]}.inside")
            tx.tables.create(f"{schema}.around")

        store.run(fn)
        ended.append(schema)

    _at_once(around, names)
    assert sorted(ended) == sorted(names)
    assert not cleared


@pytest.mark.parametrize("how", ["transaction", "with a rename", "exclusive"])
def test_a_block_goes_on_that_ticket_and_its_changes_are_seen(store: ms.Store, how: str) -> None:
    """It got VersionConflict each time; or the function around it read the state before the block, and lost."""
    table = _table(store)

    def inside() -> None:
        with store.schemas.exclusive("m.c.s") if how == "exclusive" else store.transaction() as tx:
            tx.tables.alter(table, ms.SetProperty("n", "1"))
            if how == "with a rename":
                tx.tables.rename(table, "renamed")
                tx.tables.rename("m.c.s.renamed", "t")

    assert _in_its_turn(store, inside, "tables", table) == 2
    assert store.tables.load(table).properties == {"n": "1"}


@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("how", ["create", "alter", "run", "block", "exclusive"])
def test_a_call_inside_passes_the_mark_of_a_function_around_it(store: ms.Store, how: str, reads_first: bool) -> None:
    """It waited until the mark ended; then the function's commit lacked its mark, and the next run set another."""
    table, runs, marks = _table(store), list[list[str]](), list[bool]()
    schema = store.schemas.load("m.c.s").id

    def inside() -> None:
        if how == "create":
            store.tables.create(f"m.c.s.n{len(runs)}")
        elif how == "alter":
            store.tables.alter(table, ms.SetProperty("n", "1"))
        elif how == "run":
            store.run(lambda tx: tx.tables.alter(table, ms.SetProperty("n", "1")))
        else:
            with store.schemas.exclusive("m.c.s") if how == "exclusive" else store.transaction() as tx:
                tx.tables.alter(table, ms.SetProperty("n", "1"))

    def fn(tx: Any) -> None:
        if reads_first:
            tx.catalogs.load("m.c")
        if runs:
            inside()
        runs.append(list(tx.tables.names("m.c.s")))
        marks.append(any(one.mark is not None for one in store._session.backend.marked([schema])))
        if len(runs) == 1:
            store.tables.create("m.c.s.another_caller")
        tx.tables.create("m.c.s.around")

    store.run(fn)
    assert [names[:1] for names in runs] == [["t"], ["another_caller"]]
    assert marks == [False, not reads_first and how != "exclusive"]  # after a freeze it is the turn of others


def test_a_function_in_between_that_has_ended_leaves_those_around_it(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that it had begun waited for the function around it, which waited for the task."""
    store.metalakes.create("m")
    tickets, contexts = list[int](), list[Context]()
    _note_tickets(store, monkeypatch, tickets)

    def inside() -> None:
        store.run(lambda _: contexts.append(copy_context()))
        _join(contexts[0].run, store.metalakes.alter, "m", ms.SetProperty("n", "1"))

    assert (_in_its_turn(store, inside), len(tickets)) == (2, 1)
    assert store.metalakes.load("m").properties == {"n": "1"}


def test_a_function_that_has_ended_is_around_no_other(store: ms.Store) -> None:
    """A task that begins its successor inside of a function, again and again, reached the limit of recursion."""
    contexts = list[Context]()
    for _ in range(3):
        run = contexts[-1].run if contexts else copy_context().run
        run(store.run, lambda _: contexts.append(copy_context()))
    place = contexts[-1][running]
    assert isinstance(place, InLine)
    assert place._around is None


def test_an_interrupt_of_a_call_inside_names_the_run_around_it(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call inside has happened, the run has not."""
    store.metalakes.create("m")
    backend = store._session.backend
    commit = backend.commit

    def interrupted(one: Any) -> None:
        commit(one)
        monkeypatch.setattr(backend, "commit", commit)
        raise KeyboardInterrupt

    def fn(tx: Any) -> None:
        tx.metalakes.alter("m", ms.SetComment("around"))
        store.run(_count)

    monkeypatch.setattr(backend, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        store.run(fn)
    assert store.metalakes.load("m").properties == {"n": "1"}
    assert store.outcome(vars(caught.value)["operation_id"]).state == "unknown"


def _table(store: ms.Store) -> str:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    return store.tables.create("m.c.s.t", parents=True).path


def _in_its_turn(store: ms.Store, inside: Callable[[], object], kind: str = "metalakes", path: str = "m") -> int:
    """Run a function that loses once, and calls ``inside`` when it has its turn; return how often it ran."""
    runs = list[int]()

    def fn(tx: Any) -> None:
        runs.append(1)
        manager = getattr(tx, kind)
        if len(runs) == 1:
            manager.load(path)
            getattr(store, kind).alter(path, ms.SetComment("another caller"))
        else:
            inside()
        manager.alter(path, ms.SetComment("around"))

    store.run(fn)
    return len(runs)


def _join(call: Callable[..., object], *given: object) -> None:
    thread = threading.Thread(target=call, args=given)
    thread.start()
    thread.join()


def _at_once(call: Callable[[Any], object], given: Iterable[Any]) -> None:
    threads = [threading.Thread(target=copy_context().run, args=(call, one)) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _lose(store: ms.Store, tx: Any) -> None:
    """Let the run of this transaction lose, so that the next one waits in line."""
    tx.metalakes.load("m")
    store.metalakes.alter("m", ms.SetComment("another caller"))


def _count(tx: Any, meanwhile: Callable[[], object] = lambda: None) -> None:
    metalake = tx.metalakes.load("m")
    meanwhile()
    tx.metalakes.alter(metalake, ms.SetProperty("n", str(int(metalake.properties.get("n", "0")) + 1)))


def _note_tickets(store: ms.Store, monkeypatch: pytest.MonkeyPatch, tickets: list[int]) -> None:
    backend = store._session.backend
    queue = backend.queue

    def noted(ids: Sequence[int], patience: float) -> int:
        tickets.append(queue(ids, patience))
        return tickets[-1]

    monkeypatch.setattr(backend, "queue", noted)
