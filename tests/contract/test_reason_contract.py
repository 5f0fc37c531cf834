"""``reason=``: each change says why it was made, whichever call made it, and whoever applied it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metastore as ms
from metastore.managers.options import CALL_OPTIONS
from metastore.port.note import note_of_intent, read_note, reason_in
from tests.contract.ground import Ground
from tests.contract.intents import announce, entry
from tests.progress.hooks import announces

WHY = 'so that [3, 1] is no "lease": {"evidence": 7}, müde'
T = "m.c.one.t"


def _since(store: ms.Store, act: Callable[[], object]) -> list[ms.Change]:
    before = [change.position for change in store.changes()][-1]
    act()
    made = [change for change in store.changes(after=before) if change.kind != "lease"]
    assert made
    return made


def _calls(store: ms.Store, why: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """Yield calls of each kind of write that there is, in an order in which they can be made."""
    yield lambda: store.tables.create("m.c.one.x", **why)
    yield lambda: store.schemas.create("m.c.above.below", parents=True, **why)
    yield lambda: store.tables.create_many("m.c.one", [{"name": "many1"}, {"name": "many2"}], **why)
    yield lambda: store.tables.alter("m.c.one.x", ms.SetProperty("a", "b"), **why)
    yield lambda: store.tables.rename("m.c.one.x", "y", **why)
    yield lambda: store.tables.rename("m.c.one.y", "m.c.two.y", **why)
    yield lambda: store.tables.drop("m.c.two.y", **why)
    yield lambda: store.tables.restore("m.c.two.y", **why)
    yield lambda: store.partitions.create(T, "q", values={}, **why)
    yield lambda: store.partitions.drop(T, "q", **why)
    yield lambda: store.tags.create("m.pii", **why)
    yield lambda: store.tags.attach(T, "m.pii", **why)
    yield lambda: store.tags.detach(T, "m.pii", **why)
    yield lambda: store.users.create("m.ann", **why)
    yield lambda: store.roles.create("m.reader", **why)
    yield lambda: store.roles.grant("m.reader", "use_schema", "m.c.one", **why)
    yield lambda: store.roles.assign("m.reader", "m.ann", **why)
    yield lambda: store.roles.revoke("m.reader", "use_schema", "m.c.one", **why)
    yield lambda: store.catalogs.disable("m.c", **why)
    yield lambda: store.catalogs.enable("m.c", **why)
    yield lambda: store.schemas.drop("m.c.above", cascade=True, **why)


def test_each_kind_of_write_says_why(ground: Ground) -> None:
    store = ground.store
    for n, call in enumerate(_calls(store, {"reason": WHY}), 1):
        assert {change.reason for change in _since(store, call)} == {WHY}, n
    assert [v.reason for v in store.tables.history("m.c.two.y")] == [WHY] * 6
    assert store.tables.alter(T, ms.SetComment("x")).version == 2
    (last,) = [v for v in store.tables.history(T) if v.version == 2]
    assert last.reason is None
    assert "reason" not in last.to_dict()
    assert all(v.to_dict()["reason"] == WHY for v in store.tables.history("m.c.two.y"))
    assert ground.store.verify() == []


def test_blocks_and_views_say_why(ground: Ground) -> None:
    store = ground.store

    def both(tx: Any) -> None:
        tx.tables.alter(T, ms.SetComment("1"))
        tx.tables.create("m.c.two.made")
        tx.tags.create("m.tag")
        tx.tags.attach(T, "m.tag")

    def transaction() -> None:
        with store.transaction(reason=WHY) as tx:
            tx.schemas.create("m.c.in_tx")
            tx.tables.create("m.c.in_tx.t")

    def freeze() -> None:
        with store.schemas.exclusive("m.c.two", reason=WHY) as tx:
            tx.tables.create("m.c.two.frozen")

    def leased() -> None:
        with store.leases.acquire("nightly") as lease:
            store.tables.alter(T, ms.SetComment("2"), lease=lease, reason=WHY)
            store.run(lambda tx: [tx.tables.create(f"m.c.two.l{n}") for n in range(2)], lease=lease, reason=WHY)

    def in_steps() -> None:
        pending = store.tables.begin_drop("m.c.two.made", reason=WHY)
        pending.started(reason=WHY)
        assert pending.finish(reason=WHY)

    here = [change.position for change in store.changes()][-1]
    for act in (
        lambda: store.run(both, reason=WHY),
        transaction,
        freeze,
        leased,
        in_steps,
        lambda: store.bind(reason=WHY).tables.alter(T, ms.SetComment("3")),
        lambda: store.bind(reason="another").tables.alter(T, ms.SetComment("4"), reason=WHY),
        lambda: store.bind(reason=WHY).bind(principal="ann").run(lambda tx: tx.tables.alter(T, ms.SetComment("5"))),
        lambda: store.revert("m.c.two", to=here, reason=WHY),
    ):
        assert {change.reason for change in _since(store, act)} == {WHY}
    assert store.verify() == []


def test_a_repeat_is_the_same_call_whatever_reason_it_gives(ground: Ground) -> None:
    mine = ms.new_operation_id()
    first = ground.store.tables.alter(T, ms.SetComment("x"), operation_id=mine, reason=WHY)
    assert ground.store.tables.alter(T, ms.SetComment("x"), operation_id=mine).version == first.version == 2
    assert [v.reason for v in ground.store.tables.history(T)] == [None, WHY]


def test_an_announced_change_keeps_its_reason_whoever_applies_it(ground: Ground) -> None:
    table = ground.store.tables.load(T)
    announce(ground, table, "theirs", reason=WHY)
    assert ground.store.tables.alter(T, ms.SetProperty("a", "b"), reason="mine").comment == "theirs"
    assert [(v.reason, v.entity.comment) for v in ground.store.tables.history(T) if v.entity] == [
        (None, None),
        (WHY, "theirs"),
        ("mine", "theirs"),
    ]


def test_a_change_on_a_hot_table_is_announced_with_its_reason(url: str) -> None:
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        table = store.tables.create("m.c.s.t", parents=True)
        announces(store, table)
        store.tables.alter(table, ms.SetComment("x"), reason=WHY)
        (version,) = [v for v in store.tables.history(table) if v.version == 2]
        assert version.reason == WHY
        (row,) = store._session.backend.steps(version.operation_id)
        assert row.format is not None, "it was announced"


def test_the_audit_of_a_lease_does_not_take_a_reason_for_a_token(ground: Ground) -> None:
    store = ground.store
    with store.leases.acquire("nightly"):
        pass
    ids = range(1, 60)
    for some in (ids[:30], ids[30:]):
        store.schemas.alter("m.c.one", ms.SetComment(str(some)), reason=" ".join(f"[{n}," for n in some)[:200])
    assert [event.action for event in store.leases.audit("nightly")] == ["acquire", "release"]


@pytest.mark.parametrize("bad", ["", " ", "a\nb", "a\x00", "a\x7f", "x" * 201, "\ud800", 7, b"x"])
def test_a_reason_that_is_none_is_refused_before_anything_is_written(ground: Ground, bad: Any) -> None:
    store = ground.store
    for act in (
        lambda: store.tables.alter(T, ms.SetComment("x"), reason=bad),
        lambda: store.transaction(reason=bad),
        lambda: store.run(lambda tx: tx.tables.drop(T), reason=bad),
        lambda: store.schemas.exclusive("m.c.one", reason=bad),
        lambda: store.bind(reason=bad),
    ):
        with pytest.raises(ms.InvalidArgument, match="reason"):
            act()
    assert store.tables.load(T).version == 1


def test_a_transaction_has_one_reason(ground: Ground) -> None:
    with pytest.raises(ms.InvalidArgument, match="one reason"), ground.store.transaction(reason="a") as tx:
        tx.tables.alter(T, ms.SetComment("x"), reason="b")
    assert ground.store.tables.load(T).version == 1


def test_it_is_an_option_of_every_call(ground: Ground) -> None:
    assert "reason" in CALL_OPTIONS
    text = note_of_intent(entry(ground.store.tables.load(T), reason=WHY))
    assert reason_in(text) == WHY
    assert read_note(text or "").leases == ()
    assert "[" not in (text or "")
    assert reason_in(None) is reason_in('{"evidence": {"1": 2}}') is reason_in("[[1, 2]]") is None
