"""Sum up the contents of the source or of the store, at one instant, from the lines of an export."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from metastore.imports.gravitino.columns import Columns
from metastore.imports.gravitino.groups import Group, Grouping, grouped
from metastore.imports.gravitino.tree import Place
from metastore.imports.gravitino.values import Key
from metastore.transfer.content import lines_of
from metastore.transfer.digest import Sum, number_of, of_entity, of_owned, of_relation
from metastore.transfer.lines import Body, EntityLine, Header, OwnedLine, RelationLine
from metastore.transfer.reader import Checked
from metastore.transfer.tally import Tally
from metastore.version import __version__

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Contents", "Owned", "Related", "Written", "contents_of_store"]

Names = tuple[str, ...]


class Owned(NamedTuple):
    """A row that an imported entity owns, other than its origin."""

    owner: Key
    kind: str
    name: str


class Related(NamedTuple):
    """A relation that goes from an imported entity."""

    owner: Key
    kind: str
    to_kind: str
    to: Names
    column: Names | None
    value: str


@dataclass
class Contents:
    """The content of the source or of this store: places, columns, owned rows, relations of imported entities."""

    names: dict[Key, Names] = field(default_factory=dict)
    ids: dict[Key, int] = field(default_factory=dict)
    """The store's ids. Names are not enough, because another entity may get one meanwhile."""
    columns: dict[Key, Columns] = field(default_factory=dict)
    owned: set[Owned] = field(default_factory=set)
    related: set[Related] = field(default_factory=set)
    hash: str = ""
    below: dict[Names, str] = field(default_factory=dict)
    """The hash of everything below each metalake and catalog."""
    disabled: set[Key] = field(default_factory=set)
    """Metalakes and catalogs that are disabled."""
    copies: dict[int, tuple[str, Names]] = field(default_factory=dict)
    """The kinds and places of copies that people made here, by id: a copy has the origin of an older entity."""
    made_here: set[Place] = field(default_factory=set)
    """The places of entities that no import made."""
    checked: Checked | None = None
    """The result of the check of a written file. None: its lines were not checked yet."""


def contents_of_store(
    store: Store, metalakes: Iterable[str], left: Collection[Key] = (), *, columns: bool = False
) -> Contents:
    """Return the imported entities of these metalakes, as the store shows them. Others, and ``left``, do not count.

    ``columns``: also read the ids of their columns, and check that the kinds can read the documents. Raises
    UnreadableRow.
    """
    wanted, notes = frozenset(metalakes), _Notes(left, columns=columns)
    header = Header(None, True, False, None, "", __version__, None)  # any values: nothing reads this header
    with store._session.backend.snapshot() as snapshot:  # noqa: SLF001  (no caller needs lines without a file)
        for group in grouped(lines_of(snapshot, None, header, Tally(), None, check=columns)):
            if group.entity.names[0] in wanted:
                notes.add(group)
    return notes.finished()


class Written:
    """The contents of a file while it is written, line by line."""

    def __init__(self) -> None:
        self._grouping, self._notes = Grouping(), _Notes()

    def add(self, line: Body) -> None:
        """Add the next line."""
        if (group := self._grouping.add(line)) is not None:
            self._notes.add(group)

    def contents(self) -> Contents:
        """Return the contents, after the last line."""
        if (group := self._grouping.add(None)) is not None:
            self._notes.add(group)
        return self._notes.finished()


class _Notes:
    """Sums up the groups of an export; an entity counts if one of its rows is an origin."""

    def __init__(self, left: Collection[Key] = (), *, columns: bool = False) -> None:
        self._left, self._with_columns = left, columns
        self._found, self._sum = Contents(), Sum()
        self._below: dict[Names, Sum] = {}
        self._there: set[tuple[str, Names]] = set()
        self._relations: list[tuple[EntityLine, RelationLine, Key]] = []

    def add(self, group: Group) -> None:
        entity, origin = group.entity, group.origin
        if origin is None:
            self._found.made_here.add((entity.family, entity.names))
            return
        key = (entity.kind, int(origin.doc["key"]))
        if key in self._left or self._is_copy(key, entity):
            return
        self._found.names[key] = entity.names
        if entity.row:
            self._found.ids[key] = entity.row["id"]
        self._there.add((entity.kind, entity.names))
        if self._with_columns and entity.kind == "table":
            self._found.columns[key] = _columns(entity, origin)
        if not entity.in_use and entity.kind in ("metalake", "catalog"):
            self._found.disabled.add(key)
        shown = {name: value for name, value in entity.doc.items() if name != "last_column_id"}
        self._sum_up(entity, of_entity(entity.names, entity.family, entity.kind, entity.in_use, shown))
        for row in group.owned:
            if row.kind == "origin" and row is not origin:
                continue  # a note of another import
            if row is not origin:
                self._found.owned.add(Owned(key, row.kind, row.name))
            self._sum_up(entity, of_owned(entity.names, entity.family, row.kind, row.name, row.doc))
        self._relations += [(entity._replace(doc={}), one, key) for one in group.relations]

    def _is_copy(self, key: Key, entity: EntityLine) -> bool:
        """Note a copy. An entity is a copy if it is newer than another one with its origin."""
        if key not in self._found.ids:
            return False
        here, before = (entity.row["id"], entity.names), (self._found.ids[key], self._found.names[key])
        row_id, names = max(here, before)
        self._found.copies[row_id] = (key[0], names)
        return here > before

    def _sum_up(self, entity: EntityLine, part: bytes) -> None:
        number = number_of(part)
        self._sum.add_number(number)
        for depth in range(1, min(3, len(entity.names))):
            names = entity.names[:depth]
            if (below := self._below.get(names)) is None:
                below = self._below[names] = Sum()
            below.add_number(number)

    def finished(self) -> Contents:
        """Return the contents that were found. A relation counts if both ends were imported."""
        for entity, line, key in self._relations:
            if line.to is None or line.to_kind is None or (line.to_kind, line.to) not in self._there:
                continue
            self._found.related.add(Related(key, line.kind, line.to_kind, line.to, line.column, line.value))
            self._sum_up(entity, of_relation(entity.names, entity.family, line.kind, line.to, line.column, line.value))
        self._found.hash = self._sum.hexdigest()
        self._found.below = {names: one.hexdigest() for names, one in self._below.items()}
        return self._found


def _columns(entity: EntityLine, origin: OwnedLine) -> Columns:
    there = {column["id"]: column for column in entity.doc["columns"]}
    noted = {int(theirs): ours for theirs, ours in origin.doc["values"].get("columns", {}).items()}
    ids = {theirs: ours for theirs, ours in noted.items() if ours in there}
    nested = {number: column for number, column in there.items() if "fields" in column}
    return Columns(ids, nested, entity.doc["last_column_id"])
