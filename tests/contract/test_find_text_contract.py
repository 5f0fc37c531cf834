"""``store.find(text=)``: what an entity says of itself, its owner and the tags on it; ``find_page``: step by step."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import metastore as ms
from metastore.managers.pages.page import TokenScope, write_token
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


def test_text(ground: Ground) -> None:
    store = ground.store
    one = store.tables.create("m.c.one.emails", columns=[ms.Column("a", "struct<Straße: string>")])
    two = store.tables.create("m.c.one.two", comment="All about E-Mails")
    three = store.tables.create("m.c.one.three", columns=[ms.Column("Mail", "string", comment="of the Person")])
    view = store.views.create("m.c.one.v", representations=[ms.SQL("spark", "select 1")])
    store.tags.create("m.mailing")
    store.tags.attach(view, "m.mailing")
    store.tags.create("m.pii")
    store.tags.attach(three, "m.pii", column="Mail")

    def found(text: str | None, **more: object) -> set[str]:
        return {entity.name for entity in store.find("m.c.one", text=text, **more)}  # type: ignore[arg-type]

    assert found("MAIL") == {one.name, two.name, three.name, view.name}
    assert found("mail", kind="table", name="t*") == {two.name, three.name}
    assert found("STRASSE") == {one.name}
    assert found("person") == found("pii") == {three.name}
    assert found("select") == set()
    assert found("") == found(None) > {one.name}
    store.tags.detach(view, "m.mailing")
    assert view.name not in found("mail")
    assert [entity.path for entity in store.find(text="mailing")] == ["m.mailing"]
    store.users.create("m.mia")
    store.owners.set(two, "m.mia")
    hidden = {"db-password": "tiger", "ref": ms.secret("env:TIGER")}
    store.tables.alter(three, *[ms.SetProperty(key, value) for key, value in {"Team": "Blue cats", **hidden}.items()])
    assert found("mia") == {two.name}
    assert found("team") == found("blue") == found("password") == {three.name}
    assert found("tiger") == set()
    with pytest.raises(ms.InvalidArgument):
        list(store.find(text=5))  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidArgument, match="1000"):
        list(store.find(text="x" * 1001))


def test_a_user_finds_nothing_by_what_it_does_not_see(ground: Ground) -> None:
    store = ground.store
    table = store.tables.create("m.c.one.plain")
    store.tags.create("m.secret_of_the_board")
    store.tags.attach(table, "m.secret_of_the_board")
    store.users.create("m.ann")
    store.roles.create("m.reader")
    for privilege in ("use_catalog", "use_schema", "select_table"):
        store.roles.grant("m.reader", privilege, "m.c", kind="catalog")
    store.roles.assign("m.reader", "m.ann")
    ann = store.as_user("ann")
    assert [entity.name for entity in ann.find("m.c.one", text="plain")] == ["plain"]
    assert list(ann.find("m.c.one", text="board")) == []
    assert [entity.name for entity in store.find("m.c.one", text="board")] == ["plain"]


def in_steps(store: ms.Store, size: int, **what: Any) -> tuple[list[str], str]:
    """Return what steps find that have time for one statement each, and all that their tokens hold."""
    found, told, token = list[str](), "", None
    while True:
        page = store.find_page(**what, size=size, seconds=1e-9, token=token)
        assert len(page.items) <= size
        found, token = [*found, *[one.path for one in page.items]], page.next_token
        told += f"{page.looked} {page.at} "
        if token is None:
            return sorted(found), told
        told += base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_")[9:].decode()


def test_steps_find_what_a_whole_search_finds(ground: Ground) -> None:
    store = ground.store
    store.catalogs.create("m.folds", type="relational", fold_case=True)
    for where in ("m.c.one", "m.c.two", "m.folds.s"):
        for n in range(3):
            store.tables.create(f"{where}.Orders{n}", parents=True, comment="Orders of a day", properties={"n": str(n)})
    store.views.create("m.c.two.v", representations=[ms.SQL("spark", "select 1")])
    searches: list[dict[str, Any]] = [
        {},
        {"name": "Orders*"},
        {"name": "orders*"},
        {"name": "*rders?"},
        {"text": "DAY"},
        {"properties": {"n": "1"}},
        {"under": "m.c", "kind": "table"},
        {"under": "m.folds", "name": "orders1"},
        {"under": "m", "recursive": False},
        {"under": "m.c.two", "text": "v"},
    ]
    for what in searches:
        whole = sorted(one.path for one in store.find(**what))
        assert in_steps(store, 1, **what)[0] == in_steps(store, 1000, **what)[0] == whole, what


def test_a_step_goes_on_beside_changes_and_takes_no_wrong_token(ground: Ground) -> None:
    store = ground.store
    for where in ("one", "two", "zoo"):
        for n in range(2):
            store.tables.create(f"m.c.{where}.t{n}", parents=True)
    first = store.find_page("m.c", text="t", kind="table", size=1)
    assert [one.path for one in first.items] == ["m.c.one.t"]
    store.schemas.drop("m.c.one", cascade=True)
    store.schemas.rename("m.c.two", "two again")
    rest = store.find_page("m.c", text="t", kind="table", token=first.next_token)
    assert [one.path for one in rest.items] == ["m.c.two again.t0", "m.c.two again.t1", "m.c.zoo.t0", "m.c.zoo.t1"]
    assert rest.next_token is None
    token = first.next_token or ""
    for wrong in ({"text": "x"}, {"text": "t", "kind": "view"}, {"under": "m", "text": "t", "kind": "table"}):
        with pytest.raises(ms.InvalidArgument, match="token"):
            store.find_page(**{"under": "m.c", "token": token, **wrong})  # type: ignore[arg-type]
    _, kind, digest, parent, _ = json.loads(base64.b64decode(token + "==", altchars=b"-_")[9:])
    epoch = ground.backend.feed_start()[0]
    for place in (["tree", None], ["names"], ["tree", 5, []], ["tree", None, [[1, "none", "", 0]]], ["tree", None, 7]):
        forged = write_token(TokenScope("find", kind, digest), epoch, parent, [1, *place])
        with pytest.raises(ms.InvalidArgument, match="token"):
            store.find_page("m.c", text="t", kind="table", token=forged)


def test_steps_of_a_user_tell_nothing_hidden(ground: Ground) -> None:
    store = ground.store
    for schema in ("alpha_hidden", "one", "zeta_hidden"):
        for n in range(3):
            store.tables.create(f"m.c.{schema}.{'t' if schema == 'one' else 'tx_hidden'}{n}", parents=True)
    store.users.create("m.ann")
    store.roles.create("m.reader")
    store.roles.grant("m.reader", "use_catalog", "m.c", kind="catalog")
    for privilege in ("use_schema", "select_table"):
        store.roles.grant("m.reader", privilege, "m.c.one", kind="schema")
    store.roles.assign("m.reader", "m.ann")
    ann = store.as_user("ann")
    for what in ({"name": "t*"}, {"text": "t"}, {"name": "*"}, {"name": "*t*", "kind": "table"}, {"name": "tx*"}):
        found, told = in_steps(ann, 2, **what)
        assert found == sorted(one.path for one in ann.find(**what)), what  # type: ignore[arg-type]
        assert "hidden" not in told, what
