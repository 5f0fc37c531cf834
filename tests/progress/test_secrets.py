"""Encrypted changes are announced as ciphertext: the bound holds for them, and helpers need no key."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

import metastore as ms
from metastore.secrets.keyring import VARIABLE, new_key
from tests.concurrency.checks import seed
from tests.progress.hooks import CAS, EVERYWHERE, Lost, announces, before
from tests.progress.test_adversary import PATH, Adversary

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATTERNS = "metastore.secret-properties"
KEY = new_key()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


@pytest.fixture
def lake(url: str) -> str:
    """Give the URL of a database in which the property ``password`` is secret."""
    seed(url, PATH)
    with ms.open(url) as store:
        store.catalogs.alter("lake.cat", ms.SetProperty(PATTERNS, "password"))
        store.tables.alter(PATH, ms.SetProperty("password", "s0"))
    return url


def stored(store: ms.Store) -> str:
    """Return the ciphertext in the table's document."""
    return str(json.loads(store.tables.load(PATH).record.doc)["properties"]["password"])


def noted(store: ms.Store, text: str) -> bool:
    """Whether a text is anywhere in the rows of operations."""
    with store._session.backend.snapshot() as snapshot:
        rows = snapshot.rows("operation", ("changes", "doc", "result"), ("operation_id", "ordinal"))
        return any(text in str(row) for row in rows)


@pytest.mark.parametrize("calls", [CAS, EVERYWHERE], ids=["each CAS", "each call"])
@pytest.mark.parametrize("announced", [False, True], ids=["fast", "announced"])
def test_the_bound_holds_for_what_is_encrypted(lake: str, announced: bool, calls: tuple[str, ...]) -> None:
    lost = Lost()
    with ms.open(lake, principal="victim", hooks=[lost]) as victim, ms.open(lake) as other:
        table = victim.tables.load(PATH)
        victim.tables.alter(PATH, ms.SetProperty("password", "s1"))  # the store knows the settings
        adversary = Adversary(other, announced=announced)
        for n in range(3):
            lost.causes.clear()
            victim._session.hot.cool(table.id)
            with before(victim, adversary, calls=calls) as steps:
                victim.tables.alter(PATH, ms.SetProperty("password", f"secret-{n}"))
            assert len(lost.causes) <= (4 if "write_together" in steps else 3), (lost.causes, steps)
            assert victim.reveal(PATH, "password") == f"secret-{n}"
            assert not noted(other, f"secret-{n}")
        assert victim.verify() == []


def test_a_helper_needs_no_key(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ms.open(lake, principal="owner") as owner, ms.open(lake, principal="helper") as helper:
        table = owner.tables.load(PATH)
        owner.tables.alter(PATH, ms.SetProperty("password", "s1"))
        helped: list[ms.Table] = []

        def help_first() -> None:
            if not helped:
                monkeypatch.delenv(VARIABLE)
                announces(helper, table)
                helped.append(helper.tables.alter(PATH, ms.SetProperty("helper", "1")))
                monkeypatch.setenv(VARIABLE, KEY)

        announces(owner, table)
        with before(owner, help_first, calls=("help",)):
            owner.tables.alter(PATH, ms.SetProperty("password", "s2"))
        assert helped
        by = {v.principal: v.version for v in owner.tables.history(PATH)}
        assert by["owner"] < by["helper"]  # the helper applied it, before its own
        assert owner.reveal(PATH, "password") == "s2"
        assert owner.verify() == []


def test_another_data_key_lets_its_owner_decide_again(lake: str) -> None:
    """A rotation between the announcement and the commit: the old ciphertext never lands, its key may be destroyed."""
    with ms.open(lake, principal="owner") as owner, ms.open(lake) as other:
        table = owner.tables.load(PATH)
        owner.tables.alter(PATH, ms.SetProperty("password", "s1"))
        assert stored(owner).startswith("secret:sealed:1:")
        done: list[Any] = []

        def rotate() -> None:
            if not done:
                done.append(None)
                done.append(other.secrets.rotate(reencrypt=True))

        announces(owner, table)
        with before(owner, rotate, calls=("help",)):
            owner.tables.alter(PATH, ms.SetProperty("password", "s2"))
        assert done[1].needed in ((1,), ())  # the intent that waits needs it still, where nobody has resolved it
        assert stored(owner).startswith("secret:sealed:2:")
        assert owner.reveal(PATH, "password") == "s2"
        again = other.secrets.rotate(reencrypt=True)
        assert 1 not in again.needed
        assert owner.reveal(PATH, "password") == "s2"
        assert owner.verify() == []


def test_a_replacement_is_announced_too(lake: str) -> None:
    lost = Lost()
    with ms.open(lake, principal="victim", hooks=[lost]) as victim, ms.open(lake) as other:
        adversary = Adversary(other, announced=True)
        for n in range(3):
            lost.causes.clear()
            with before(victim, adversary) as steps:
                victim.tables.create(PATH, properties={"password": f"new-{n}"}, if_exists="replace")
            assert "help" in steps
            assert len(lost.causes) <= 4, (lost.causes, steps)
            assert victim.reveal(PATH, "password") == f"new-{n}"
            assert not noted(other, f"new-{n}")
        assert victim.verify() == []


def test_without_its_evidence_an_old_ciphertext_lands(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the one above."""
    from metastore.operation.seals import Seal

    monkeypatch.setattr(Seal, "announced", lambda _, merge: merge)
    with ms.open(lake, principal="owner") as owner, ms.open(lake) as other:
        table = owner.tables.load(PATH)
        owner.tables.alter(PATH, ms.SetProperty("password", "s1"))
        done: list[Any] = []

        def rotate() -> None:
            if not done:
                done.append(other.catalogs.alter("lake.cat", ms.SetProperty("metastore.secret-key", "7")))

        announces(owner, table)
        with before(owner, rotate, calls=("help",)):
            owner.tables.alter(PATH, ms.SetProperty("password", "s2"))
        assert stored(owner).startswith("secret:sealed:1:")


def test_a_user_and_its_secret(lake: str) -> None:
    """The evidence of a right and that of the settings go together."""
    with ms.open(lake) as store, ms.open(lake) as other:
        role = store.roles.create("lake.writer")
        store.roles.assign(role, store.users.create("lake.ann"))
        for word, on, kind in (
            ("use_catalog", "lake.cat", "catalog"),
            ("use_schema", "lake.cat.s", "schema"),
            ("modify_table", PATH, "table"),
        ):
            store.roles.grant(role, word, on, kind=kind)
        ann = store.as_user("ann")
        ann.tables.alter(PATH, ms.SetProperty("password", "s1"))
        adversary = Adversary(other, announced=True)
        with before(store, adversary, times=4):
            ann.tables.alter(PATH, ms.SetProperty("password", "s2"))
        assert store.reveal(PATH, "password") == "s2"

        revoke = partial(other.roles.revoke, "lake.writer", "modify_table", PATH, kind="table")
        turns: Any = iter([adversary, adversary, revoke])

        def turn() -> None:
            next(turns)()

        with (
            before(store, turn, times=3) as steps,  # it loses, is announced, and loses its right
            pytest.raises((ms.PermissionDenied, ms.EntityNotFound)),
        ):
            ann.tables.alter(PATH, ms.SetProperty("password", "s3"))
        assert "help" in steps
        assert store.reveal(PATH, "password") == "s2"
        assert store.verify() == []


@pytest.mark.parametrize("given", [False, True])
def test_a_call_with_an_id_of_its_own_is_not_announced(lake: str, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its repeat must have the same arguments, whatever the data key is by then."""
    with ms.open(lake) as store:
        table = store.tables.load(PATH)
        announces(store, table)
        session, actions = store._session, list[str]()
        write_down = session.backend.write_down

        def noting(entry: Any) -> Any:
            actions.append(entry.action)
            return write_down(entry)

        monkeypatch.setattr(session.backend, "write_down", noting, raising=False)
        options: Any = {"operation_id": ms.new_operation_id()} if given else {}
        store.tables.alter(PATH, ms.SetProperty("color", "red"), ms.SetProperty("password", "s2"), **options)
        assert ("pending" in actions) is not given
        store.tables.alter(PATH, ms.SetProperty("color", "red"), ms.SetProperty("password", "s2"), **options)
        assert store.reveal(PATH, "password") == "s2"
