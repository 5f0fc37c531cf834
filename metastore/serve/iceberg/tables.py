"""Answer Iceberg's requests about tables."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement
from pyiceberg.typedef import Identifier

from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.files import make_folders, never_changes
from metastore.pyiceberg.naming import no_table
from metastore.pyiceberg.statistics import AnyUpdate
from metastore.serve.iceberg import reading
from metastore.serve.iceberg.credentials import Vended
from metastore.serve.web import Answer, BadRequest, Call

__all__ = [
    "Loaded",
    "commit",
    "commit_several",
    "create",
    "credentials",
    "drop",
    "exists",
    "load",
    "metrics",
    "named",
    "page",
    "place",
    "register",
    "rename",
]


class _Body(BaseModel):
    model_config = ConfigDict(populate_by_name=False)


class _Create(_Body):
    name: str = Field(min_length=1)
    table_schema: Schema = Field(alias="schema")
    location: str | None = None
    partition_spec: PartitionSpec | None = Field(default=None, alias="partition-spec")
    write_order: SortOrder | None = Field(default=None, alias="write-order")
    stage_create: bool | None = Field(default=False, alias="stage-create")
    properties: dict[str, str] | None = None


class _Commit(_Body):
    identifier: reading.Name | None = None
    requirements: tuple[TableRequirement, ...]
    updates: tuple[AnyUpdate, ...]


class _Transaction(_Body):
    table_changes: list[_Commit] = Field(alias="table-changes", min_length=1)


@dataclass(frozen=True)
class Loaded:
    """The answer to a load, without ``config``, its last field, which holds the client's credentials.

    ``text``: its JSON without the closing brace. ``place``: the table's location. ``tag``: its entity tag, if it has no
    credentials. ``staged``: the table does not exist yet.
    """

    text: bytes
    place: str
    tag: str | None = None
    staged: bool = False

    def answer(self, vended: Vended | None, has: str = "") -> Answer:
        """Return the whole answer. An answer with credentials must not be cached. ``has``: the client's tags.

        If the credentials have changed, the answer is sent again, because a client must replace keys that end.
        """
        end, tag, headers = b',"config":{}}', self.tag, dict[str, str]()
        if vended is not None:
            config = dict(vended.config)
            given = json.dumps({"config": config, "storage-credentials": [{"prefix": vended.prefix, "config": config}]})
            end, headers["Cache-Control"] = b"," + given[1:].encode(), "no-store"
            tag = None if tag is None else _tag_of(tag, given)
        if tag is not None:
            headers["ETag"] = tag
            if _has(has, tag):
                return Answer(status=304, headers=headers)
        return Answer((self.text, end), headers=headers)


def _size(one: Loaded) -> int:
    return len(one.text)


_ANSWERS: LRUCache[tuple[str, str], Loaded] = LRUCache(64 << 20, getsizeof=_size)
"""The answers of the last loads, by the reach of their catalog and by tag. The size of the cache is in bytes.

An operator may load a file from a location that is not the one in the store. The tag of that answer has the file's
location. A user's request has the location in the store, so no user gets that answer.
"""
_ANSWERS_LOCK: Final = Lock()

_CREATE: Final = TypeAdapter(_Create)
_COMMIT: Final = TypeAdapter(_Commit)
_TRANSACTION: Final = TypeAdapter(_Transaction)


def page(catalog: MetastoreCatalog, call: Call) -> Answer:
    """List the Iceberg tables of a namespace; with ``pageSize``, one page of them."""
    names = reading.namespace(call.names["namespace"])
    tables, following = catalog.tables_page(names, reading.page_size(call), reading.token(call))
    identifiers = [{"namespace": list(names), "name": name} for name in tables]
    return Answer(reading.with_token({"identifiers": identifiers}, following))


def create(catalog: MetastoreCatalog, call: Call) -> Loaded:
    """Create a table; with ``stage-create``, return its metadata and write no file."""
    wanted = reading.body(call, _CREATE)
    names = (*reading.namespace(call.names["namespace"]), wanted.name)
    arguments: dict[str, Any] = {
        "schema": wanted.table_schema,
        "location": wanted.location,
        "partition_spec": wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
        "sort_order": wanted.write_order or UNSORTED_SORT_ORDER,
        "properties": wanted.properties or {},
    }
    if wanted.stage_create:
        metadata = catalog.stage_table(names, **arguments).metadata
        make_folders(metadata.location)
        return _loaded(metadata, None)
    return _table(catalog, catalog.create_table(names, **arguments))


def register(catalog: MetastoreCatalog, call: Call) -> Loaded:
    """Create a table from a metadata file."""
    wanted = reading.body(call, reading.REGISTER)
    names = (*reading.namespace(call.names["namespace"]), wanted.name)
    with reading.read_from(wanted.metadata_location):
        return _table(catalog, catalog.register_table(names, wanted.metadata_location, wanted.overwrite))


def load(catalog: MetastoreCatalog, call: Call) -> Answer | Loaded:
    """Return a table's metadata; 304 if the client has it already."""
    names = reading.table(call)
    mode = call.query.get("snapshots", "all")
    if mode not in ("all", "refs"):
        raise BadRequest(f"snapshots is all or refs, not {mode[:20]!r}")
    tag = _tag_of(mode, *catalog.pointer_and_place(names))
    if _has(call.headers.get("if-none-match", ""), tag):
        return Answer(status=304, headers={"ETag": tag})
    with _ANSWERS_LOCK:
        known = _ANSWERS.get((catalog.reach, tag))
    return known or _table(catalog, catalog.load_table(names), mode)


def exists(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Say whether a table exists."""
    if not catalog.table_exists(names := reading.table(call)):
        raise no_table(names)
    return Answer(status=204)


def drop(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Drop a table; with ``purgeRequested``, for good and with its files."""
    names = reading.table(call)
    if reading.flag(call, "purgeRequested"):
        catalog.purge_table(names)
    else:
        catalog.drop_table(names)
    return Answer(status=204)


def rename(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Rename or move a table."""
    wanted = reading.body(call, reading.RENAME)
    catalog.move_table(wanted.source.names, wanted.destination.names)
    return Answer(status=204)


def commit(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Commit updates to a table, or create a staged one."""
    wanted = reading.body(call, _COMMIT)
    names = reading.table(call)
    if any(isinstance(requirement, AssertCreate) for requirement in wanted.requirements):
        done = catalog.create_staged(names, wanted.requirements, wanted.updates)
    else:
        (done,) = catalog.commit_tables([(names, wanted.requirements, wanted.updates)])
    return _kept(catalog, done.metadata, done.metadata_location, "all").answer(None)


def commit_several(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Commit to several tables: all of the commits happen, or none."""
    wanted = reading.body(call, _TRANSACTION)
    commits = []
    for one in wanted.table_changes:
        if one.identifier is None:
            raise BadRequest("table-changes: each change names its table: identifier is missing")
        commits.append((one.identifier.names, one.requirements, one.updates))
    catalog.commit_tables(commits)
    return Answer(status=204)


def named(call: Call) -> Identifier:
    """Return the table that a request names: a load in its path, a create in its body."""
    name = call.names["table"] if "table" in call.names else call.body["name"]
    return (*reading.namespace(call.names["namespace"]), name)


def place(catalog: MetastoreCatalog, call: Call) -> str:
    """Return a table's location."""
    return catalog.load_table(reading.table(call)).metadata.location


def credentials(vended: Vended | None) -> Answer:
    """Return the credentials for a table's files; without any, clients bring their own."""
    listed = [] if vended is None else [{"prefix": vended.prefix, "config": dict(vended.config)}]
    return Answer({"storage-credentials": listed}, headers={"Cache-Control": "no-store"})


def metrics(_: MetastoreCatalog, call: Call) -> Answer:
    """Accept a client's report of a scan or a commit, and keep nothing."""
    if not isinstance(call.body, dict) or "report-type" not in call.body:
        raise BadRequest("a report needs the field report-type")
    return Answer(status=204)


def _table(catalog: MetastoreCatalog, table: Table, mode: str = "all") -> Loaded:
    return _kept(catalog, table.metadata, table.metadata_location, mode)


def _kept(catalog: MetastoreCatalog, metadata: TableMetadata, location: str, mode: str) -> Loaded:
    """Return the answer of a load, and keep it for later loads."""
    tag = _tag_of(mode, location, metadata.location)
    loaded = _loaded(_shown(metadata, mode), location, tag)
    if never_changes(location):
        with _ANSWERS_LOCK, suppress(ValueError):  # LRUCache raises it for an answer larger than the whole cache
            _ANSWERS[catalog.reach, tag] = loaded
    return loaded


def _shown(metadata: TableMetadata, mode: str) -> TableMetadata:
    """Return the metadata with all snapshots, or only with those that a branch or a tag names."""
    if mode == "all":
        return metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return metadata.model_copy(update={"snapshots": [s for s in metadata.snapshots if s.snapshot_id in named]})


def _loaded(metadata: TableMetadata, location: str | None, tag: str | None = None) -> Loaded:
    """Return the answer of a load: the metadata is written to JSON once."""
    text = metadata.model_dump_json(by_alias=True, exclude_none=True)
    start = "" if location is None else f'"metadata-location":{json.dumps(location)},'
    return Loaded(f'{{{start}"metadata":{text}'.encode(), metadata.location, tag, staged=location is None)


def _has(header: str, tag: str) -> bool:
    """Whether If-None-Match has this entity tag; weak and strong ones compare as equal (RFC 9110, section 13.1.2)."""
    return header.strip() == "*" or tag in [one.strip().removeprefix("W/") for one in header.split(",")]


def _tag_of(*parts: str | None) -> str:
    """Return the entity tag of an answer. A metadata file never changes, so its location identifies its content.

    The location in the store is a part too: if it changes, the check of the file no longer holds.
    """
    return '"' + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32] + '"'
