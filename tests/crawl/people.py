"""People who edit the tables of a lake at random, and remember what must be there at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import metastore as ms
from metastore.errors import DropPending, EntityAlreadyExists, EntityNotFound, InvalidArgument

__all__ = ["THEIRS", "People"]

COLUMNS = ("x", "y", "z")
THEIRS = 90
"""The partitions of people begin with this month."""
Check = Callable[[Any], object]
_STEPS = 0.25


@dataclass
class People:
    """What people did, by the table's id. ``known`` says of each edit whether it is still there."""

    store: ms.Store
    random: Random
    known: dict[int, dict[str, tuple[str, Check]]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    months: dict[int, set[str]] = field(default_factory=dict)
    """The partitions that people made or wrote on."""
    numbers: Any = field(default_factory=count)
    in_steps: bool = False
    """Whether they also drop in steps."""
    pending: list[tuple[Any, ms.PendingDrop]] = field(default_factory=list)

    def prepare(self) -> None:
        """Make what they need."""
        store = self.store
        store.metalakes.create("lake")
        store.catalogs.create("lake.main", type="relational")
        store.users.create("lake.ann")
        store.roles.create("lake.reader")
        store.tags.create("lake.pii")
        store.policies.create("lake.keep", type="custom", content={})
        store.catalogs.create("lake.other", type="relational")
        store.schemas.create("lake.other.s")
        store.schemas.create("lake.main.moved")

    def act(self) -> None:
        """Edit one table."""
        if self.in_steps and self.random.random() < _STEPS:
            self.end_drop()
        tables = list(self.store.find("lake", kind="table"))
        if not tables:
            return
        table, mark = self.random.choice(tables), f"e{next(self.numbers)}"
        edit = self.random.choice(_EDITS)
        if self.in_steps and self.random.random() < _STEPS:
            edit = People.begin_drop
        # an error says that nothing was acknowledged
        with suppress(EntityNotFound, EntityAlreadyExists, InvalidArgument, DropPending):
            edit(self, table, mark)

    def end_drop(self) -> None:
        """Finish a drop in steps, or roll it back; then the table is as it was."""
        if self.pending:
            table, drop = self.pending.pop(0)
            if self.random.random() < _STEPS:
                drop.started()
                drop.finish()
                self.dropped.add(table.id)
            else:
                drop.roll_back()

    def lost(self) -> list[str]:
        """Return the edits that are not there any more."""
        tables: dict[int, Any] = {table.id: table for table in self.store.find("lake", kind="table")}
        gone = [f"{key}: its drop" for key in self.dropped & tables.keys()]
        for key, edits in self.known.items():
            for aspect, (what, check) in edits.items() if key not in self.dropped else ():
                if key not in tables:
                    gone.append(f"{key}: the table of {aspect} {what}")
                elif not _holds(check, tables[key]):
                    gone.append(f"{tables[key]}: {aspect} {what}")
        return gone

    def _note(self, table: Any, aspect: str, what: str, check: Check) -> None:
        self.known.setdefault(table.id, {})[aspect] = (what, check)

    # --- edits

    def property(self, table: Any, mark: str) -> None:
        self.store.tables.alter(table, ms.SetProperty(mark, "x"))
        self._note(table, f"property {mark}", "x", lambda now: now.properties.get(mark) == "x")

    def comment(self, table: Any, mark: str) -> None:
        self.store.tables.alter(table, ms.SetComment(mark))
        self._note(table, "comment", mark, lambda now: now.comment == mark)

    def add_column(self, table: Any, mark: str) -> None:
        self.store.tables.alter(table, ms.AddColumn(mark, "int"))
        self._note(table, f"column {mark}", "added", lambda now: mark in _columns(now))

    def change_column(self, table: Any, mark: str) -> None:
        name = self.random.choice(COLUMNS)
        what = self.random.choice(("comment", "rename", "drop", "retype"))
        if what == "comment":
            self.store.tables.alter(table, ms.SetColumnComment(name, mark))
            self._note(table, f"comment of {name}", mark, lambda now: _columns(now)[name].comment == mark)
        elif what == "retype":
            altered = self.store.tables.alter(table, ms.RetypeColumn(name, "string"))
            if altered.version != table.version:  # else it had the type already, and nothing was written
                self._note(table, f"type of {name}", "string", lambda now: _columns(now)[name].type == "string")
        else:
            renames = what == "rename"
            self.store.tables.alter(table, ms.RenameColumn(name, mark) if renames else ms.DropColumn(name))
            for aspect in ("comment of", "type of", "tag on"):
                self.known.get(table.id, {}).pop(f"{aspect} {name}", None)
            self._note(table, f"column {name}", what, lambda now: name not in _columns(now))
            if renames:
                self._note(table, f"column {mark}", what, lambda now: mark in _columns(now))

    def tag(self, table: Any, mark: str) -> None:
        name = self.random.choice((None, *COLUMNS))
        self.store.tags.attach(table, "lake.pii", column=name, value=None)
        self._note(
            table, f"tag on {name}", mark, lambda now: self.store.tags.on(now, column=name, inherited=False) != []
        )

    def owner(self, table: Any, mark: str) -> None:
        self.store.owners.set(table, "lake.ann")
        self._note(table, "owner", mark, lambda now: getattr(self.store.owners.of(now), "name", None) == "ann")

    def right(self, table: Any, mark: str) -> None:
        self.store.roles.grant("lake.reader", "select_table", table)
        self._note(table, "right", mark, lambda now: any(one.path == now.path for one in self._grants()))

    def _grants(self) -> list[Any]:
        return list(self.store.roles.grants("lake.reader"))

    def policy(self, table: Any, mark: str) -> None:
        self.store.policies.attach(table, "lake.keep")
        self._note(table, "policy", mark, lambda now: self.store.policies.on(now, inherited=False) != [])

    def statistic(self, table: Any, mark: str) -> None:
        name = f"custom-{mark}"
        self.store.statistics.set(table, {name: 1})
        self._note(table, f"statistic {name}", "1", lambda now: self.store.statistics.of(now).get(name) == 1)

    def partition(self, table: Any, mark: str) -> None:
        if not table.partitioning:
            return
        parts = list(self.store.partitions.list(table))
        if not parts or self.random.random() < 0.3:
            name = f"month={THEIRS + next(self.numbers)}"
            self.store.partitions.create(table, name, values={"month": name[6:]})
            self._note(table, f"partition {name}", "made", lambda now: self.store.partitions.exists(now, name))
        else:
            part = self.random.choice(parts)
            name = part.name
            if self.random.random() < 0.3:
                self.measure(table, name, mark)
                return
            row = self.store.partitions.row(name, part.values, {**part.properties, mark: "x"})
            self.store.partitions.put_many(table, [row])
            self._note(
                table,
                f"property {mark} of {name}",
                "x",
                lambda now: self.store.partitions.load(now, name).properties.get(mark) == "x",
            )
        self.months.setdefault(table.id, set()).add(name)

    def measure(self, table: Any, name: str, mark: str) -> None:
        statistic = f"custom-{mark}"
        self.store.statistics.set(table, {statistic: 1}, partition=name)
        self._note(
            table,
            f"statistic {statistic} of {name}",
            "1",
            lambda now: self.store.statistics.of(now, partition=name)[statistic] == 1,
        )
        self.months.setdefault(table.id, set()).add(name)

    def rename(self, table: Any, mark: str) -> None:
        place = self.random.choice((".".join(table.names[:-1]), "lake.main.moved", "lake.other.s"))
        path = f"{place}.{mark}"
        self.store.tables.rename(table, path)
        self._note(table, "place", path, lambda now: now.path == path)

    def begin_drop(self, table: Any, _mark: str) -> None:
        self.pending.append((table, self.store.tables.begin_drop(table)))

    def drop(self, table: Any, _mark: str) -> None:
        if self.store.tables.drop(table):
            self.dropped.add(table.id)


_EDITS: list[Callable[[People, Any, str], None]] = [
    People.property,
    People.comment,
    People.add_column,
    People.change_column,
    People.change_column,
    People.tag,
    People.owner,
    People.right,
    People.policy,
    People.statistic,
    *[People.partition] * 6,
    People.rename,
    People.drop,
]


def _columns(table: Any) -> dict[str, Any]:
    return {column.name: column for column in table.columns}


def _holds(check: Check, table: Any) -> bool:
    try:
        return bool(check(table))
    except (KeyError, EntityNotFound):
        return False
