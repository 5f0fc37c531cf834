"""What is stored of a secret is bound to its entity: nobody finds out by comparing what the secret is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.secret import as_shown
from metastore.managers.sources import NewTable
from metastore.operation.seals import Seals
from metastore.secrets.keyring import VARIABLE, new_key, to_text
from metastore.secrets.sealer import Sealer

PATTERNS = "metastore.secret-properties"
SECRET = {"pin": "4711"}
_SEALED = re.compile(r"secret:sealed:[0-9]+:[A-Za-z0-9_-]{22,}")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ms.Store]:
    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open("memory://", principal="root") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational", properties={PATTERNS: "pin", **SECRET})
        store.schemas.create("m.c.s", properties=SECRET)
        yield store


def stored(store: ms.Store) -> dict[str, tuple[int, str]]:
    """Return each sealed value, with the id of its entity, by the entity's or row's table and id."""
    found = {}
    with store._session.backend.snapshot() as snapshot:
        for table, of in (("entity", "id"), ("owned", "owner_id")):
            for row_id, entity_id, doc in snapshot.rows(table, ("id", of, "doc"), ("id",)):
                if text := _SEALED.search(doc):
                    found[f"{table} {row_id}"] = (entity_id, text[0])
    return found


def by_every_door(store: ms.Store) -> None:
    """Write the same secret by each call that can."""
    store.tables.create("m.c.s.t", properties=SECRET)
    store.tables.create("m.c.s.replaced")
    store.tables.create("m.c.s.replaced", properties=SECRET, if_exists="replace")
    store.tables.create_many("m.c.s", [{"name": f"n{n}", "properties": SECRET} for n in range(3)])
    store.tables.create("m.c.s.many")
    store.tables.create_many("m.c.s", [{"name": "many", "properties": SECRET}], if_exists="replace")
    store.tables.create("m.c.s.altered")
    store.tables.alter("m.c.s.altered", ms.SetProperty("pin", SECRET["pin"]))
    with store.transaction() as tx:
        tx.tables.create("m.c.s.tx", properties=SECRET)
        tx.tables.alter("m.c.s.tx", ms.SetProperty("pin", "0000"))
        tx.tables.alter("m.c.s.tx", ms.SetProperty("pin", SECRET["pin"], expected="0000"))
    store.partitions.create("m.c.s.t", "a", values={}, properties=SECRET)
    store.partitions.put_many("m.c.s.t", [store.partitions.row("b", values={}, properties=SECRET)])
    store.models.create("m.c.s.m", properties=SECRET)
    store.models.add_version("m.c.s.m", uris={"a": "b"}, properties=SECRET)
    store.models.add_version("m.c.s.m", uris={"a": "b"})
    store.models.alter_version("m.c.s.m", 2, ms.SetProperty("pin", SECRET["pin"]))
    parent = store.schemas.load("m.c.s")
    source = {"location": "file:///found"}
    new = NewTable(parent, "found", {}, SECRET, {"p": ({}, SECRET)}, {}, "file:///found", 0, 0, lambda _: source)
    store.sources.register(store.catalogs.load("m.c"), [new])


def test_equal_secrets_have_different_handles_and_open_at_their_own_entity_alone(store: ms.Store) -> None:
    by_every_door(store)
    sealer = Sealer(store._session.backend)
    for wanted in (1, 2):
        found = stored(store)
        assert len(found) == 17
        assert len({as_shown(text) for _, text in found.values()}) == len(found)
        ids = {entity_id for entity_id, _ in found.values()}
        for place, (entity_id, text) in found.items():
            assert text.startswith(f"secret:sealed:{wanted}:")
            assert sealer.open("pin", text, entity_id, place) == SECRET["pin"]
            for other in ids - {entity_id}:
                with pytest.raises(ms.SecretDamaged):
                    sealer.open("pin", text, other, place)
        assert store.reveal("m.c.s.found", "pin") == SECRET["pin"]
        store.secrets.rotate(reencrypt=True)
    assert store.verify() == []


def test_a_data_key_in_flight_does_not_outlive_a_fail_over(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is replaced while a thread reads a key from the old one."""
    sealer = Sealer(store._session.backend)
    read, reads = Sealer._row, list[int]()

    def replaced(self: Sealer, number: int) -> Any:
        row = read(self, number)
        reads.append(number)
        self.clear()
        return row

    monkeypatch.setattr(Sealer, "_row", replaced)
    entity_id, text = next(iter(stored(store).values()))
    for _ in range(2):
        assert sealer.open("pin", text, entity_id, "the property") == SECRET["pin"]
    assert reads == [1, 1]


@pytest.mark.parametrize("value", ["secret:hunter2", "secret:sealed:1:hunter2", "secret:env:hunter-2"])
def test_a_secret_that_looks_like_a_reference_and_is_none_is_encrypted(store: ms.Store, value: str) -> None:
    """It was taken for a reference, and stored and shown as plain text, of which ``verify`` said nothing."""
    table = store.tables.create("m.c.s.t", properties={"pin": value})
    altered = store.schemas.alter("m.c.s", ms.SetProperty("pin", value))
    assert "hunter" not in f"{table.properties}{altered.properties}"
    assert {store.reveal(table, "pin"), store.reveal(altered, "pin")} == {value}
    store.catalogs.alter("m.c", ms.RemoveProperty(PATTERNS))
    store.tables.create("m.c.s.plain", properties={"pin": value})
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "pin"))
    assert [one.invariant for one in store.verify()] == [17]
    store.secrets.scrub()
    assert store.verify() == []
    assert "hunter" not in "".join(str(one.to_dict()) for one in store.changes())


@pytest.mark.parametrize("pattern", ["keys[0].pin", "*[0]*", "[ab]pin"])
def test_a_bracket_in_a_pattern_is_a_bracket(store: ms.Store, pattern: str) -> None:
    """Only ``*`` and ``?`` have a meaning. A choice of characters, which nobody promised, is covered as before."""
    key = "apin" if pattern == "[ab]pin" else "keys[0].pin"
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, pattern))
    assert store.tables.create("m.c.s.t", properties={key: "hunter2"}).properties[key].startswith("sealed:")
    assert store.reveal("m.c.s.t", key) == "hunter2"


def test_a_trusted_store_compares_values_and_a_user_does_not(store: ms.Store) -> None:
    table = store.tables.create("m.c.s.t", properties=SECRET)
    role = store.roles.create("m.writer")
    store.roles.assign(role, store.users.create("m.ann"))
    for word in ("use_catalog", "use_schema", "modify_table"):
        store.roles.grant(role, word, "m.c", kind="catalog")
    ann, same = store.as_user("ann"), ms.SetProperty("pin", SECRET["pin"])
    assert store.tables.alter(table, same).version == 1
    assert store.tables.create("m.c.s.t", properties=SECRET, if_exists="replace").version == 1
    told = set()
    for guess in ("4711", "0000"):
        with pytest.raises(ms.InvalidArgument, match="give the handle") as raised:
            ann.tables.alter("m.c.s.t", ms.SetProperty("pin", "n3w", expected=guess))
        told.add(str(raised.value))
    assert len(told) == 1
    seen = table.properties["pin"]
    for version in (2, 3):  # the value that it has already is a change as every other one
        altered = ann.tables.alter("m.c.s.t", same)
        assert (altered.version, altered.properties["pin"] == seen) == (version, False)
    assert ann.tables.alter("m.c.s.t", ms.SetProperty("pin", altered.properties["pin"])).version == 3
    ann.tables.alter("m.c.s.t", ms.SetProperty("pin", "n3w", expected=altered.properties["pin"]))
    store.tables.alter("m.c.s.t", ms.SetProperty("pin", "4711", expected="n3w"))
    with pytest.raises(ms.VersionConflict):
        store.tables.alter("m.c.s.t", ms.SetProperty("pin", "1", expected="n3w"))
    with pytest.raises(ms.InvalidArgument, match="give the handle"), ann.transaction() as tx:
        tx.tables.alter("m.c.s.t", ms.SetProperty("pin", "1", expected="4711"))
    assert store.reveal(table, "pin") == "4711"
    assert store.verify() == []


def test_a_user_owns_what_it_creates_with_a_secret_within_its_transaction(store: ms.Store) -> None:
    role = store.roles.create("m.maker")
    store.roles.assign(role, store.users.create("m.ann"))
    for word in ("use_catalog", "use_schema", "create_table"):
        store.roles.grant(role, word, "m.c", kind="catalog")
    with store.as_user("ann").transaction() as tx:
        tx.tables.create("m.c.s.own", properties=SECRET)
        tx.tables.alter("m.c.s.own", ms.SetProperty("pin", "0000"))
    assert store.as_user("ann").reveal("m.c.s.own", "pin") == "0000"
    assert store.verify() == []


def test_what_is_stored_unbound_opens_and_is_bound_by_its_next_change(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(self: Sealer, name: str, value: str, number: int, entity_id: int) -> str:
        data = self._cipher(number).encrypt(value.encode(), [name.encode()])
        return f"secret:sealed:{number}:{to_text(data)}"

    with monkeypatch.context() as before:
        before.setattr(Sealer, "bind", as_before)
        table: Any = store.tables.create("m.c.s.t", properties=SECRET)
    text = json.loads(table.record.doc)["properties"]["pin"]
    assert store.reveal(table, "pin") == "4711"
    assert store.tables.alter(table, ms.SetProperty("pin", "4711")).version == 1
    table = store.tables.alter(table, ms.SetProperty("pin", "0815", expected="4711"))
    table = store.tables.alter(table, ms.SetProperty("pin", "4711", expected="0815"))
    assert json.loads(table.record.doc)["properties"]["pin"] != text
    assert store.reveal(table, "pin") == "4711"
    assert Sealer(store._session.backend).open("pin", text, table.id + 1, "") == "4711"  # it is not bound
    with pytest.raises(ms.SecretDamaged):
        Sealer(store._session.backend).open("pin", json.loads(table.record.doc)["properties"]["pin"], table.id + 1, "")


def test_revert_brings_back_the_secrets_of_rows(store: ms.Store) -> None:
    """They come back as they were stored. A plain value of before the declaration is encrypted."""
    table = store.tables.create("m.c.s.t", properties=SECRET)
    store.models.create("m.c.s.m")
    store.models.add_version("m.c.s.m", uris={"a": "b"}, properties=SECRET)
    for name in ("gone", "altered"):
        store.partitions.create(table, name, values={}, properties={**SECRET, "later": "p"})
    before, then = stored(store), store.position()
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "pin later"))
    store.partitions.put_many(table, [store.partitions.row("altered", values={}, properties={"pin": "0"})], ["gone"])
    store.models.alter_version("m.c.s.m", 1, ms.SetProperty("pin", "0"))
    assert len(store.revert("m.c.s", kind="schema", to=then)) == 3
    assert sorted(stored(store).values()) == sorted(before.values())
    rows = {row.name: row for row in store.partitions.list(table)}
    assert all(isinstance(rows[name].properties["later"], ms.Secret) for name in ("gone", "altered"))


def test_a_secret_whose_data_key_is_gone_is_named(store: ms.Store) -> None:
    """A revert brings a removed one back. Until it is set again, it stops a rotation, which says which one it is."""
    store.tables.create("m.c.s.t", properties=SECRET)
    then = store.position()
    store.tables.alter("m.c.s.t", ms.RemoveProperty("pin"))
    assert store.secrets.rotate(reencrypt=True).destroyed == (1,)
    store.revert("m.c.s.t", kind="table", to=then)
    store.secrets._session.seals = store._session.seals = Seals(store._session.backend)  # as in another process
    for call in (lambda: store.reveal("m.c.s.t", "pin"), lambda: store.secrets.rotate(reencrypt=True)):
        with pytest.raises(ms.SecretDamaged, match=r"^the property 'pin' of m\.c\.s\.t: data key 1 was destroyed"):
            call()
    store.tables.alter("m.c.s.t", ms.SetProperty("pin", "0815"))
    assert store.secrets.rotate(reencrypt=True).destroyed == (2, 3)  # the stopped one made 3
    assert store.verify() == []
