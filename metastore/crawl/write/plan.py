"""The plan of a table: the smallest change that brings the catalog in line with the files. Pure.

The plan is a three-way merge of the present *files*, the *catalog*, and the crawler's view *before* (the table's
statistic ``crawl``, an owned row that the same commit writes). A difference between now and before is new in the files,
and is written. A difference between before and the catalog is an edit of people, and stays:

* Columns: new columns are added before the partition columns. If a type has changed, the policy decides: the catalog's
  type is kept and noted, or widened if one type holds both, or the table fails. A column becomes nullable when the
  files have nulls. A column that people dropped or renamed is not added again. A column that is in no file now is kept
  and noted. Comments never change.
* Properties: only those that begin with ``crawl.`` and have changed in the files. They tell a reader how to read the
  files. ``crawl.missing`` is removed, because the files are back.
* Format: like properties. Location: only if the table has none, or if the old one is gone.
* Partitions: those without ``numFiles`` belong to people. Among the others, new ones are added, and ones with other
  figures are replaced (their other properties stay). Missing ones are removed, unless a file or folder could not be
  read, the partition's own folder has files after all, or people have written on it. A table's partitioning never
  changes: if the files have another, the partitions stay and a note says so.

An unchanged table has an empty plan. It is always safe to plan again after a lost race, because a plan depends only on
the states that it compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metastore.columns.column import Column
from metastore.crawl.dataset.dataset import Dataset, Part
from metastore.crawl.dataset.figures import figures
from metastore.crawl.files.places import join, location_of
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.read.widen import widen
from metastore.crawl.write.diff import column_lines, lines_of, partition_lines
from metastore.kinds.change import EntityChange, RemoveProperty, SetProperty
from metastore.kinds.table.changes import FIRST, AddColumn, RetypeColumn, SetColumnNullable, SetFormat, SetLocation
from metastore.kinds.table.layout import check_partitioning
from metastore.names import format_path

__all__ = [
    "MISSING",
    "PART_PROPERTIES",
    "PREFIX",
    "LocationTaken",
    "PlanError",
    "StoredPart",
    "StoredTable",
    "TablePlan",
    "TypeChanged",
    "partitioning_of",
    "plan_table",
    "properties_of",
]

PREFIX: Final = "crawl."
"""The prefix of the names of the crawler's own properties."""

MISSING: Final = f"{PREFIX}missing"
"""The property with the time since which a table's files are gone."""
_OWNED_BY: Final = "numFiles"
PART_PROPERTIES: Final = frozenset({_OWNED_BY, "numRows", "totalSize"})
"""The properties of the crawler's partitions."""
_SIGNATURE: Final = "signature"


class PlanError(Exception):
    """The table cannot be written. The message says why, in one line."""


class LocationTaken(PlanError):
    """The table at this path has other files."""


class TypeChanged(PlanError):
    """A column's type has changed in the files, and the policy is to fail."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A partition in the catalog. ``measured``: people have set its statistics."""

    values: Mapping[str, str]
    properties: Mapping[str, str]
    measured: bool = field(default=False, compare=False)

    @property
    def is_edited(self) -> bool:
        """Whether people have changed it."""
        return self.measured or bool(self.properties.keys() - PART_PROPERTIES)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The table ``names`` in the catalog.

    ``seen`` is its statistic ``crawl`` from before; None: the crawler never saw the table.
    """

    columns: tuple[Column, ...]
    partitioning: tuple[str, ...] = ()
    location: str | None = None
    format: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, StoredPart] = field(default_factory=dict)
    seen: Mapping[str, Any] | None = None
    version: int = 0
    id: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The writes for one table. With ``create`` the table does not exist yet, and ``changes`` is empty.

    ``parts`` are the partitions to add or replace, ``replaced`` the names of those to replace, ``removed`` the names of
    those to remove. ``open_types``: a changed type was not taken over. ``unlisted``: the listing lacked existing
    partitions. ``diff``: the changes as lines.
    """

    create: bool = False
    changes: tuple[EntityChange, ...] = ()
    parts: Mapping[str, StoredPart] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()
    removed: tuple[str, ...] = ()
    seen: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    open_types: bool = False
    unlisted: bool = False
    diff: tuple[str, ...] = ()
    same_figures: bool = field(default=False, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether the plan writes nothing."""
        return not (self.create or self.changes or self.parts or self.removed or self.seen)

    @property
    def alters(self) -> bool:
        """Whether the plan changes more than the signature of the files."""
        return bool(self.changes or self.parts or self.removed or (self.seen and not self.same_figures))


def properties_of(dataset: Dataset) -> dict[str, str]:
    """Return the properties of a new table."""
    return {PREFIX + key: value for key, value in dataset.options.items()}


def partitioning_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the partitioning by the keys of ``dataset``, spelled as the catalog spells it."""
    quoted = ["`" + key.replace("`", "``") + "`" for key in dataset.keys]
    return tuple(check_partitioning(quoted, [{"name": key} for key in dataset.keys]))


def plan_table(
    dataset: Dataset,
    stored: StoredTable | None,
    is_gone: Callable[[str], bool] = lambda _: False,
    on_type_change: OnTypeChange = "report",
) -> TablePlan:
    """Return the plan of ``dataset``. ``is_gone`` tells whether the files of a location are gone.

    Raises LocationTaken if the table has other files, TypeChanged if a type has changed and the policy is to fail.
    """
    parts = {name: StoredPart(dict(part.values), _part_properties(part)) for name, part in dataset.parts.items()}
    if stored is None:
        diff = (*column_lines(dataset.columns), *partition_lines(parts, frozenset(), ()))
        return TablePlan(create=True, parts=parts, seen=figures(dataset), notes=dataset.notes, diff=diff)
    columns = _Columns(dataset, stored, on_type_change)
    changes = (*_place(dataset, stored, is_gone), *columns.changes(), *_properties(dataset, stored))
    seen = figures(dataset, missing=columns.missing(), kept=columns.kept)
    changed = TablePlan(
        changes=changes,
        seen=None if seen == stored.seen else seen,
        notes=(*dataset.notes, *columns.notes),
        open_types=bool(columns.kept),
        same_figures=_unsigned(seen) == _unsigned(stored.seen or {}),
    )
    if stored.partitioning != partitioning_of(dataset):
        changed = replace(changed, notes=(*changed.notes, _other_partitioning(dataset, stored)))
    else:
        missing = list(_missing(parts.keys(), dataset, stored))
        gone = [name for name in missing if is_gone(location_of(join(dataset.location, name)))]
        there = sorted(set(missing) - set(gone))
        unlisted = [f"the partition {name} was not listed, but it is there; it stays" for name in there]
        edited = [name for name in gone if stored.parts[name].is_edited]
        kept = [
            f"the partition {name} has no files any more; people have written on it, so it stays" for name in edited
        ]
        changed = replace(
            changed,
            **_partitions(parts, stored, [name for name in gone if name not in edited]),
            notes=(*changed.notes, *unlisted, *kept),
            unlisted=bool(unlisted),
        )
    return changed if changed.is_empty else replace(changed, diff=tuple(_diff(changed, stored, columns)))


def _unsigned(seen: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in seen.items() if key != _SIGNATURE}


def _diff(changed: TablePlan, stored: StoredTable, columns: _Columns) -> Iterator[str]:
    types = {column.name: column.type for column in stored.columns}
    place = (str(stored.format), str(stored.location))
    yield from lines_of(changed.changes, types, stored.properties, place)
    yield from columns.lines()
    yield from partition_lines(changed.parts, changed.replaced, changed.removed)


def _part_properties(part: Part) -> dict[str, str]:
    return {_OWNED_BY: str(part.files), "numRows": str(part.rows), "totalSize": str(part.bytes)}


def _before(stored: StoredTable, key: str, default: Any = None) -> Any:
    return (stored.seen or {}).get(key, default)


def _place(dataset: Dataset, stored: StoredTable, is_gone: Callable[[str], bool]) -> Iterator[EntityChange]:
    here = location_of(dataset.location)
    if stored.location != here:
        if stored.location is not None and not _has_moved(stored, here, is_gone):
            path = format_path(dataset.path)
            raise LocationTaken(
                f"would be {path}, which is the table of {stored.location}; rename one of the two{_hint(stored, here)}"
            )
        yield SetLocation(here)
    if stored.format != dataset.format and _before(stored, "format") == stored.format:
        yield SetFormat(dataset.format)


def _has_moved(stored: StoredTable, here: str, is_gone: Callable[[str], bool]) -> bool:
    """Return whether the old location is gone. Only locations of the same file system are checked."""
    return _may_move(stored, here) and is_gone(str(stored.location))


def _may_move(stored: StoredTable, here: str) -> bool:
    return stored.seen is not None and str(stored.location).partition("://")[0] == here.partition("://")[0]


def _hint(stored: StoredTable, here: str) -> str:
    return "; --moved-from says that files have moved" if _may_move(stored, here) else ""


def _properties(dataset: Dataset, stored: StoredTable) -> Iterator[EntityChange]:
    if MISSING in stored.properties:
        yield RemoveProperty(MISSING)
    before: Mapping[str, str] = _before(stored, "options", {})
    for key in sorted({*dataset.options, *before}):
        now, then, there = dataset.options.get(key), before.get(key), stored.properties.get(PREFIX + key)
        if now != then and there == then:
            yield RemoveProperty(PREFIX + key) if now is None else SetProperty(PREFIX + key, now)


class _Columns:
    """The changes of a table's columns, and the notes about them."""

    def __init__(self, dataset: Dataset, stored: StoredTable, on_type_change: OnTypeChange) -> None:
        self.dataset, self.stored, self.policy = dataset, stored, on_type_change
        self.before: Mapping[str, Any] = _before(stored, "columns", {})
        self.there = {column.name: column for column in stored.columns}
        self.notes: list[str] = []
        self.kept: dict[str, str] = {}

    def missing(self) -> dict[str, str]:
        """Return the types of the columns that the files had before, but do not have now."""
        names = {column.name for column in self.dataset.columns}
        return {name: seen["type"] for name, seen in self.before.items() if name not in names}

    def lines(self) -> Iterator[str]:
        """Yield a line for each change in the files that is not written."""
        for name, kind in self.missing().items():
            if name in self.there and not self.before[name].get("missing"):
                yield f"- {name} {kind} (in no file any more; kept)"
        now = {column.name: column.type for column in self.dataset.columns}
        for name, kind in self.kept.items():
            then = self.before.get(name, {})
            if (then.get("type"), then.get("kept")) != (now[name], kind):
                yield f"! {name} {now[name]} in the files ({kind} is kept)"

    def changes(self) -> Iterator[EntityChange]:
        """Yield the changes, and write the notes."""
        last = self._last_data_column()
        for column in self.dataset.columns:
            if column.name in self.there:
                yield from self._change(column, self.there[column.name])
            elif column.name not in self.before:
                after = None if column.name in self.dataset.keys else last
                yield AddColumn((column.name,), column.type, nullable=column.nullable, after=after)
                last = column.name if after is not None else last
        kept = sorted(self.missing().keys() & self.there.keys())
        self.notes += [f"the column {name!r} is in no file any more; it is kept" for name in kept]

    def _last_data_column(self) -> str | None:
        """Return the name after which new columns go; None for the end."""
        keys = set(self.dataset.keys)
        if not keys & self.there.keys():
            return None
        return next((c.name for c in reversed(self.stored.columns) if c.name not in keys), FIRST)

    def _change(self, now: Column, there: Column) -> Iterator[EntityChange]:
        then = self.before.get(now.name, {})
        edited = then.get("type") == now.type and then.get("kept") != there.type
        if now.type != there.type and not edited:
            wider = widen(there.type, now.type)
            if wider == there.type:
                pass  # the catalog's type can hold the values
            elif self.policy == "fail":
                raise TypeChanged(
                    f"the column {now.name!r} is {now.type} in the files now, {there.type} in the catalog"
                )
            elif wider is None or self.policy == "report":
                self.kept[now.name] = there.type
                self.notes.append(f"the column {now.name!r} is {now.type} in the files now; {there.type} is kept")
            else:
                yield RetypeColumn((now.name,), wider)
        if now.nullable and not there.nullable and not then.get("nullable", False):
            yield SetColumnNullable((now.name,), True)


def _other_partitioning(dataset: Dataset, stored: StoredTable) -> str:
    here, there = (", ".join(texts) or "none" for texts in (partitioning_of(dataset), stored.partitioning))
    return f"the files are partitioned by {here}, the table by {there}; its partitions are left as they are"


def _partitions(parts: Mapping[str, StoredPart], stored: StoredTable, removed: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a plan that concern partitions."""
    wanted = {name: _merged(part, stored.parts.get(name)) for name, part in parts.items()}
    changed = {name: part for name, part in wanted.items() if part != stored.parts.get(name)}
    return {
        "parts": changed,
        "replaced": frozenset(changed.keys() & stored.parts.keys()),
        "removed": tuple(removed),
    }


def _merged(part: StoredPart, there: StoredPart | None) -> StoredPart:
    return part if there is None else StoredPart(part.values, {**there.properties, **part.properties})


def _missing(names: Iterable[str], dataset: Dataset, stored: StoredTable) -> Iterator[str]:
    if dataset.doubtful is None:
        return
    for name in sorted(stored.parts.keys() - set(names) - dataset.doubtful):
        if _OWNED_BY in stored.parts[name].properties:
            yield name
