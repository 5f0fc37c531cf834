"""The rows of an entity: for each kind its own row, the rows of its version, and the rows that it owns.

It is the reverse of :mod:`metastore.imports.gravitino.things`. A value without a column there is left out here; the
comparison at the end finds that, and the report names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from metastore.cached import cached_property
from metastore.exports.gravitino.addresses import Addresses
from metastore.exports.gravitino.standing import Standing, audit_json, standing
from metastore.imports.gravitino.groups import Group
from metastore.imports.gravitino.identity import made_id
from metastore.imports.gravitino.values import IDENTIFIER
from metastore.kinds.registry import KINDS
from metastore.kinds.secret import is_sealed
from metastore.serve.gravitino.expressions import (
    default_json,
    distribution_json,
    index_json,
    order_json,
    partitioning_json,
)
from metastore.serve.gravitino.functions import definition_json
from metastore.serve.gravitino.jobs import content_json
from metastore.serve.gravitino.shapes import IN_USE, column, representation
from metastore.serve.gravitino.types import type_json
from metastore.transfer.lines import OwnedLine

__all__ = ["NoPlace", "Said", "TablesRow", "owned_rows", "rows_of"]

TablesRow = tuple[str, dict[str, Any]]
"""The name of a table, and one of its rows."""
_CREATED: Final = 1
"""The column_op_type of a column that came with a version."""
_PROVIDERS: Final = {"fileset": "fileset", "model": "model"}
"""The providers that Gravitino gives to catalogs that it manages itself."""
_OBJECTS: Final = ("catalog", "schema", "fileset", "table", "topic", "column", "role", "model", "tag", "policy")
_RUNTIMES: Final = (None, "spark", "trino")
_IDENTIFIED: Final = ("catalog", "schema", "table", "fileset", "topic", "model")
"""The kinds whose id Gravitino keeps among their properties."""
_CUSTOM: Final = ("customRules", "properties")


class NoPlace(Exception):
    """Gravitino cannot hold an entity; the text says why."""


class Said:
    """An entity with everything that Gravitino's rows need."""

    def __init__(self, group: Group, addresses: Addresses, now: int) -> None:
        address = addresses.get(group.entity.kind, group.entity.names)
        assert address is not None
        self.group, self.address, self.addresses, self.now = group, address, addresses, now
        self.name, self.doc = group.entity.names[-1], group.entity.doc
        self.standing: Standing = standing(group)
        self.audit = audit_json(self.standing.audit)

    def field(self, name: str) -> Any:
        """Return a field of the document as an entity shows it."""
        return KINDS[self.address.shape.kind].entity.doc_fields[name].decode(self.doc[name])

    def properties(self, **more: str) -> str:
        """Return the properties as JSON."""
        pairs = _readable(self.doc)
        if self.address.shape.kind in _IDENTIFIED:
            pairs[IDENTIFIER] = f"gravitino.v1.uid{self.address.id}"
        return json.dumps({**pairs, **more})

    @cached_property
    def version(self) -> int:
        """The number of the entity's version."""
        return self.standing.version

    @cached_property
    def column_ids(self) -> Mapping[int, int]:
        """Gravitino's ids of a table's columns, by the store's ids."""
        origin = self.group.origin
        # use the origin only if it names this entity, not the one that it was copied from
        same = origin is not None and int(origin.doc["key"]) == self.address.id
        there = origin.doc["values"].get("columns", {}) if origin is not None and same else {}
        known = {ours: int(theirs) for theirs, ours in there.items()}
        ids = [one["id"] for one in self.doc["columns"]]
        return {one: known.get(one) or made_id("column", self.address.id, one) for one in ids}

    def own(self, **values: Any) -> dict[str, Any]:
        """Return the entity's own row."""
        standing = {"audit_info": self.audit, "current_version": self.version, "last_version": self.version}
        named = {f"{self.address.shape.prefix}_name": self.name}
        return {**self.address.ids, **named, **standing, "updated_at": self.now, "deleted_at": 0, **values}

    def beside(self, **values: Any) -> dict[str, Any]:
        """Return a row that belongs to the entity's version."""
        return {**self.address.ids, "version": self.version, "audit_info": self.audit, "deleted_at": 0, **values}


def _readable(doc: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a document without the encrypted ones, for which Gravitino has no key."""
    return {key: value for key, value in doc["properties"].items() if not is_sealed(value)}


Make = Callable[[Said], Iterator[TablesRow]]


def rows_of(said: Said) -> list[TablesRow]:
    """Return the rows of an entity, its main row first. Raises NoPlace."""
    return list(_MAKERS[said.address.shape.kind](said))


def _simple(comment: str, **more: Callable[[Said], Any]) -> Make:
    """Return the maker of a kind that has one row, with a comment and properties."""

    def make(said: Said) -> Iterator[TablesRow]:
        values = {word: of(said) for word, of in more.items()}
        yield said.address.shape.table, said.own(**{comment: said.doc["comment"] or ""}, **values)

    return make


def _in_use(said: Said) -> str:
    return said.properties(**{IN_USE: str(said.group.entity.in_use).lower()})


def _provider(said: Said) -> str:
    kind: str = said.doc["type"]
    provider: str | None = said.doc["provider"] or _PROVIDERS.get(kind)
    if provider is None:
        raise NoPlace(f"it has no provider, and a {kind} catalog has one there; set it here, and export again")
    return provider


def _table(said: Said) -> Iterator[TablesRow]:
    yield "table_meta", said.own()
    more = {} if said.doc["location"] is None else {"location": said.doc["location"]}
    yield (
        "table_version_info",
        said.beside(
            format=said.doc["format"],
            properties=said.properties(**more),
            partitioning=_jsons(partitioning_json, said.doc["partitioning"]),
            distribution=json.dumps(distribution_json(said.doc["distribution"])),
            sort_orders=_jsons(order_json, said.doc["sort_orders"]),
            indexes=_jsons(index_json, said.field("indexes")),
            comment=said.doc["comment"],
        ),
    )
    for position, one in enumerate(said.field("columns")):
        default = default_json(one.default)
        yield (
            "table_column_version_info",
            said.beside(
                table_version=said.version,
                column_id=said.column_ids[one.id],
                column_name=one.name,
                column_position=position,
                column_type=json.dumps(type_json(one)),
                column_comment=one.comment or "",
                column_nullable=0 if one.nullable else 1,
                column_auto_increment=0 if one.auto_increment else 1,
                column_default_value=None if default is None else json.dumps(default),
                column_op_type=_CREATED,
            ),
        )


def _jsons(one: Callable[[Any], Any], values: Iterable[Any]) -> str:
    return json.dumps([one(value) for value in values])


def _view(said: Said) -> Iterator[TablesRow]:
    yield "view_meta", said.own()
    yield (
        "view_version_info",
        said.beside(
            view_comment=said.doc["comment"],
            columns=_jsons(column, said.field("columns")),
            properties=said.properties(),
            default_catalog=said.doc["default_catalog"],
            default_schema=said.doc["default_schema"],
            representations=_jsons(representation, said.field("representations")),
        ),
    )


def _fileset(said: Said) -> Iterator[TablesRow]:
    if not said.doc["locations"]:
        raise NoPlace("it has no location, and a fileset has one there")
    yield "fileset_meta", said.own(type=said.doc["type"].upper())
    for name, where in said.doc["locations"].items():
        said_of = {"fileset_comment": said.doc["comment"] or "", "properties": said.properties()}
        yield "fileset_version_info", said.beside(**said_of, storage_location_name=name, storage_location=where)


def _function(said: Said) -> Iterator[TablesRow]:
    definitions = said.field("definitions")
    other = {one.runtime for each in definitions for one in each.implementations} - set(_RUNTIMES)
    if other:
        raise NoPlace(
            f"it has an implementation for {', '.join(sorted(map(str, other)))}; Gravitino has no such runtime"
        )
    numbers = {"function_current_version": said.version, "function_latest_version": said.version}
    kind = {"function_type": said.doc["type"].upper(), "deterministic": int(said.doc["deterministic"])}
    yield "function_meta", said.own(**kind, **numbers)
    texts = _jsons(definition_json, definitions)
    yield "function_version_info", said.beside(function_comment=said.doc["comment"], definitions=texts)


def _policy(said: Said) -> Iterator[TablesRow]:
    kind, content = said.doc["type"], dict(said.doc["content"])
    if kind == "custom":  # Gravitino reads these three fields, and rejects any other
        rules = {key: value for key, value in content.items() if key not in _CUSTOM}
        given = {key: content[key] for key in _CUSTOM if key in content}
        kinds = [one for one in said.doc["supports"] or _OBJECTS if one in _OBJECTS]
        content = {**given, "supportedObjectTypes": kinds}
        if rules:
            content["customRules"] = {**given.get("customRules", {}), **rules}
    elif kind != "system_iceberg_compaction":
        raise NoPlace(f"there is no type {kind!r} of policies there")
    yield "policy_meta", said.own(policy_type=kind)
    words = {"policy_comment": said.doc["comment"], "enabled": said.doc["enabled"]}
    yield "policy_version_info", said.beside(**words, content=json.dumps(content))


def _principal(said: Said) -> Iterator[TablesRow]:
    given = {"external_id": said.doc["external_id"], "enabled": said.group.entity.in_use}
    yield said.address.shape.table, said.own(**given)


def _template(said: Said) -> Iterator[TablesRow]:
    content = json.dumps(content_json(said.doc, said.doc["type"]))
    yield "job_template_meta", said.own(job_template_comment=said.doc["comment"], job_template_content=content)


def _job(said: Said) -> Iterator[TablesRow]:
    template = said.addresses.get("job_template", (*said.group.entity.names[:-1], said.doc["template"]))
    if template is None:
        raise NoPlace(f"its template {said.doc['template']!r} is gone")
    row = said.own(
        job_template_id=template.id,
        job_execution_id=said.doc["execution_id"] or said.name,
        job_run_status=said.doc["status"].upper(),
        job_started_at=(said.doc["started_at"] or 0) // 1000,
        job_finished_at=(said.doc["finished_at"] or 0) // 1000,
    )
    del row["job_run_name"]
    yield "job_run_meta", row


def _model(said: Said) -> Iterator[TablesRow]:
    latest = said.doc["latest_version"] or 0
    texts = {"model_comment": said.doc["comment"], "model_properties": said.properties()}
    yield "model_meta", said.own(**texts, model_latest_version=latest)


_MAKERS: Final[Mapping[str, Make]] = {
    "metalake": _simple("metalake_comment", properties=_in_use, schema_version=lambda _: '"v_0_1"'),
    "catalog": _simple(
        "catalog_comment", properties=_in_use, type=lambda said: said.doc["type"].upper(), provider=_provider
    ),
    "schema": _simple("schema_comment", properties=Said.properties),
    "topic": _simple("comment", properties=Said.properties),
    "tag": _simple(
        "tag_comment",
        properties=Said.properties,
        allowed_values=lambda said: json.dumps(said.doc["allowed_values"]) if said.doc["allowed_values"] else None,
    ),
    "role": _simple("role_comment", properties=Said.properties),
    "user": _principal,
    "group": _principal,
    "policy": _policy,
    "job_template": _template,
    "job": _job,
    "table": _table,
    "view": _view,
    "fileset": _fileset,
    "function": _function,
    "model": _model,
}


# --- the rows that an entity owns


def owned_rows(said: Said) -> Iterator[TablesRow]:
    """Yield the rows of versions and statistics. Gravitino's tables hold only the statistics of a partition."""
    for line in said.group.owned:
        if line.kind == "model_version" and said.address.shape.kind == "model":
            yield from _model_version(said, line)
        elif line.kind == "statistic" and said.address.shape.kind == "table":
            yield _statistic(said, line)
        elif line.kind == "partition_statistic" and said.address.shape.kind == "table":
            yield from _of_partition(said, line)


def _model_version(said: Said, line: OwnedLine) -> Iterator[TablesRow]:
    version = int(line.name) - 1
    row = {
        "version": version,
        "model_version_comment": line.doc["comment"],
        "model_version_properties": json.dumps(_readable(line.doc)),
        "audit_info": audit_json(line.audit),
    }
    for name, uri in line.doc["uris"].items():
        yield "model_version_info", said.beside(**row, model_version_uri_name=name, model_version_uri=uri)
    for alias in line.doc["aliases"]:
        own = {"model_id": said.address.id, "deleted_at": 0}
        yield "model_version_alias_rel", {**own, "model_version": version, "model_version_alias": alias}


def _statistic(said: Said, line: OwnedLine) -> TablesRow:
    return "statistic_meta", {
        "statistic_id": made_id("statistic", said.address.id, line.name),
        "statistic_name": line.name,
        "metalake_id": said.address.above[0],
        "statistic_value": json.dumps(line.doc["values"].get("value")),
        "metadata_object_id": said.address.id,
        "metadata_object_type": "TABLE",
        "audit_info": audit_json(line.audit),
        "current_version": 1,
        "last_version": 1,
        "deleted_at": 0,
    }


def _of_partition(said: Said, line: OwnedLine) -> Iterator[TablesRow]:
    for name, value in line.doc["values"].items():
        yield (
            "partition_statistic_meta",
            {
                "table_id": said.address.id,
                "partition_name": line.name,
                "statistic_name": name,
                "statistic_value": json.dumps(value),
                "audit_info": audit_json(line.audit),
                "created_at": line.audit["created_at"] // 1000,
                "updated_at": line.audit["modified_at"] // 1000,
            },
        )
