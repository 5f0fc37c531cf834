"""``store.find(text=)``: what an entity says of itself, and the tags on it."""

from __future__ import annotations

import pytest

import metastore as ms
from tests.contract.ground import Ground


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
