"""Models: versions by number or alias, aliases that move in one commit (field case 28)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore.clock import SYSTEM
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

M = "m.c.one.model"
URIS = {"default": "s3://b/1"}


@pytest.fixture
def models(ground: Ground) -> Any:
    """Give the manager, with a model of three versions: the second is in use."""
    made = ground.store.models
    made.create(M)
    made.add_version(M, uris=URIS, aliases=["old"], comment="first", properties={"k": "v"})
    made.add_version(M, uris={"a": "s3://b/2a", "b": "s3://b/2b"}, aliases=["prod", "best"])
    made.add_version(M, uris={"default": "s3://b/3"})
    return made


def aliases(models: Any) -> dict[int, tuple[str, ...]]:
    """Return the aliases of each version, which must be those of the model."""
    found = {version.number: version.aliases for version in models.versions(M)}
    assert {alias: n for n, names in found.items() for alias in names} == dict(models.load(M).aliases)
    return found


def test_by_number_or_alias(models: Any) -> None:
    first = models.load_version(M, 1)
    assert (first.number, first.aliases, dict(first.uris)) == (1, ("old",), URIS)
    assert (first.comment, dict(first.properties), first.version) == ("first", {"k": "v"}, 1)
    assert models.load_version(M, "prod") == models.load_version(M, "best") == models.load_version(M, 2)
    assert [v.number for v in models.versions(M)] == [1, 2, 3]
    assert models.load(M).latest_version == 3
    with pytest.raises(ms.EntityNotFound, match="no such model version"):
        models.load_version(M, 4)
    with pytest.raises(ms.EntityNotFound, match="has no alias 'none'"):
        models.load_version(M, "none")


def test_an_alias_moves_in_one_commit(ground: Ground, models: Any) -> None:
    moved = models.set_alias(M, "prod", 3)
    assert (moved.number, moved.aliases) == (3, ("prod",))
    assert aliases(models) == {1: ("old",), 2: ("best",), 3: ("prod",)}
    last = list(ground.store.changes())[-3:]
    assert len({change.operation_id for change in last}) == 1
    assert [(c.kind, c.path_after) for c in last] == [
        ("model_version", f"{M}.2"),
        ("model_version", f"{M}.3"),
        ("model", M),
    ]
    again = models.set_alias(M, "prod", 3)
    assert again == moved
    assert [c.position for c in ground.store.changes()][-1] == last[-1].position


def test_a_repeat_knows_who_made_each_version(ground: Ground, models: Any) -> None:
    """Also when the version that lost the alias is gone: what is known of one row says nothing of another."""
    models.add_version(M, uris=URIS, principal="maker")
    own = SYSTEM.operation_id()
    moved = models.set_alias(M, "prod", 4, operation_id=own)
    assert moved.created_by == "maker"
    models.drop_version(M, 2)
    assert models.set_alias(M, "prod", 4, operation_id=own) == moved
    models.drop_version(M, 4)
    assert models.set_alias(M, "prod", 4, operation_id=own) == moved
    assert moved in ground.store.outcome(own).result


def test_a_new_version_takes_aliases_along(models: Any) -> None:
    new = models.add_version(M, uris=URIS, aliases=("prod", "new", "prod"))
    assert (new.number, new.aliases) == (4, ("new", "prod"))
    assert aliases(models) == {1: ("old",), 2: ("best",), 3: (), 4: ("new", "prod")}


def test_a_dropped_version_takes_its_aliases_along(models: Any) -> None:
    assert models.drop_version(M, "prod")
    assert aliases(models) == {1: ("old",), 3: ()}
    assert models.drop_version(M, 2) is False
    assert models.drop_version(M, "best") is False
    assert models.drop_version(M, 3)
    assert models.add_version(M, uris=URIS).number == 4, "a number is not used again"


def test_an_alias_is_dropped(models: Any) -> None:
    assert models.drop_alias(M, "best")
    assert models.drop_alias(M, "best") is False
    assert aliases(models) == {1: ("old",), 2: ("prod",), 3: ()}


def test_a_version_is_altered(models: Any) -> None:
    found = models.alter_version(
        M, "prod", ms.SetUri("c", "s3://b/2c"), ms.RemoveUri("a"), ms.SetComment("c"), ms.SetProperty("k", "v")
    )
    assert (dict(found.uris), found.comment, dict(found.properties)) == (
        {"b": "s3://b/2b", "c": "s3://b/2c"},
        "c",
        {"k": "v"},
    )
    assert models.load_version(M, 2) == found
    assert models.alter_version(M, 2, ms.SetComment("c")).version == found.version
    with pytest.raises(ms.EntityNotFound):
        models.alter_version(M, 2, ms.RemoveUri("a"))
    with pytest.raises(ms.InvalidArgument, match="only the uri"):
        models.alter_version(M, 1, ms.RemoveUri("default"))
    with pytest.raises(ms.InvalidArgument, match="is not a change"):
        models.alter_version(M, 1, ms.SetLocation("x"))


def test_the_model_is_altered_renamed_and_replaced(ground: Ground, models: Any) -> None:
    model = models.load(M)
    models.alter(M, ms.SetComment("c"))
    models.rename(M, "m2")
    assert models.add_version(model, uris=URIS, aliases=["prod"]).number == 4, "an entity in hand is meant by its id"
    assert models.load_version(model, "prod").number == 4
    models.rename(model, "model")
    assert models.create(M, comment="new", if_exists="replace").latest_version == 4
    assert aliases(models)[4] == ("prod",)
    assert models.drop(M)
    assert models.restore(M).latest_version == 4
    assert models.load_version(M, "prod").number == 4
    assert ground.store.verify() == []


def test_in_a_transaction(ground: Ground, models: Any) -> None:
    with ground.store.transaction() as tx:
        new = tx.models.add_version(M, uris=URIS, aliases=["prod"])
        assert tx.models.load_version(M, "prod").number == new.number == 4
        tx.models.set_alias(M, "prod", 1)
        assert tx.models.load_version(M, 1).aliases == ("old", "prod")
        tx.models.drop_version(M, 4)
        assert [v.number for v in tx.models.versions(M)] == [1, 2, 3]
    assert aliases(models) == {1: ("old", "prod"), 2: ("best",), 3: ()}
    with pytest.raises(ms.VersionConflict), ground.store.transaction() as tx:  # noqa: PT012
        tx.models.set_alias(M, "prod", 2)
        models.set_alias(M, "prod", 3)
    assert aliases(models) == {1: ("old",), 2: ("best",), 3: ("prod",)}


def test_a_repeat_returns_the_first_result(models: Any) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda op: models.add_version(M, uris=URIS, aliases=["prod"], operation_id=op),
        lambda op: models.set_alias(M, "prod", 1, operation_id=op),
        lambda op: models.set_alias(M, "prod", 1, operation_id=op),
        lambda op: models.alter_version(M, 2, ms.SetComment("x"), operation_id=op),
        lambda op: models.drop_alias(M, "old", operation_id=op),
        lambda op: models.drop_version(M, 3, operation_id=op),
        lambda op: models.drop_version(M, 3, operation_id=op),
    ]
    for call in calls:
        operation_id = SYSTEM.operation_id()
        first = call(operation_id)
        before = models.load(M), list(models.versions(M))
        again = call(operation_id)
        assert first == again or (first.number, first.doc) == (again.number, again.doc)
        assert (models.load(M), list(models.versions(M))) == before


@pytest.mark.each_run_on("memory")
@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.add_version(M, uris={}),
        lambda m: m.add_version(M, uris="s3://b"),
        lambda m: m.add_version(M, uris={"a": " "}),
        lambda m: m.add_version(M, uris=URIS, aliases="prod"),
        lambda m: m.add_version(M, uris=URIS, aliases=["7"]),
        lambda m: m.add_version(M, uris=URIS, properties={"k": 1}),
        lambda m: m.set_alias(M, "x", 0),
        lambda m: m.set_alias(M, "x", True),
        lambda m: m.set_alias(M, "x\t", 1),
        lambda m: m.load_version(M, 0),
        lambda m: m.load_version(M, 1.0),
        lambda m: m.create_many("m.c.one", [{"name": "x", "latest_version": 7}]),
        lambda m: m.alter(M, ms.SetUri("a", "b")),
    ],
)
def test_bad_input(models: Any, call: Any) -> None:
    before = models.load(M), list(models.versions(M))
    with pytest.raises(ms.InvalidArgument):
        call(models)
    assert (models.load(M), list(models.versions(M))) == before


def test_what_is_not_there(ground: Ground, models: Any) -> None:
    with pytest.raises(ms.EntityNotFound):
        models.set_alias(M, "x", 9)
    with pytest.raises(ms.EntityNotFound):
        models.add_version("m.c.one.none", uris=URIS)
    assert models.drop_version("m.c.one.none", 1) is False
    assert models.drop_alias("m.c.one.none", "x") is False
    ground.store.catalogs.disable("m.c")
    with pytest.raises(ms.NotInUse):
        models.add_version(M, uris=URIS)


WRITES: dict[str, Callable[[Any, UUID], Any]] = {
    "add_version": lambda m, op: m.add_version(M, uris=URIS, aliases=["prod"], operation_id=op),
    "set_alias": lambda m, op: m.set_alias(M, "prod", 1, operation_id=op),
    "alter_version": lambda m, op: m.alter_version(M, "prod", ms.SetComment("x"), operation_id=op),
    "drop_alias": lambda m, op: m.drop_alias(M, "prod", operation_id=op),
    "drop_version": lambda m, op: m.drop_version(M, "prod", operation_id=op),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("number", [None, 1, 2, 4])
def test_a_repeat_after_gc_has_deleted_a_part(
    ground: Ground, models: Any, write: Callable[[Any, UUID], Any], number: int | None
) -> None:
    """The rows of an operation are collected one by one: a repeat gives the first result, or says that it is lost."""
    own = SYSTEM.operation_id()
    first = write(models, own)
    for n in range(3):  # newer versions of one of the rows, so that the first is collected
        if number is None:
            models.alter(M, ms.SetComment(f"{n}"))
        elif number in [version.number for version in models.versions(M)]:
            models.alter_version(M, number, ms.SetComment(f"{n}"))
    ground.store.gc(retention=timedelta(0), keep_versions=1)
    before = models.load(M), list(models.versions(M))
    with suppress(ms.OutcomeUnknown, ms.InvalidArgument):
        again = write(models, own)
        assert again == first or (again.number, again.doc) == (first.number, first.doc)
    assert (models.load(M), list(models.versions(M))) == before, "nothing is applied again"
