"""Encrypted properties: nobody reads the secret but ``reveal``, and only with the key."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any, cast

import pytest

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity
from metastore.managers import create_call
from metastore.managers.attempts.create import with_properties
from metastore.operation import digest
from metastore.operation.seals import Seals
from metastore.secrets.keyring import VARIABLE, new_key
from metastore.secrets.sealer import Sealer
from tests.contract.authorized import prepare
from tests.contract.ground import behind, dump

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATTERNS = "metastore.secret-properties"
SECRETS = [f"plain-secret-{n}" for n in range(12)]
CIPHERTEXT = re.compile(r"secret:sealed:\d+:[A-Za-z0-9_-]{22,}")
FIRST, SECOND = new_key(), new_key()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, FIRST)


@pytest.fixture
def table(store: Store) -> Entity:
    """Give a table below a catalog that declares secrets."""
    store.metalakes.create("m")
    properties = {PATTERNS: "password *.token", "password": SECRETS[0], "user": "ada"}
    store.catalogs.create("m.c", type="relational", properties=properties)
    return store.tables.create("m.c.s.t", parents=True, properties={"a.token": SECRETS[1], "owner": "ada"})


def forgetting(store: Store) -> Seals:
    """Let the store forget what it knows, as another process never knew it."""
    session = store._session
    store.secrets._session.seals = session.seals = Seals(session.backend)
    return session.seals


def test_load_shows_a_handle_and_reveal_the_secret(store: Store, table: Entity) -> None:
    shown = store.tables.load("m.c.s.t").properties
    assert isinstance(shown["a.token"], ms.Secret)
    assert re.fullmatch(r"sealed:1:[0-9a-f]{16}", shown["a.token"])
    assert shown["owner"] == "ada"
    assert not isinstance(shown["owner"], ms.Secret)
    assert store.reveal("m.c.s.t", "a.token") == SECRETS[1]
    assert store.reveal(table, "a.token") == SECRETS[1]
    assert store.reveal("m.c", "password") == SECRETS[0]
    with pytest.raises(ms.InvalidArgument, match="not a secret"):
        store.reveal("m.c.s.t", "owner")


def test_the_secret_is_nowhere(store: Store, table: Entity, caplog: pytest.LogCaptureFixture) -> None:
    """Every way to write a property, then every way to read."""
    caplog.set_level(logging.DEBUG)
    altered = store.tables.alter(table, ms.SetProperty("a.token", SECRETS[2], expected=SECRETS[1]))
    rows = [{"name": f"b{n}", "properties": {"password": SECRETS[3]}} for n in range(3)]
    store.tables.create_many("m.c.s", rows)
    store.partitions.create("m.c.s.t", "p", values={"a": "b"}, properties={"password": SECRETS[4]})
    row = store.partitions.row("q", {"a": "c"}, {"password": SECRETS[5]})
    store.partitions.put_many("m.c.s.t", [row])
    store.models.create("m.c.s.m")
    store.models.add_version("m.c.s.m", uris={"a": "b"}, properties={"password": SECRETS[6]})
    store.models.alter_version("m.c.s.m", 1, ms.SetProperty("password", SECRETS[7]))
    store.schemas.create("m.c.s.deep", properties={"password": SECRETS[8]}, operation_id=ms.new_operation_id())
    store.tables.create("m.c.s.t", properties={"a.token": SECRETS[9]}, if_exists="replace")
    with store.transaction() as tx:
        tx.tables.alter("m.c.s.t", ms.SetProperty("x.token", SECRETS[10]))
        tx.catalogs.create("m.new", type="relational", properties={PATTERNS: "pin"})
        tx.schemas.create("m.new.s", properties={"pin": SECRETS[11]})
    errors = []
    wrong: tuple[Callable[[], Any], ...] = (
        lambda: store.tables.alter("m.c.s.t", ms.SetProperty("a.token", SECRETS[0], expected=SECRETS[2])),
        lambda: store.tables.create("m.c.s.t", properties={"a.token": SECRETS[0]}),
        lambda: store.tables.create("m.c.none.t", properties={"a.token": SECRETS[0]}),
        lambda: store.tables.alter("m.c.s.t", ms.SetProperty("a.token", SECRETS[0]), ms.DropColumn(("no",))),
    )
    for call in wrong:
        with pytest.raises(ms.MetastoreError) as raised:
            call()
        errors.append(json.dumps(raised.value.to_dict()) + repr(raised.value))
    assert store.reveal("m.c.s.t", "x.token") == SECRETS[10]
    assert store.reveal("m.new.s", "pin") == SECRETS[11]
    plain, whole = BytesIO(), BytesIO()
    store.export_to(plain)
    store.export_to(whole, history=True)
    read = [
        *[json.dumps(one.to_dict()) + repr(one) for one in store.changes()],
        *[json.dumps(one.to_dict()) + repr(one.changes) for one in store.tables.history("m.c.s.t")],
        *[json.dumps(one.to_dict()) for one in store.find("m")],
        *[json.dumps(one.to_dict()) for one in store.partitions.list("m.c.s.t")],
        *[json.dumps(one.to_dict()) for one in store.models.versions("m.c.s.m")],
        *[json.dumps(one.to_dict()) for one in store.diff(next(iter(store.changes())).position)],
        plain.getvalue().decode(),
        whole.getvalue().decode(),
        repr(altered) + repr(altered.properties),
        *errors,
        caplog.text,
    ]
    for text in (*read, repr(dump(store._session.backend))):
        assert not any(secret in text for secret in SECRETS)
    for text in read:
        assert not CIPHERTEXT.search(text)
    assert CIPHERTEXT.search(repr(dump(store._session.backend)))
    assert store.verify() == []


def test_equal_values_are_equal_and_expected_compares_them(store: Store, table: Entity) -> None:
    same = store.tables.alter("m.c.s.t", ms.SetProperty("a.token", SECRETS[1]))
    assert same.version == table.version
    handle = same.properties["a.token"]
    other = store.tables.alter("m.c.s.t", ms.SetProperty("a.token", "b", expected=handle))
    assert store.reveal(other, "a.token") == "b"
    with pytest.raises(ms.VersionConflict) as raised:
        store.tables.alter("m.c.s.t", ms.SetProperty("a.token", "c", expected=SECRETS[1]))
    assert raised.value.found == f"secret:{other.properties['a.token']}"
    # under another name it is another ciphertext
    two = store.tables.alter("m.c.s.t", ms.SetProperty("b.token", "b"))
    assert two.properties["b.token"] != two.properties["a.token"]


def test_a_handle_that_is_written_back_stands_for_the_value(store: Store, table: Entity) -> None:
    given = store.tables.load("m.c.s.t").to_dict()["properties"]
    store.tables.create("m.c.s.t", properties=given, if_exists="replace")
    store.tables.alter("m.c.s.t", ms.SetProperty("a.token", given["a.token"]), ms.SetProperty("owner", "eve"))
    assert store.reveal("m.c.s.t", "a.token") == SECRETS[1]
    copy = store.tables.create("m.c.s.copy", properties=given)
    with pytest.raises(ms.SecretDamaged, match="not in this database"):
        store.reveal(copy, "a.token")


def test_a_ciphertext_is_no_value(store: Store, table: Entity) -> None:
    """Who has a copy of the database and not the key cannot let the store decrypt it elsewhere."""
    stolen = json.loads(table.record.doc)["properties"]["a.token"]
    for write in (
        lambda: store.tables.create("m.c.s.mine", properties={"a.token": stolen}),
        lambda: store.tables.alter("m.c.s.t", ms.SetProperty("b.token", stolen)),
        lambda: store.metalakes.alter("m", ms.SetProperty("a.token", stolen)),
        lambda: store.tables.create_many("m.c.s", [{"name": "mine", "properties": {"a.token": stolen}}]),
    ):
        with pytest.raises(ms.InvalidArgument, match="ciphertext"):
            write()


def test_a_new_declaration_holds_for_those_who_remember_the_old_one(store: Store, table: Entity) -> None:
    stays = store.tables.load("m.c.s.t")
    seals = store._session.seals
    assert seals is not None
    store.tables.alter(stays, ms.SetProperty("color", "red"))  # now the settings are remembered
    remembered = dict(seals._settings)
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password *.token pin"))
    seals._settings.update(remembered)  # as another process would remember them
    store.tables.alter(stays, ms.SetProperty("pin", SECRETS[2]))
    seals._settings.update(remembered)
    store.tables.alter("m.c.s.t", ms.SetProperty("a.pin", "x"), ms.SetProperty("pin", SECRETS[3], expected=SECRETS[2]))
    seals._settings.update(remembered)
    store.tables.create("m.c.s.t2", properties={"pin": SECRETS[4]})
    seals._settings.update(remembered)
    store.partitions.create("m.c.s.t", "p", values={"a": "b"}, properties={"pin": SECRETS[5]})
    seals._settings.update(remembered)
    store.tables.create_many("m.c.s", [{"name": "t3", "properties": {"pin": SECRETS[6]}}])
    seals._settings.update(remembered)
    with store.transaction() as tx:
        tx.tables.create("m.c.s.t4", properties={"pin": SECRETS[7]})
    seals._settings.update(remembered)
    with pytest.raises(ms.VersionConflict) as raised:
        store.tables.alter("m.c.s.t", ms.SetProperty("pin", "y", expected=SECRETS[8]))
    assert SECRETS[8] not in json.dumps(raised.value.to_dict())
    assert store.reveal("m.c.s.t", "pin") == SECRETS[3]
    assert not any(secret in repr(dump(store._session.backend)) for secret in SECRETS)
    assert store.verify() == []


def test_the_scope_version_is_what_keeps_old_settings_out(
    store: Store, table: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: without the count, a process with old settings writes plain text."""
    monkeypatch.setattr("metastore.operation.request.Proposal.counting_up", lambda proposal, _: proposal)
    seals = store._session.seals
    assert seals is not None
    store.tables.alter("m.c.s.t", ms.SetProperty("color", "red"))
    remembered = dict(seals._settings)
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "pin"))
    seals._settings.update(remembered)
    store.tables.alter("m.c.s.t", ms.SetProperty("pin", SECRETS[2]))
    (found,) = store.verify()
    assert (found.invariant, found.path) == (17, "m.c.s.t")
    assert SECRETS[2] not in found.message


def test_a_user_needs_the_right_to_reveal(store: Store) -> None:
    lake = prepare(store)
    store.catalogs.alter("lake.sales", ms.SetProperty(PATTERNS, "password"))
    store.tables.alter(lake.orders, ms.SetProperty("password", SECRETS[0]))
    ann = store.as_user("ann@corp")
    lake.reader()
    assert isinstance(ann.tables.load(lake.orders).properties["password"], ms.Secret)
    with pytest.raises(ms.PermissionDenied, match="use_secret"):
        ann.reveal("lake.sales.eu.orders", "password", kind="table")
    for refused in (ann.secrets.rotate, ann.secrets.scrub):
        with pytest.raises(ms.PermissionDenied):
            refused()
    lake.role("revealer", ("use_secret", "table", "lake.sales.eu.orders"))
    lake.role("writer", ("modify_table", "table", "lake.sales.eu.orders"))
    assert ann.reveal("lake.sales.eu.orders", "password", kind="table") == SECRETS[0]
    ann.tables.alter("lake.sales.eu.orders", ms.SetProperty("password", SECRETS[1]))
    assert store.reveal("lake.sales.eu.orders", "password", kind="table") == SECRETS[1]
    assert not any(secret in repr(dump(store._session.backend)) for secret in SECRETS)


def test_errors_of_keys_say_what_to_do(store: Store, table: Entity, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(store._session.backend)
    for key, cls, match in (
        ("", ms.SecretKeyMissing, VARIABLE),
        ("abc", ms.SecretKeyWrong, "64 bytes"),
        (SECOND, ms.SecretKeyWrong, "add the key"),
    ):
        monkeypatch.setenv(VARIABLE, key)
        forgetting(store)
        for call in (
            lambda: store.reveal("m.c.s.t", "a.token"),
            lambda: store.tables.alter("m.c.s.t", ms.SetProperty("a.token", SECRETS[2])),
            lambda: store.tables.create("m.c.s.t2", properties={"password": SECRETS[2]}),
        ):
            with pytest.raises(cls, match=match) as raised:
                call()
            assert not any(text in str(raised.value) for text in (FIRST, SECOND, *SECRETS))
        assert store.tables.load("m.c.s.t").properties["owner"] == "ada"  # all else works without a key
    assert dump(store._session.backend) == before
    store.tables.alter("m.c.s.t", ms.SetProperty("owner", "eve"))


def test_a_damaged_ciphertext_is_told(store: Store, table: Entity) -> None:
    seals = store._session.seals
    assert seals is not None
    value = json.loads(table.record.doc)["properties"]["a.token"]
    damaged = value[:-8] + ("AAAAAAAA" if value[-8:] != "AAAAAAAA" else "BBBBBBBB")
    # under another name, and at another entity, it does not open either
    for name, text, at in (("a.token", damaged, 0), ("other", value, 0), ("a.token", value, 1)):
        with pytest.raises(ms.SecretDamaged, match="set the property again"):
            seals.sealer.open(name, text, table.id + at, "the property")
    assert seals.sealer.open("a.token", value, table.id, "the property") == SECRETS[1]
    row = store._session.backend.secret_keys.rows()[0]
    store._session.backend.secret_keys.rewrap(row, "AAAA" + (row.wrapped or "")[4:], row.wrapper)
    forgetting(store)
    with pytest.raises(ms.SecretDamaged, match="restore the table"):
        store.reveal("m.c.s.t", "a.token")


def test_rotation_wraps_and_encrypts_again(store: Store, table: Entity, monkeypatch: pytest.MonkeyPatch) -> None:
    store.partitions.create("m.c.s.t", "p", values={"a": "b"}, properties={"password": SECRETS[4]})
    store.models.create("m.c.s.m")
    store.models.add_version("m.c.s.m", uris={"a": "b"}, properties={"password": SECRETS[6]})
    gone = store.tables.create("m.c.s.gone", properties={"password": SECRETS[5]})
    store.tables.drop(gone)
    monkeypatch.setenv(VARIABLE, f"{SECOND} {FIRST}")
    assert store.secrets.rotate().rewrapped == 1
    assert store.secrets.rotate().rewrapped == 0
    monkeypatch.setenv(VARIABLE, SECOND)
    forgetting(store)
    assert store.reveal("m.c.s.t", "a.token") == SECRETS[1]
    done = store.secrets.rotate(reencrypt=True)
    assert (done.reencrypted, done.destroyed, done.needed) == (4, (), (1,))  # what is dropped can be restored
    assert store.reveal(store.tables.restore("m.c.s.gone"), "password") == SECRETS[5]
    store.secrets.rotate(reencrypt=True)
    store.secrets.rotate(reencrypt=True)
    assert len(keys_left(store)) == 1  # nothing needs the others
    forgetting(store)
    assert store.reveal("m.c.s.t", "a.token") == SECRETS[1]
    assert store.reveal("m.c.s.gone", "password") == SECRETS[5]
    assert store.reveal("m.c", "password") == SECRETS[0]
    old = store.tables.load("m.c.s.t", version=1)
    assert re.fullmatch(r"sealed:1:[0-9a-f]{16}", old.properties["a.token"])
    assert store.verify() == []
    new = store.catalogs.create("m.d", type="relational", properties={PATTERNS: "pin", "pin": SECRETS[9]})
    assert store.reveal(new, "pin") == SECRETS[9]


def keys_left(store: Store) -> list[Any]:
    """Return the data keys that were not destroyed."""
    return [row for row in store._session.backend.secret_keys.rows() if row.wrapped is not None]


def test_a_repeat_after_a_rotation_has_the_first_answer(store: Store, table: Entity) -> None:
    """Also one of before the property was declared secret. What differs from the first call is told as before."""
    ids = [ms.new_operation_id() for _ in range(5)]
    store.models.create("m.c.s.m")

    def calls(secret: str = SECRETS[2], comment: str = "c") -> list[Any]:
        given = {"password": secret}
        return [
            store.tables.alter("m.c.s.t", ms.SetProperty("a.token", secret), operation_id=ids[0]),
            store.tables.create("m.c.s.new", comment=comment, properties=given, operation_id=ids[1]),
            store.partitions.create("m.c.s.new", "p", values={"a": "b"}, properties=given, operation_id=ids[2]),
            store.models.add_version("m.c.s.m", uris={"a": "b"}, properties=given, operation_id=ids[3]),
            store.tables.alter("m.c.s.t", ms.SetProperty("later", secret), operation_id=ids[4]),
        ]

    first = calls()
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password *.token later"))
    assert calls() == first
    with pytest.raises(ms.OperationIdReused):
        calls(SECRETS[3])
    store.tables.drop(store.tables.create("m.c.s.gone", properties={"password": SECRETS[5]}))
    for destroyed in ((), (1, 2)):
        assert store.secrets.rotate(reencrypt=True).destroyed == destroyed
        forgetting(store)
        assert calls() == first
        with pytest.raises(ms.OperationIdReused):
            calls(comment="another")
        if not destroyed:
            with pytest.raises(ms.OperationIdReused):
                calls(SECRETS[3])
            store.tables.restore("m.c.s.gone")


@pytest.mark.parametrize("since", ["renamed", "dropped", "narrowed", "widened", "withdrawn"])
def test_a_repeat_has_the_first_answer_whatever_became_of_the_declaration(
    store: Store, table: Entity, since: str
) -> None:
    """The caller gives the same arguments, and does not see which of them are encrypted."""
    ids = [ms.new_operation_id() for _ in range(3)]

    def calls(secret: str = SECRETS[2]) -> list[Any]:
        given = {"password": secret, "a.token": SECRETS[3], "user": "ada"}
        return [
            store.tables.alter("m.c.s.t", *map(ms.SetProperty, given, given.values()), operation_id=ids[0]),
            store.tables.create("m.c.s.new", properties=given, operation_id=ids[1]),
            store.partitions.create("m.c.s.t", "p", values={"a": "b"}, properties=given, operation_id=ids[2]),
        ]

    first = calls()
    if since == "renamed":
        store.catalogs.rename("m.c", "d")
    elif since == "dropped":
        store.catalogs.drop("m.c", cascade=True)
    else:
        patterns = {"narrowed": "password", "widened": "password *.token user", "withdrawn": ""}
        store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, patterns[since]))
    forgetting(store)
    assert calls() == first
    with pytest.raises(ms.OperationIdReused):
        calls(SECRETS[4])


def test_a_repeat_may_make_its_catalog_with_another_data_key(store: Store, table: Entity) -> None:
    once = ms.new_operation_id()

    def made() -> Entity:
        return store.catalogs.create("m.d", type="relational", properties={PATTERNS: "*.token"}, operation_id=once)

    first = made()
    store.secrets.rotate(reencrypt=True)
    assert made() == first


@pytest.mark.parametrize("given", [{}, {"a.token": SECRETS[1]}], ids=["declares", "sets"])
def test_a_repeat_of_an_older_programs_new_catalog_has_the_first_answer(
    store: Store, table: Entity, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older program digested secrets in encrypted form, and the number of the data key that it added."""
    once = ms.new_operation_id()
    store.secrets.rotate(reencrypt=True)

    def made(properties: dict[str, str]) -> Entity:
        properties = {PATTERNS: "*.token", **properties}
        return store.catalogs.create("m.d", type="relational", properties=properties, operation_id=once)

    with monkeypatch.context() as older:
        older.setattr(create_call, "with_properties", lambda doc, more, without: with_properties(doc, more))
        older.setattr(digest, "_plain", digest._text)
        older.setattr(Sealer, "keyed", lambda _, text, number: digest._hash(text))
        first = made(given)
    assert made(given) == first
    for other in ({"user": "ada"}, {"a.token": SECRETS[2]}):
        with pytest.raises(ms.OperationIdReused):
            made(other)
    store.secrets.rotate(reencrypt=True)
    assert made(given) == first


def test_what_a_store_remembers_of_several_catalogs_outlives_a_rotation(store: Store, table: Entity) -> None:
    """One write after the rotation forgets the destroyed data key; the settings of the other catalog still name it."""
    store.catalogs.create("m.d", type="relational", properties={PATTERNS: "*.token"})
    other = store.tables.create("m.d.s.t", parents=True, properties={"a.token": SECRETS[2]})
    store.secrets.rotate(reencrypt=True)
    store.tables.alter(other, ms.SetProperty("a.token", SECRETS[3]))
    store.tables.alter("m.c.s.t", ms.SetProperty("a.token", SECRETS[4]))
    with store.transaction() as tx:
        tx.tables.alter("m.c.s.t", ms.SetProperty("owner", "bob"), ms.SetProperty("b.token", SECRETS[5]))
    assert [store.reveal("m.c.s.t", key) for key in ("a.token", "b.token")] == [SECRETS[4], SECRETS[5]]


def test_scrub_takes_plain_values_out_of_history(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational", properties={"password": SECRETS[0]})
    table = store.tables.create("m.c.s.t", parents=True, properties={"password": SECRETS[1], "user": "ada"})
    store.tables.alter(table, ms.SetProperty("password", SECRETS[2], expected=SECRETS[1]))
    wrong = ms.SetProperty("password", SECRETS[3], expected=SECRETS[4])
    with pytest.raises(ms.VersionConflict):
        store.tables.alter(table, wrong, operation_id=ms.new_operation_id())
    store.partitions.create("m.c.s.t", "p", values={"a": "b"}, properties={"password": SECRETS[5]})
    dropped = store.tables.create("m.c.s.gone", properties={"password": SECRETS[6]})
    store.tables.drop(dropped)
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password"))
    reported = sorted(v.path or "" for v in store.verify() if v.invariant == 17)
    assert reported == ["m.c", "m.c.s.gone", "m.c.s.t", "m.c.s.t.p"]
    done = store.secrets.scrub()
    assert (done.reencrypted, done.left) == (3, 1)
    text = repr(dump(store._session.backend))
    assert [n for n, secret in enumerate(SECRETS) if secret in text] == [6]
    assert store.reveal("m.c.s.t", "password") == SECRETS[2]
    assert [v.path for v in store.verify()] == ["m.c.s.gone"]
    assert [v.entity.properties["user"] for v in store.tables.history("m.c.s.t") if v.entity] == ["ada"] * 3
    store.tables.purge(dropped)
    assert store.secrets.scrub().left == 0
    assert not any(secret in repr(dump(store._session.backend)) for secret in SECRETS)
    assert store.secrets.scrub().redacted == 0
    assert store.verify() == []


def test_an_import_leaves_marked_handles(store: Store, table: Entity) -> None:
    file = BytesIO()
    store.export_to(file)
    store.catalogs.drop("m.c", cascade=True)
    file.seek(0)
    store.import_from(file, if_exists="return")
    assert isinstance(store.tables.load("m.c.s.t").properties["a.token"], ms.Secret)
    with pytest.raises(ms.SecretDamaged, match="set the property again"):
        store.reveal("m.c.s.t", "a.token")
    store.tables.alter("m.c.s.t", ms.SetProperty("a.token", SECRETS[1]))
    file.seek(0)
    store.import_from(file, if_exists="replace")  # what is encrypted here stays
    assert store.reveal("m.c.s.t", "a.token") == SECRETS[1]


def test_references_stay_references(store: Store, table: Entity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", SECRETS[2])
    store.tables.alter("m.c.s.t", ms.SetProperty("a.token", ms.secret("env:A_TOKEN")))
    assert store.tables.load("m.c.s.t").properties["a.token"] == "env:A_TOKEN"
    assert store.reveal("m.c.s.t", "a.token") == SECRETS[2]


def test_an_old_entity_in_hand_may_have_moved_below_a_declaring_catalog(store: Store, table: Entity) -> None:
    store.catalogs.create("m.open", type="relational")
    moved = store.tables.create("m.open.s.moved", parents=True)
    store.tables.rename(moved, "m.c.s.moved")
    store.tables.alter(moved, ms.SetProperty("password", SECRETS[2]))
    assert store.reveal("m.c.s.moved", "password") == SECRETS[2]
    assert SECRETS[2] not in repr(dump(store._session.backend))


def test_a_call_that_changes_nothing_finds_out_that_its_path_leads_below_another_catalog(
    store: Store, table: Entity
) -> None:
    plain = store.tables.create("m.c.s.plain", properties={"pin": SECRETS[2]})
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "pin"))
    before = store.catalogs.create("m.before", type="relational")
    while before.record.chain[-1].scope_version < store.catalogs.load("m.c").record.chain[-1].scope_version:
        before = store.catalogs.alter("m.before", ms.SetProperty(PATTERNS, f"x{before.version}"))
    store.tables.create("m.before.s.t", parents=True, properties={"color": "red"})
    seals = store._session.seals
    assert seals is not None
    seals._ids.set(("m", "c"), before.id)  # as if this catalog had had the name before
    store.tables.alter(plain.path, ms.SetProperty("pin", SECRETS[2]))
    assert store.reveal(plain, "pin") == SECRETS[2]


@pytest.mark.parametrize("key", ["PassWord", "A.TOKEN"])
def test_patterns_are_of_any_case(store: Store, table: Entity, key: str) -> None:
    store.tables.alter(table, ms.SetProperty(key, SECRETS[2]))
    assert SECRETS[2] not in repr(dump(store._session.backend))


def test_a_hot_entity_is_announced_under_the_settings_of_now(store: Store, table: Entity) -> None:
    """What was remembered of a catalog that has changed meanwhile is found out before anything is written down."""
    seals, session = store._session.seals, store._session
    assert seals is not None
    store.tables.alter("m.c.s.t", ms.SetProperty("color", "red"))
    remembered = dict(seals._settings)
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password *.token pin"))
    written, write_down = list[Any](), session.backend.write_down

    def note(entry: Any) -> Any:
        written.append(entry.changes)
        return write_down(entry)

    session.backend = cast(Any, _Spied(session.backend, note))
    for target in (table, "m.c.s.t"):
        seals._settings.update(remembered)  # as another process would remember them
        session.hot.note(table.id, ("table", ("m", "c", "s", "t")))
        store.tables.alter(target, ms.SetProperty("pin", SECRETS[2]), ms.SetProperty("color", "blue"))
        assert store.reveal("m.c.s.t", "pin") == SECRETS[2]
    session.hot.note(table.id, ("table", ("m", "c", "s", "t")))
    store.tables.alter("m.c.s.t", ms.SetProperty("color", "green"))  # under the settings of now it lands
    assert store.tables.load("m.c.s.t").properties["color"] == "green"
    assert written  # the entity was hot
    assert not any(secret in repr(dump(behind(store))) for secret in SECRETS)
    assert store.verify() == []


def test_nothing_is_announced_below_another_catalog_than_was_looked_at(store: Store, table: Entity) -> None:
    """The change is hot, and its entity is not below the catalog whose settings the call was prepared with."""
    session = store._session
    store.catalogs.create("m.plain", type="relational")
    store.tables.create("m.plain.s.t", parents=True)
    moved = store.tables.create("m.plain.s.moved")
    store.tables.alter(moved, ms.SetProperty("password", "0"))
    store.tables.rename("m.plain.s.moved", "m.c.s.moved")
    session.hot.note(moved.id)
    store.tables.alter(moved, ms.SetProperty("password", SECRETS[2]))  # an entity in hand, as it was before the move
    swap(store)
    pending, swapped = session.backend.pending, list[None]()
    in_one_go = session.backend.in_one_go

    def swapped_meanwhile(*arguments: Any, **options: Any) -> Any:
        if not swapped:
            swapped.append(None)
            swap(store)
        return pending(*arguments, **options)

    session.hot.note(table.id, ("table", ("m", "c", "s", "t")))  # where the path led before
    cast(Any, session.backend).pending = swapped_meanwhile
    cast(Any, session.backend).in_one_go = lambda work, **_: work()  # the swap needs an async store's only thread
    store.tables.alter("m.c.s.t", ms.SetProperty("password", SECRETS[3]))
    cast(Any, session.backend).pending, cast(Any, session.backend).in_one_go = pending, in_one_go
    if not swapped:
        swap(store)
    assert not any(value in repr(dump(behind(store))) for value in SECRETS[2:3])
    assert not any(value in repr(list(store.tables.history(table))) for value in SECRETS)
    assert store.reveal(moved, "password") == SECRETS[2]


def swap(store: Store) -> None:
    """Let two catalogs take each other's name."""
    with store.transaction() as tx:
        for name, to in (("c", "other"), ("plain", "c"), ("other", "plain")):
            tx.catalogs.rename(f"m.{name}", to)


class _Spied:
    """A backend that lets a test see what is written down."""

    def __init__(self, backend: Any, write_down: Callable[[Any], Any]) -> None:
        self._backend, self.write_down = backend, write_down

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def test_a_transaction_that_is_given_up_teaches_nothing(store: Store, table: Entity) -> None:
    """Its settings have the scope version that the next declaration gets."""

    def give_up() -> None:
        with store.transaction() as tx:
            tx.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "nothing"))
            tx.tables.alter("m.c.s.t", ms.SetProperty("color", "red"))
            raise KeyError

    with pytest.raises(KeyError):
        give_up()
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password *.token pin"))
    store.tables.alter("m.c.s.t", ms.SetProperty("pin", SECRETS[2]))
    assert store.reveal("m.c.s.t", "pin") == SECRETS[2]
    assert store.verify() == []


def test_a_transaction_validates_the_settings_that_it_rests_on(store: Store, table: Entity) -> None:
    store.tables.alter("m.c.s.t", ms.SetProperty("color", "red"))

    def declared_after_the_write() -> None:
        with store.transaction() as tx:
            tx.tables.alter("m.c.s.t", ms.SetProperty("pin", SECRETS[2]))
            store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password *.token pin"))

    def declared_after_the_read() -> None:
        with store.transaction() as tx:
            tx.tables.load("m.c.s.t")
            store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "password *.token pin n"))
            store.tables.alter("m.c.s.t", ms.SetProperty("n", SECRETS[3]))  # the store knows the new settings
            tx.tables.alter("m.c.s.t", ms.SetProperty("color", "red"))  # changes nothing
            tx.tables.alter("m.c.s.t", ms.SetProperty("n", SECRETS[4]))

    for run in (declared_after_the_write, declared_after_the_read):
        with pytest.raises(ms.VersionConflict):
            run()
    assert not any(secret in repr(dump(behind(store))) for secret in SECRETS[2:3] + SECRETS[4:])
    with store.transaction() as tx:
        tx.tables.alter("m.c.s.t", ms.SetProperty("pin", SECRETS[5]))
    assert store.reveal("m.c.s.t", "pin") == SECRETS[5]
    assert store.verify() == []
