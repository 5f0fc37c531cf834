"""verify and what was not applied: intents, kept results, tombstones; and marks, which are not versions either."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

import pytest

import metastore as ms
from metastore.port.backend import Backend
from metastore.port.commit import Committed
from metastore.port.conditions import Guard
from metastore.port.intents import CLAIMABLE, Entry, Help, Mark, Resolution
from metastore.verify.violations import UNAPPLIED
from tests.verify.planting import A, damage, filled, verified

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

HOUR = 3_600_000_000
ONE = "01890000-0000-7000-8000-000000000001"
VALUES = {
    "operation_id": f"'{ONE}'",
    "ordinal": "0",
    "entity_id": "{a}",
    "kind": "'table'",
    "action": "'pending'",
    "time": "(SELECT max(time) FROM operation)",
    "path_before": f"'{A}'",
    "changes": """'[{{"change": "SetComment", "text": "x"}}]'""",
    "attempt": "0",
    "deadline": f"(SELECT max(time) + {HOUR} FROM operation)",
    "format": "1",
}
"""An intent that is sound."""
NULL_RESULT = """'{{"value": null}}'"""


def row(**other: str | None) -> str:
    """Return the statement that plants an intent, or what ``other`` makes of it."""
    values = {name: value for name, value in {**VALUES, **other}.items() if value is not None}
    return f"INSERT INTO operation ({', '.join(values)}) SELECT {', '.join(values.values())}"


def decided(action: str, **other: str | None) -> str:
    result = NULL_RESULT if action in ("failed", "unchanged") else None
    return row(**{"action": f"'{action}'", "result": result, **other})


def tombstone(operation_id: str) -> str:
    bare = dict.fromkeys(("entity_id", "kind", "path_before", "changes", "deadline", "format"))
    return row(operation_id=operation_id, action="'forbidden'", **bare)


OLD_TOMBSTONE = f"INSERT INTO operation (operation_id, ordinal, action, time) VALUES ('{ONE}', 0, 'forbidden', 1)"
"""As format 1 wrote them."""
DROPPED_AT = "(SELECT dropped_at {} FROM guard WHERE id = {{d}})"
OF_A_VERSION = "(SELECT operation_id FROM operation WHERE entity_id = {a} AND version = 2)"
MARKED = f"mark = '{ONE}', marked_at = 5, marked_until = 9"

SOUND: dict[str, tuple[str, ...]] = {
    "an intent": (row(),),
    "an intent by id": (row(path_before=None),),
    "two intents": (row(), row(operation_id=f"'{ONE[:-1]}2'")),
    "an intent from yesterday": (row(time="1", deadline="2"),),
    "an intent of a newer format": (row(format="99", changes="'what is this?'"),),
    "an intent with a change of a newer program": (row(changes="""'[{{"change": "paint"}}]'"""),),
    "an intent on what is dropped": (row(entity_id="{d}", time=DROPPED_AT.format("+ 1")),),
    "an intent that the drop could not see": (row(entity_id="{d}", time=DROPPED_AT.format("- 1000000")),),
    "an old intent that the drop withdrew": (decided("moved", entity_id="{d}", time="1"),),
    "an intent on what was purged since": (row(entity_id="{d2}", kind="'table'"),),
    "a tombstone": (tombstone(f"'{ONE}'"),),
    "a tombstone of format 1": (OLD_TOMBSTONE,),
    "a call that failed": (decided("failed", entity_id=None, kind=None, changes=None, deadline=None, format=None),),
    "freezes and cleared marks since": ("UPDATE guard SET scope_version = scope_version + 3 WHERE id IN ({c}, {a})",),
    "a mark": (f"UPDATE guard SET {MARKED} WHERE id = {{c}}",),
    "the turn of the others": ("UPDATE guard SET quiet_until = 5 WHERE id = {c}",),
} | {f"one that is {action}": (decided(action),) for action in UNAPPLIED[1:]}


@pytest.mark.parametrize("case", SOUND)
def test_what_is_sound_is_no_violation(built: tuple[str, dict[str, int]], case: str) -> None:
    url, made = built
    damage(url, *filled(made, SOUND[case]))
    assert verified(url) == []


# name: statements, the invariant, whose, and what the message must say
UNSOUND: dict[str, tuple[tuple[str, ...], int, str | None, str]] = {
    "another action": ((row(action="'alter'"),), 8, "a", "no position in the feed"),
    "an action that is none": ((row(action="'thinking'"),), 8, "a", "no position in the feed"),
    "not write 0": ((row(ordinal="1"),), 6, "a", "it must be write 0"),
    "a tombstone that is not write 0": (
        (tombstone(f"'{ONE}'").replace(" 0, 'forb", " 2, 'forb"),),
        6,
        None,
        "it must be write 0",
    ),
    "two rows": ((row(), decided("moved", ordinal="1")), 6, "a", "is moved, and yet has other rows"),
    "beside an applied one": ((row(operation_id=OF_A_VERSION, ordinal="1"),), 6, "a", "yet has other rows"),
    "applied and forbidden": (
        (
            f"UPDATE operation SET operation_id = '{ONE}', ordinal = 1 WHERE entity_id = {{a}} AND version = 2",
            tombstone(f"'{ONE}'"),
        ),
        6,
        "a",
        "is forbidden, and yet has other rows",
    ),
    "dropped long after": ((row(entity_id="{d}", time=DROPPED_AT.format(f"- {HOUR} - 1")),), 7, "d", "still waits"),
    "unreadable": ((row(changes="'{{'"),), 7, "a", "cannot be read"),
    "no list of changes": ((row(changes="'5'"),), 7, "a", "cannot be read"),
    "failed without the error": ((decided("failed", result=None),), 6, "a", "have its answer"),
    "unchanged without the value": ((decided("unchanged", result=None),), 6, "a", "have its answer"),
    "a mark that ends before it begins": (
        (f"UPDATE guard SET {MARKED} WHERE id = {{c}}", "UPDATE guard SET marked_until = 4 WHERE id = {c}"),
        7,
        "c",
        "only until 4",
    ),
    "a scope version that is behind": (("UPDATE guard SET scope_version = 1 WHERE id = {f}",), 8, "f", "scope version"),
    "a scope version that goes back": (
        ("UPDATE operation SET scope_version = 3 WHERE entity_id = {a} AND version = 2",),
        8,
        "a",
        "goes back from 3 to 1 at version 3",
    ),
}
UNSOUND |= {
    f"{action} with {name}": ((decided(action, **{name: value}),), 6, "a", "although it was not applied")
    for action in UNAPPLIED
    for name, value in (("seq", "1 + (SELECT max(seq) FROM operation)"), ("version", "77"))
}
UNSOUND |= {
    f"an intent without {name}": ((row(**{name: None}),), 7, None if name == "entity_id" else "a", f"no {name}")
    for name in ("entity_id", "kind", "changes", "format", "deadline")
}
UNSOUND |= {
    f"a mark without {name}": (
        (f"UPDATE guard SET {MARKED} WHERE id = {{c}}", f"UPDATE guard SET {name} = NULL WHERE id = {{c}}"),
        7,
        "c",
        "all three or none",
    )
    for name in ("mark", "marked_at", "marked_until")
}


@pytest.mark.parametrize("case", UNSOUND)
def test_what_is_unsound_is_found(built: tuple[str, dict[str, int]], case: str) -> None:
    url, made = built
    statements, invariant, whose, words = UNSOUND[case]
    damage(url, *filled(made, statements))
    found = verified(url)
    entity_id = None if whose is None else made[whose]
    assert [v for v in found if (v.invariant, v.entity_id) == (invariant, entity_id) and words in v.message], found
    assert len(found) <= 5, "\n".join(map(str, found))


# --- the same as the store makes them, on all three backends


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_url(request: pytest.FixtureRequest) -> str:
    """Give a database on each kind of backend in turn."""
    if request.param == "memory":
        return "memory://"
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen


def announce(backend: Backend, table: ms.Table) -> UUID:
    """Write an intent down, as an operation does that lost."""
    operation_id = ms.new_operation_id()
    changes = '[{"change": "SetComment", "text": "announced"}]'
    entry = Entry(operation_id, "pending", None, table.id, "table", table.path, changes, 1, 60.0)
    assert isinstance(backend.write_down(entry), Committed)
    return operation_id


@pytest.fixture
def filled_store(any_url: str) -> Iterator[ms.Store]:
    """Give a store on each kind of backend in turn, with one table in it."""
    with ms.open(any_url, principal="tester") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True)
        yield store


def test_what_becomes_of_intents_and_calls_is_sound(filled_store: ms.Store) -> None:
    store, backend, seen = filled_store, filled_store._session.backend, set[str]()

    def sound() -> None:
        assert store.verify() == []
        seen.update(actions(backend))

    table = store.tables.load("lake.c.s.t")
    guards = tuple(Guard(node.id, node.scope_version) for node in table.record.chain[:-1])
    ids = [announce(backend, table) for _ in range(5)]
    sound()
    resolutions = (
        Resolution(ids[0], "alter", "ada", table.record.doc),
        Resolution(ids[1], "failed", None, None, '{"value": null}'),
        Resolution(ids[2], "unchanged", None, None, '{"value": null}'),
        Resolution(ids[3], "moved", None),
        Resolution(ids[4], "expired", None),
    )
    assert isinstance(backend.help(Help(guards, table.id, table.version, table.path, resolutions)), Committed)
    sound()
    assert backend.cancel(announce(backend, table))
    assert backend.forbid(ms.new_operation_id()) == 1
    sound()

    # results that are kept for callers who gave an id
    for _ in range(2):
        table = store.tables.alter("lake.c.s.t", ms.SetComment("mine"), operation_id=ms.new_operation_id())
    with pytest.raises(ms.EntityNotFound):
        store.tables.alter("lake.c.s.none", ms.SetComment("x"), operation_id=ms.new_operation_id())
    sound()

    # one intent meets a drop, and one comes too late for it
    announce(backend, table)
    assert store.tables.drop("lake.c.s.t")
    announce(backend, table)
    sound()
    store.tables.restore("lake.c.s.t")
    sound()
    assert {"pending", "alter", "failed", "unchanged", *CLAIMABLE} <= seen
    store.tables.drop("lake.c.s.t")
    announce(backend, table)
    store.gc(retention=timedelta(0))
    sound()


def test_freezes_and_marks_are_sound(filled_store: ms.Store) -> None:
    """They bump a scope version without a version of the entity's own."""
    store, backend = filled_store, filled_store._session.backend
    schema = store.schemas.load("lake.c.s")
    with store.schemas.exclusive("lake.c.s") as tx:
        assert store.verify() == []
        tx.tables.alter("lake.c.s.t", ms.SetComment("frozen"))
    assert store.verify() == []
    owner = ms.new_operation_id()
    eventually(lambda: isinstance(backend.mark(Mark(owner, schema.id, 0.0)), Committed))  # it is the others' turn
    assert store.verify() == []
    eventually(lambda: backend.clear(schema.id, owner))
    assert store.verify() == []
    now = store.schemas.load("lake.c.s")
    assert now.version == schema.version
    assert now.record.chain[-1].scope_version == schema.record.chain[-1].scope_version + 2
    store.schemas.alter("lake.c.s", ms.SetComment("x"))
    store.schemas.rename("lake.c.s", "r")
    assert store.verify() == []


def eventually(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not done():
        assert time.monotonic() < ends


def actions(backend: Backend) -> set[str]:
    with backend.snapshot() as snapshot:
        return {action for _, action in snapshot.rows("operation", ("operation_id", "action"), ("operation_id",))}


def test_an_applied_step_that_is_called_pending_is_missed(built: tuple[str, dict[str, int]]) -> None:
    """Negative control: what is passed over as not applied leaves a gap in the chain."""
    url, made = built
    of_a = f"WHERE entity_id = {made['a']} AND version = 2"
    damage(url, f"UPDATE operation SET action = 'moved', seq = NULL, version = NULL {of_a}")
    assert {(v.invariant, v.entity_id) for v in verified(url)} == {(1, made["a"])}
