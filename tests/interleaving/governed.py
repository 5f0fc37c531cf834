"""The programs with relations and users: attach, grant and own while ends and rights come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import metastore as ms
from metastore.store import Store
from tests.interleaving.process import Hand, Op
from tests.interleaving.programs import DROP, RESTORE, A, B, Program, S, T

__all__ = ["GOVERNED"]

ANN, BOB = "lake.ann", "lake.bob"


def _lake(store: Store) -> Mapping[str, Any]:
    """Make a tag, two users, and a role by which ann may alter the table."""
    store.tags.create("lake.pii")
    ann, _ = store.users.create(ANN), store.users.create(BOB)
    role = store.roles.create("lake.writer")
    store.roles.assign(role, ann)
    for word, on, kind in (
        ("use_catalog", "lake.cat", "catalog"),
        ("use_schema", S, "schema"),
        ("modify_table", T, "table"),
    ):
        store.roles.grant(role, word, on, kind=kind)
    return {}


def _op(name: str, run: Callable[[Store], object]) -> Op:
    return Op(name, lambda hand: run(hand.store))


def _alter(key: str) -> Op:
    def run(hand: Hand) -> object:
        return hand.store.as_user("ann").tables.alter(T, ms.SetProperty(key, "1"))

    return Op(f"alter {key} as ann", run)


ATTACH = _op("attach", lambda s: bool(s.tags.attach(T, "lake.pii", value="x", kind="table")))
ATTACH_NONE = _op("attach without a value", lambda s: bool(s.tags.attach(T, "lake.pii", kind="table")))
DETACH = _op("detach", lambda s: s.tags.detach(T, "lake.pii", kind="table", value=None))
DETACH_ALL = _op("detach all values", lambda s: s.tags.detach(T, "lake.pii", kind="table"))
TAGS = _op("tags", lambda s: tuple([(tag.name, tag.value) for tag in s.tags.on(T, kind="table")]))
DROP_TAG = _op("drop the tag", lambda s: s.tags.drop("lake.pii"))
RESTORE_TAG = _op("restore the tag", lambda s: bool(s.tags.restore("lake.pii")))
OWN_ANN = _op("let ann own", lambda s: s.owners.set(T, ANN, kind="table"))
OWN_BOB = _op("let bob own", lambda s: s.owners.set(T, BOB, kind="table"))
OWNER = _op("owner", lambda s: getattr(s.owners.of(T, kind="table"), "name", None))
DROP_BOB = _op("drop bob", lambda s: s.users.drop(BOB))
GRANT = _op("grant", lambda s: bool(s.roles.grant("lake.writer", "select_table", T, kind="table")))
DENY = _op("deny", lambda s: bool(s.roles.grant("lake.writer", "modify_table", T, kind="table", effect="deny")))
REVOKE = _op("revoke", lambda s: s.roles.revoke("lake.writer", "modify_table", T, kind="table"))
DROP_ROLE = _op("drop the role", lambda s: s.roles.drop("lake.writer"))
UNASSIGN = _op("unassign", lambda s: s.roles.unassign("lake.writer", ("lake", "ann")))
DISABLE = _op("disable ann", lambda s: bool(s.users.disable(ANN)))
LOAD_ANN = _op("load as ann", lambda s: s.as_user("ann").tables.load(T))

_NAMED: tuple[tuple[str, tuple[tuple[Op, ...], ...]], ...] = (
    ("attach, attach", ((ATTACH,), (ATTACH_NONE,))),
    ("attach twice", ((ATTACH_NONE,), (ATTACH_NONE,))),
    ("attach, detach", ((ATTACH,), (ATTACH_NONE, DETACH))),
    ("attach, detach of all values", ((ATTACH,), (ATTACH_NONE, DETACH_ALL), (TAGS,))),
    ("attach, drop of the tag", ((ATTACH,), (DROP_TAG,))),
    ("attach, drop and restore of the tag", ((ATTACH,), (DROP_TAG, RESTORE_TAG))),
    ("attach, drop and restore of the table", ((ATTACH,), (DROP, RESTORE))),
    ("attach, drop of the tag, look", ((ATTACH,), (DROP_TAG,), (TAGS,))),
    ("owner, owner", ((OWN_ANN,), (OWN_BOB,), (OWNER,))),
    ("owner, drop of the user", ((OWN_BOB,), (DROP_BOB,), (OWNER,))),
    ("grant, drop of the role", ((GRANT,), (DROP_ROLE,))),
    ("grant, deny, revoke", ((GRANT,), (DENY,), (REVOKE,))),
    ("alter as ann, revoke", ((_alter("a"), _alter("b")), (REVOKE,))),
    ("alter as ann, deny", ((_alter("a"), _alter("b")), (DENY,))),
    ("alter as ann, drop of the role", ((_alter("a"), _alter("b")), (DROP_ROLE,))),
    ("alter as ann, unassign", ((_alter("a"), _alter("b")), (UNASSIGN,))),
    ("alter as ann, disable ann", ((_alter("a"), _alter("b")), (DISABLE,))),
    ("alter as ann, another owner", ((_alter("a"),), (OWN_ANN, OWN_BOB))),
    ("load as ann, revoke", ((LOAD_ANN, LOAD_ANN), (REVOKE,))),
    ("alter as ann, alter", ((_alter("a"),), (B,))),
    ("alter as ann, two alters and revoke", ((_alter("c"),), (A, B, REVOKE))),
    ("alter as ann, two alters, revoke", ((_alter("c"),), (A, B), (REVOKE,))),
)
GOVERNED: tuple[Program, ...] = tuple([Program(name, processes, setup=_lake) for name, processes in _NAMED])
