"""The relations, owners, grants and roles in the tree of :mod:`~tests.statements.operations`, and its users.

The tree has besides::

    lake
      pii                 a tag, which is attached to the table u
      ann, bob            users; ann has the role
      team                a group
      writer              a role, which lets ann alter the table t
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metastore as ms
from metastore.store import Store
from tests.interleaving.process import Hand

__all__ = ["GOVERNED_GROUPS", "govern", "governed"]

ANN, BOB, PII, TEAM, WRITER = "lake.ann", "lake.bob", "lake.pii", "lake.team", "lake.writer"
_AT, _OW, _GR, _ME, _EN, _US = (
    "attach or detach a tag",
    "set the owner",
    "grant, deny or revoke",
    "assign a role, add to a group",
    "drop a tag, user or role",
    "alter table as a user",
)
GOVERNED_GROUPS = (_AT, _OW, _GR, _ME, _EN, _US)
"""Their rows and columns in the conflict matrix."""


def govern(store: Store, schema: str) -> None:
    """Make the tag, the users, the group and the role."""
    store.tags.create(PII)
    store.tags.attach(f"{schema}.u", PII, value="x", kind="table")
    ann, _ = store.users.create(ANN), store.users.create(BOB)
    store.groups.create(TEAM)
    role = store.roles.create(WRITER)
    store.roles.assign(role, ann)
    for word, on, kind in (
        ("use_catalog", schema.rpartition(".")[0], "catalog"),
        ("use_schema", schema, "schema"),
        ("modify_table", f"{schema}.t", "table"),
    ):
        store.roles.grant(role, word, on, kind=kind)


def governed(schema: str) -> tuple[tuple[str, str, Callable[[Hand], object]], ...]:
    """Return the name, the group and the call of each operation."""
    t, u = f"{schema}.t", f"{schema}.u"

    def on_the_table(what: str, value: str | None = None) -> Callable[[Hand], object]:
        return lambda h: bool(getattr(h.store.tags, what)(t if what == "attach" else u, PII, value=value, kind="table"))

    def grants(word: str, effect: Any) -> Callable[[Hand], object]:
        return lambda h: bool(h.store.roles.grant(WRITER, word, t, kind="table", effect=effect))

    def as_ann(hand: Hand) -> object:
        return hand.store.as_user("ann").tables.alter(t, ms.SetProperty("ann", "1"))

    return (
        ("attach a tag", _AT, on_the_table("attach")),
        ("attach a tag with a value", _AT, on_the_table("attach", "x")),
        ("detach a tag", _AT, on_the_table("detach", "x")),
        ("set the owner", _OW, lambda h: h.store.owners.set(t, ANN, kind="table")),
        ("set another owner", _OW, lambda h: h.store.owners.set(t, BOB, kind="table")),
        ("grant", _GR, grants("select_table", "allow")),
        ("deny", _GR, grants("modify_table", "deny")),
        ("revoke", _GR, lambda h: h.store.roles.revoke(WRITER, "modify_table", t, kind="table")),
        ("assign a role", _ME, lambda h: h.store.roles.assign(WRITER, BOB)),
        ("unassign a role", _ME, lambda h: h.store.roles.unassign(WRITER, ANN)),
        ("add to a group", _ME, lambda h: h.store.groups.add(TEAM, ANN)),
        ("drop a tag", _EN, lambda h: h.store.tags.drop(PII)),
        ("drop a user", _EN, lambda h: h.store.users.drop(BOB)),
        ("drop a role", _EN, lambda h: h.store.roles.drop(WRITER)),
        ("alter as a user", _US, as_ann),
    )
