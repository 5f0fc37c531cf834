"""The endpoints of a table's partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from metastore.columns.column import Column
from metastore.kinds.partition import Partition
from metastore.secrets.names import hiding_secrets
from metastore.serve.gravitino import reading
from metastore.serve.gravitino.errors import NotSupported
from metastore.serve.gravitino.types import type_json
from metastore.serve.masks import without_masks
from metastore.serve.web import Answer, BadRequest, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["ENDPOINTS"]


def _names(call: Call, kind: str) -> tuple[str, ...]:
    return tuple(call.names[word] for word in ("metalake", "catalog", "schema", kind))


def _shape(one: Partition, columns: Mapping[str, Column]) -> dict[str, Any]:
    values = [
        {"type": "literal", "dataType": type_json(columns[key]) if key in columns else "string", "value": value}
        for key, value in one.values.items()
    ]
    return {
        "type": "identity",
        "name": one.name,
        "fieldNames": [[key] for key in one.values],
        "values": values,
        "properties": hiding_secrets(one.properties),
    }


def _columns(store: Store, call: Call) -> dict[str, Column]:
    return {column.name: column for column in store.tables.load(_names(call, "table")).columns}


def _page(store: Store, call: Call) -> Answer:
    table = _names(call, "table")
    if not reading.flag(call, "details"):
        return Answer({"code": 0, "names": list(store.partitions.names(table))})
    columns = _columns(store, call)
    return Answer({"code": 0, "partitions": [_shape(one, columns) for one in store.partitions.list(table)]})


def _load(store: Store, call: Call) -> Answer:
    partition = store.partitions.load(_names(call, "table"), call.names["partition"])
    return Answer({"code": 0, "partition": _shape(partition, _columns(store, call))})


def _add(store: Store, call: Call) -> Answer:
    """Add one partition. Like Gravitino, refuse several."""
    wanted = reading.mapping(call.body, "the body").get("partitions")
    if not isinstance(wanted, list) or len(wanted) != 1:
        raise BadRequest("partitions must be a list with exactly one partition")
    one = reading.mapping(wanted[0], "a partition")
    if str(one.get("type")).lower() != "identity":
        raise NotSupported("a partition is an identity partition here; ranges and lists of values are not supported")
    values = _values(one)
    properties = without_masks(reading.optional(one, "properties", dict))
    name = reading.optional(one, "name", str) or "/".join(f"{key}={value}" for key, value in values.items())
    made = store.partitions.create(_names(call, "table"), name, values=values, properties=properties)
    return Answer({"code": 0, "partitions": [_shape(made, _columns(store, call))]})


def _values(one: Mapping[str, Any]) -> dict[str, str]:
    names, values = one.get("fieldNames"), one.get("values")
    if not isinstance(names, list) or not isinstance(values, list) or len(names) != len(values) or not names:
        raise BadRequest("a partition needs as many values as fieldNames, and one or more")
    literals = [reading.mapping(value, "a value") for value in values]
    paths = [reading.field_path(name) for name in names]
    return {".".join(path): str(value.get("value")) for path, value in zip(paths, literals, strict=True)}


def _drop(store: Store, call: Call) -> Answer:
    return Answer({"code": 0, "dropped": store.partitions.drop(_names(call, "table"), call.names["partition"])})


_SCHEMA: Final = "/metalakes/{metalake}/catalogs/{catalog}/schemas/{schema}"
_PARTITIONS: Final = f"{_SCHEMA}/tables/{{table}}/partitions"
ENDPOINTS: Final = (
    ("GET", _PARTITIONS, "partition", _page),
    ("POST", _PARTITIONS, "partition", _add),
    ("GET", f"{_PARTITIONS}/{{partition}}", "partition", _load),
    ("DELETE", f"{_PARTITIONS}/{{partition}}", "partition", _drop),
)
