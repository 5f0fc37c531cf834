"""Tags, policies, users, groups and roles are entities of a metalake, and do what every kind does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import metastore as ms
from metastore import Store

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@dataclass(frozen=True)
class Sample:
    """A kind: a name for it, fields of ``create``, a change, and what it leads to."""

    kind: str
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    change: ms.EntityChange = field(default_factory=lambda: ms.SetComment("changed"))
    after: dict[str, Any] = field(default_factory=dict)


SAMPLES = [
    Sample("tag", "pii", {"allowed_values": ("b", "a")}, ms.SetAllowedValues(("c",)), {"allowed_values": ("c",)}),
    Sample(
        "policy",
        "keep",
        {"type": "system.iceberg_compaction", "content": {"days": [1, {"a": None}]}, "supports": ("table", "column")},
        ms.SetContent({"days": 2}),
        {"content": {"days": 2}},
    ),
    Sample("user", "ann.b@corp.com", {"external_id": "4711"}, ms.SetExternalId(None), {"external_id": None}),
    Sample("group", "a `group`", {"external_id": "x"}, ms.SetExternalId("y"), {"external_id": "y"}),
    Sample("role", "reader"),
]


@pytest.fixture(params=SAMPLES, ids=lambda sample: sample.kind)
def sample(request: pytest.FixtureRequest) -> Sample:
    """Give each kind in turn."""
    found: Sample = request.param
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Give a store with a metalake."""
    with ms.open(url, principal="ann") as store:
        store.metalakes.create("lake")
        yield store
        assert store.verify() == []


def shown(entity: Any) -> dict[str, Any]:
    """Return the fields of its kind."""
    return {name: getattr(entity, name) for name in type(entity).doc_fields}


def test_the_whole_life_of_each_kind(store: Store, sample: Sample) -> None:
    manager = store.manager(sample.kind)
    path = ("lake", sample.name)
    made: Any = manager.create(path, comment="c", **sample.fields)
    assert (made.kind, made.names, made.comment) == (sample.kind, path, "c")
    assert {name: shown(made)[name] for name in sample.fields} == sample.fields
    assert manager.load(made.path) == made  # as it writes its own path, with quotes where they are needed
    altered: Any = manager.alter(path, sample.change)
    assert altered.version == 2
    assert {name: shown(altered)[name] for name in sample.after} == sample.after
    renamed = manager.rename(made, "new")
    assert renamed.path == "lake.new"
    assert manager.drop("lake.new")
    assert not manager.exists("lake.new")
    assert manager.restore("lake.new").id == made.id
    assert [v.action for v in manager.history(made)] == ["create", "alter", "rename", "drop", "restore"]
    assert [e.id for e in store.find("lake", kind=sample.kind)] == [made.id]
    assert list(manager.names("lake")) == ["new"]


def test_each_kind_has_its_names_for_itself(store: Store, sample: Sample) -> None:
    store.catalogs.create("lake.same", type="relational")
    for kind in ("tag", "policy", "user", "group", "role"):
        store.manager(kind).create("lake.same")
    with pytest.raises(ms.EntityAlreadyExists):
        store.manager(sample.kind).create("lake.same")
    with pytest.raises(ms.NotEmpty):
        store.metalakes.drop("lake")
    assert store.metalakes.drop("lake", cascade=True)


def test_they_stay_in_their_metalake(store: Store, sample: Sample) -> None:
    store.metalakes.create("other")
    manager = store.manager(sample.kind)
    made = manager.create("lake.x", **sample.fields)
    with pytest.raises(ms.InvalidArgument, match="stays in its metalake"):
        manager.rename(made, "other.x")
    manager.drop(made)
    with pytest.raises(ms.InvalidArgument, match="stays in its metalake"):
        manager.restore("lake.x", to="other.x")
    with pytest.raises(ms.InvalidArgument):
        manager.create("lake.c.x")


def test_a_transaction_and_many_at_once(store: Store, sample: Sample) -> None:
    manager = store.manager(sample.kind)
    assert manager.create_many("lake", [{"name": f"n{i}", **sample.fields} for i in range(3)]) == 3
    with store.transaction() as tx:
        tx.manager(sample.kind).create("lake.mine", **sample.fields)
        tx.manager(sample.kind).alter("lake.n0", sample.change)
        assert tx.manager(sample.kind).exists("lake.mine")
    assert list(manager.names("lake")) == ["mine", "n0", "n1", "n2"]
    assert manager.create("lake.mine", if_exists="replace", comment="new", **sample.fields).version == 2


def test_they_are_exported_and_imported(store: Store, sample: Sample) -> None:
    made: Any = store.manager(sample.kind).create(("lake", sample.name), **sample.fields)
    file = io.BytesIO()
    store.export_to(file, "lake")
    file.seek(0)
    with ms.open("memory://") as other:
        other.import_from(file)
        copy: Any = other.manager(sample.kind).load(("lake", sample.name))
    assert shown(copy) == shown(made)


@pytest.mark.parametrize("kind", ["user", "group"])
def test_a_user_is_disabled_and_enabled(store: Store, kind: str) -> None:
    manager: Any = store.manager(kind)
    made = manager.create("lake.x")
    assert made.enabled
    disabled = manager.disable(made)
    assert (disabled.enabled, disabled.scope_version) == (False, 2)
    assert not manager.load("lake.x").enabled
    assert manager.enable("lake.x").enabled
    assert [v.action for v in manager.history(made)] == ["create", "disable", "enable"]


def test_a_policy_is_disabled_and_enabled(store: Store) -> None:
    made = store.policies.create("lake.p", enabled=False)
    assert not made.enabled
    assert store.policies.enable(made).enabled
    assert not store.policies.disable("lake.p").enabled
    assert store.policies.disable("lake.p").version == 3  # it was disabled: nothing is written


@pytest.mark.each_run_on("memory")
@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.tags.create("lake.t", allowed_values="abc"),
        lambda s: s.tags.create("lake.t", allowed_values=("a", "a")),
        lambda s: s.tags.create("lake.t", allowed_values=("",)),
        lambda s: s.tags.create("lake.t", allowed_values=("é" * 513,)),
        lambda s: s.policies.create("lake.p", type="other"),
        lambda s: s.policies.create("lake.p", content=[1]),
        lambda s: s.policies.create("lake.p", enabled=1),
        lambda s: s.policies.create("lake.p", supports=("Table",)),
        lambda s: s.users.create("lake.u", external_id=""),
        lambda s: s.roles.create("lake.r", external_id="x"),
    ],
)
def test_wrong_fields_are_refused(store: Store, call: Any) -> None:
    with pytest.raises((ms.InvalidArgument, TypeError)):
        call(store)
    assert list(store.find("lake")) == []
