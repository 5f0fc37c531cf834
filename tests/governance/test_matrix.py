"""Each privilege against each method that writes: what lands is what the tables of docs/governance.md say.

The methods are found by looking, so that a new one is in it by itself. The feed says what a call wrote; each of its
events needs the privilege that the page names for it, or an owner.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

import metastore as ms
from metastore import Store
from metastore.managers.drops.pending import PendingDrop
from tests.bad_input.surface import Method, good, grow
from tests.governance.oracle.rules import needs, placed, table, words_of
from tests.governance.test_fuzz_of_methods import OF

_ALSO: Final = ("use_catalog", "use_schema", "select_table")
"""What each user has besides, so that it sees what it may not change."""
_SHORT: Final = ("modify_table", "manage_groups", "apply_tag")
_LONG: Final = [pytest.param(word, marks=pytest.mark.long) for word in sorted({*placed()} - {*_SHORT})]


def _writes() -> list[Method]:
    """Return the methods that take the options of a call."""
    return [
        method
        for methods in OF.values()
        for method in methods
        if any(one.name in ("lease", "operation_id") for one in method.parameters)
    ]


WRITES: Final = _writes()


def _call(method: Method, as_user: Store, store: Store) -> object:
    arguments = {one.name: one for one in method.parameters if one.default is inspect.Parameter.empty}
    positional, named = list[object](), dict[str, object]()
    for name, one in arguments.items():
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.append(good(method, name, store))
        elif one.kind is inspect.Parameter.KEYWORD_ONLY:
            named[name] = good(method, name, store)
        elif one.kind is not inspect.Parameter.VAR_KEYWORD:
            positional.append(good(method, name, store))
    try:
        return method.on(as_user)(*positional, **named)
    except ms.MetastoreError:
        return None


def _needed(kind: str, action: str, owner: str | None) -> tuple[str, ...]:
    """Return the privileges of which an event needs one; none: an owner."""
    relations = table("relation")
    if kind in relations:
        return words_of(relations[kind][0])
    if owner is not None:
        return needs(owner, kind)
    return needs(kind, action)


def _without_a_right(store: Store, user: str, word: str, after: Any, there: Sequence[ms.Entity]) -> Iterator[str]:
    """Yield what the user wrote although the page names no right of it; ``there``: what there was before."""
    events = [one for one in store.changes(after=after) if one.principal == user]
    made = {one.path_after for one in events if one.action == "create"}
    kinds = {place: one.kind for one in there for place in (one.path, str(one.id))}
    for one in events:
        path = one.path_after or one.path_before or ""
        if one.kind == "owner" and path in made:
            continue  # of what it has just created
        if one.kind == "drop":  # in steps: its row has the entity's id as a name
            if word not in needs(kinds[path], "drop"):
                yield f"drop {kinds[path]}"
            continue
        owned = one.kind not in _kinds() and one.kind not in table("relation")
        owner = kinds.get(path.rpartition(".")[0]) if owned else None
        if word not in _needed(one.kind, one.action, owner) and "owner" not in _owned_by(store, user, path):
            yield f"{one.action} {one.kind} {path}"


def _kinds() -> set[str]:
    """Return the kinds of entities of the page."""
    return set(table("kind"))


def _owned_by(store: Store, user: str, path: str) -> set[str]:
    found = [one for one in store.find() if path == one.path or path.startswith(f"{one.path}.")]
    owners = [store.owners.of(one) for one in found]
    return {"owner" for one in owners if one is not None and one.name == user}


@pytest.mark.parametrize("word", [*_SHORT, *_LONG])
def test_one_privilege_lets_land_what_the_page_says(word: str) -> None:
    landed = 0
    with ms.open("memory://", deadline=5.0) as store:
        grow(store)
        role = store.roles.create("m.narrow")
        store.roles.assign(role, store.users.create("m.eve"))
        for one in {*_ALSO, word}:
            store.roles.grant(role, one, "m", kind="metalake")
        for method in WRITES:
            grow(store)
            after, there = store.position(), [*store.find()]
            done = _call(method, store.as_user("eve"), store)
            if store.position() != after:
                landed += 1
                assert list(_without_a_right(store, "eve", word, after, there)) == [], str(method)
            if isinstance(done, PendingDrop):
                done.roll_back()
        assert store.verify() == []
    assert landed or word not in _SHORT
