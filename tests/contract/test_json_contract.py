"""``to_dict()`` gives plain JSON values that ``ms.json_schema`` describes, for every kind, change and event."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
import pytest

import metastore as ms
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.origin import ORIGIN, Origin
from metastore.kinds.partition_statistic import PARTITION_STATISTIC, PartitionStatistic
from metastore.kinds.registry import KINDS, OWNED_KINDS
from metastore.kinds.table.kind import TABLE
from metastore.managers.owned import OwnedManager
from tests.contract import boards
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

INTS = (ms.Column("a", "int", nullable=False), ms.Column("s", "struct<x: int, y: list<string>>", comment="nested"))
ADD = ms.Implementation("sql", "a + b", runtime="spark", properties={"k": "v"}, jars=("s3://b/j.jar",))
ROWS = ms.Definition((ms.Column("n", "int", default="1"),), INTS, ())


def _full(ground: Ground) -> Iterator[Entity | Owned]:
    """Make one entity, or owned row, of every kind that this program knows, with all that it can have."""
    store, catalog = ground.store, ground.catalog
    yield store.metalakes.alter("m", ms.SetComment("a lake"), ms.SetProperty("k", "v"))
    yield catalog
    yield ground.one
    table = store.tables.create(
        "m.c.two.t",
        columns=INTS,
        partitioning=["bucket(4, a)"],
        distribution="hash(16, a)",
        sort_orders=["a desc"],
        indexes=[ms.Index("pk", ("a",))],
        location="s3://b/t",
        format="parquet",
    )
    yield table
    yield store.views.create("m.c.two.v", columns=INTS, representations=(ms.SQL("spark", "SELECT 1"),))
    yield store.filesets.create("m.c.two.f", type="external", locations={"default": "s3://b/f"})
    yield store.topics.create("m.c.two.topic")
    store.models.create("m.c.two.model")
    yield store.models.add_version("m.c.two.model", uris={"default": "s3://b/m"}, aliases=["best"])
    yield store.models.load("m.c.two.model")
    yield store.functions.create("m.c.two.scalar", definitions=(ms.Definition(INTS, "int", (ADD,)),))
    yield store.functions.create("m.c.two.rows", type="table", definitions=(ROWS,))
    yield store.partitions.create(table, "a=1", values={"a": "1"}, properties={"k": "v"})
    store.statistics.put_many(table, [store.statistics.row("rows", {"rows": 5, "columns": {"a": {"nulls": 0}}})])
    yield store.statistics.load(table, "rows")
    store.statistics.set(table, {"custom-rows": 5, "custom-map": {"a": [1.5, True]}}, partition="a=1")
    yield OwnedManager[PartitionStatistic](store._session, PARTITION_STATISTIC, TABLE).load(table, "a=1")
    store.sources.put_many(catalog, [store.sources.row("s", location="s3://b/t", table=table.id, counts={"files": 1})])
    yield store.sources.load(catalog, "s")
    store.crawls.put_many(catalog, [store.crawls.row("run", state="done", values={"seconds": 1.5})])
    yield store.crawls.load(catalog, "run")
    origins = OwnedManager[Origin](store._session, ORIGIN, TABLE)
    origins.put_many(table, [origins._document("gravitino", None, {}, {"key": "7", "values": {"version": 3}})])
    yield origins.load(table, "gravitino")
    store.topics.create("m.c.two.going")
    yield store.topics.begin_drop("m.c.two.going")._drop
    yield store.tags.create("m.t", allowed_values=("a",))
    yield store.policies.create("m.p", content={"days": [1, {"a": None}]}, supports=("table",))
    yield store.users.create(("m", "ann@corp.com"), external_id="1")
    yield store.groups.create("m.g")
    yield store.roles.create("m.r")
    yield store.job_templates.create("m.say", type="shell", executable="echo", arguments=["{{word}}"])
    job = store.jobs.create("m.run", template="say", command={"executable": "echo", "arguments": ["hello"]})
    yield store.jobs.alter(job, ms.StartJob("worker", 3, 5))
    panels = [{"name": "p", "query": "SELECT 1"}]
    yield store.manager("board").create("m.c.two.board", owner="ada", panels=panels)
    yield store.manager("note").create("m.c.two.board.note", text="hello")


KNOWN = {"board", "note"}
"""The declared kinds that these tests make; other tests may have declared more."""


def test_every_kind_is_plain_json_that_its_schema_describes(ground: Ground) -> None:
    built_in = {name for name, kind in KINDS.items() if not isinstance(kind, ms.Kind)}
    seen = set()
    for one in _full(ground):
        seen.add(one.kind)
        shown = one.to_dict()
        assert json.loads(json.dumps(shown)) == shown
        schema = ms.json_schema(one.kind)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(shown, schema, jsonschema.Draft202012Validator)
        assert set(shown) == set(schema["properties"]) == set(schema["required"])
    assert seen == built_in | set(OWNED_KINDS) | KNOWN
    assert boards.BOARD.name in seen


def test_msgspec_encodes_the_mappings(ground: Ground) -> None:
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    for one in _full(ground):
        assert msgspec.json.decode(msgspec.json.encode(one.to_dict())) == one.to_dict()


def test_mappings_are_encoded_as_they_are_and_cannot_be_changed(ground: Ground) -> None:
    """A user hands ``table.properties`` to a JSON library without a copy."""
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    mappings = [
        value
        for one in _full(ground)
        for name in ("properties", *type(one).doc_fields)
        if isinstance(value := getattr(one, name), Mapping)
    ]
    assert sum(map(bool, mappings)) > 5
    for value in mappings:
        assert json.loads(json.dumps(value)) == msgspec.json.decode(msgspec.json.encode(value))
        assert pickle.loads(pickle.dumps(value)) == value
        changes: tuple[Callable[[Any], object], ...] = (
            lambda v: v.update(a="b"),
            lambda v: v.setdefault("a", "b"),
            lambda v: v.__setitem__("a", "b"),
            lambda v: v.pop("a", None),
            lambda v: v.clear(),
        )
        for change in changes:
            with pytest.raises(TypeError, match="cannot be changed"):
                change(value)


def _broken(shown: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what is not an entity: each field left out, and each field of another type."""
    for name, value in shown.items():
        yield {key: shown[key] for key in shown if key != name}
        if name not in ("values", "panels"):  # anything goes
            yield shown | {name: {"not": 1} if not isinstance(value, dict) else "text"}


def test_a_schema_refuses_what_does_not_fit(ground: Ground) -> None:
    for one in _full(ground):
        validator = jsonschema.Draft202012Validator(ms.json_schema(one.kind))
        for broken in _broken(one.to_dict()):
            assert not validator.is_valid(broken), broken


def test_what_a_dict_shows_is_what_the_entity_has(ground: Ground) -> None:
    table = ground.store.tables.create("m.c.two.t", columns=INTS, comment="c", properties={"k": "v"})
    shown = table.to_dict()
    assert shown["names"] == ["m", "c", "two", "t"]
    assert shown["path"] == table.path
    assert shown["created_at"] == table.created_at.isoformat()
    assert shown["properties"] == {"k": "v"}
    assert shown["columns"][0] == {
        "id": 1,
        "name": "a",
        "type": "int",
        "nullable": False,
        "default": None,
        "comment": None,
        "auto_increment": False,
    }
    shown["properties"]["k"] = shown["columns"][0]["name"] = "changed"  # the caller's own: the entity is frozen
    assert table.properties == {"k": "v"}
    assert table.to_dict()["columns"][0]["name"] == "a"


def test_history_and_feed_are_plain_json(ground: Ground) -> None:
    list(_full(ground))
    changed = ground.store.tables.alter(ground.table, ms.AddColumn("x", "int"), ms.SetComment(None))
    last = list(ground.store.tables.history(changed))[-1]
    assert json.loads(json.dumps(last.to_dict())) == last.to_dict()
    assert last.to_dict() == {
        "version": 2,
        "action": "alter",
        "principal": ground.store._session.principal,
        "time": last.time.isoformat(),
        "operation_id": str(last.operation_id),
        "path_before": "m.c.one.t",
        "path_after": "m.c.one.t",
        "changes": [ms.AddColumn("x", "int").to_dict(), {"change": "SetComment", "text": None}],
    }
    assert ms.changes_from_list(last.to_dict()["changes"]) == last.changes
    for change in ground.store.changes():
        shown = change.to_dict()
        assert json.loads(json.dumps(shown)) == shown
        assert (shown["position"], shown["entity_id"]) == (change.position, change.entity_id)
        assert shown["document"] == (None if change.entity is None else json.loads(change.entity.record.doc))


def test_an_unknown_kind_has_no_schema() -> None:
    with pytest.raises(ms.InvalidArgument, match="there is no kind 'tabel'; known are"):
        ms.json_schema("tabel")
