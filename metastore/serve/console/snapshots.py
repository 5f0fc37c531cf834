"""The snapshots of an Iceberg table, as a graph: read from its metadata file by the rules of the server's warehouses.

Files may be slow, large or unavailable. So they are read in two threads of their own, and a page waits for two seconds.
After that the page says that they are not reachable.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from metastore.kinds.entity import Entity
from metastore.names import format_path
from metastore.serve.iceberg.warehouses import Warehouses
from metastore.serve.principals import Principal
from metastore.serve.web import Call

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

__all__ = ["Iceberg", "Snapshots"]

_LOG = logging.getLogger("metastore.serve")
_POINTER: Final = "metadata_location"
_SECONDS: Final = 2.0
"""How long a page waits for a metadata file (seconds)."""
_THREADS, _WAITING = 2, 4
_MOST: Final = 100
_FIGURES: Final = ("added-records", "deleted-records", "total-records", "added-data-files", "deleted-data-files")


@dataclass(frozen=True)
class Snapshot:
    """One snapshot. Its id is a text: 64 bits are more than a script's numbers hold."""

    id: str
    graph: str
    refs: Sequence[str]
    time: datetime
    operation: str
    figures: str
    schema: str


@dataclass(frozen=True)
class Iceberg:
    """The content of a table's metadata file. ``problem``: why it could not be read."""

    problem: str | None = None
    snapshots: Sequence[Snapshot] = ()
    left: int = 0
    schemas: Sequence[tuple[str, str, str]] = ()
    """(id, current or not, columns)."""
    specs: Sequence[tuple[str, str]] = field(default=())
    """(id, fields)."""


class Snapshots:
    """Reads the metadata files of a server's tables."""

    def __init__(self, warehouses: Warehouses) -> None:
        self._warehouses = warehouses
        self._threads = ThreadPoolExecutor(_THREADS, "metastore-console-files")
        self._inside = 0

    def of(self, principal: Principal, entity: Entity) -> Iceberg | None:
        """Return the content of a table's metadata file, with the user's rights; None if it is not an Iceberg table."""
        if entity.kind != "table" or _POINTER not in entity.properties or len(entity.names) < 4:
            return None
        if self._inside >= _THREADS + _WAITING:
            return Iceberg("Its files are not reachable now: too many other requests wait for files.")
        self._inside += 1
        future = self._threads.submit(self._read, principal, entity.names)
        future.add_done_callback(self._done)
        try:
            return future.result(_SECONDS)
        except TimeoutError:
            return Iceberg(f"Its files are not reachable within {_SECONDS:g} seconds.")
        except Exception as error:  # noqa: BLE001  (a file system's error; its message may show a place or a secret)
            _LOG.info("the metadata of %s cannot be read: %s", entity.path, type(error).__name__)
            return Iceberg("Its files are not reachable from this server.")

    def _done(self, _: object) -> None:
        self._inside -= 1

    def close(self) -> None:
        """Read no more files."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _read(self, principal: Principal, names: tuple[str, ...]) -> Iceberg:
        named = {"prefix": format_path(names[:2])}
        call = Call(named, {}, {}, None, principal, "GET /console")
        return _shown(self._warehouses.catalog(call).load_table(names[2:]).metadata)


def _shown(metadata: TableMetadata) -> Iceberg:
    newest = sorted(metadata.snapshots, key=lambda one: -one.timestamp_ms)
    refs: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        refs.setdefault(ref.snapshot_id, []).append(f"{ref.snapshot_ref_type} {name}")
    known = {one.snapshot_id for one in newest}
    # draw only the newest ones: a client wrote the file, and a graph of 100,000 branches would take gigabytes
    graph = _graph([(one.snapshot_id, one.parent_snapshot_id) for one in newest[:_MOST]], known)
    snapshots = [
        Snapshot(
            str(one.snapshot_id),
            graph[one.snapshot_id],
            refs.get(one.snapshot_id, []),
            datetime.fromtimestamp(one.timestamp_ms / 1000, UTC),
            str(one.summary.operation.value) if one.summary else "",
            _figures(one.summary.additional_properties if one.summary else {}),
            "" if one.schema_id is None else str(one.schema_id),
        )
        for one in newest[:_MOST]
    ]
    schemas = [
        (
            str(one.schema_id),
            "current" if one.schema_id == metadata.current_schema_id else "",
            ", ".join(f"{column.name} {column.field_type}" for column in one.fields[:_MOST]),
        )
        for one in metadata.schemas[-_MOST:]
    ]
    specs = [
        (str(one.spec_id), ", ".join(f"{part.transform}: {part.name}" for part in one.fields) or "none")
        for one in metadata.partition_specs[-_MOST:]
    ]
    return Iceberg(None, snapshots, max(0, len(newest) - _MOST), schemas, specs)


def _figures(summary: Mapping[str, Any]) -> str:
    return ", ".join(f"{summary[key]} {key.replace('-', ' ')}" for key in _FIGURES if key in summary)


def _graph(snapshots: Sequence[tuple[int, int | None]], known: Container[int]) -> dict[int, str]:
    """Return a line of the graph for each snapshot, the newest first: a dot, and the branches beside it."""
    lanes: list[int | None] = []
    lines = {}
    for one, parent in snapshots:
        if one not in lanes:
            free = lanes.index(None) if None in lanes else len(lanes)
            lanes[free : free + 1] = [one]
        mine = lanes.index(one)
        lines[one] = " ".join("●" if n == mine else "│" if lane is not None else " " for n, lane in enumerate(lanes))
        lanes[mine] = parent if parent in known and parent not in lanes else None
    return lines
