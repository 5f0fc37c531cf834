"""Collect changes of a model and its versions into one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from metastore.arguments import positive_integer, shown
from metastore.errors import EntityNotFound, VersionConflict
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.kind import Kind, dump, dump_changes
from metastore.kinds.model.changes import RemoveAlias, SetAlias, SetLatestVersion
from metastore.kinds.model.document import clean_alias
from metastore.kinds.model.version import MODEL_VERSION, ModelVersion
from metastore.managers.target import Target, check_standing, find
from metastore.names import format_path
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.merge import altered
from metastore.operation.request import Proposal, Results, View
from metastore.operation.seals import bound_changes
from metastore.plain import plain
from metastore.port.records import OwnedRecord
from metastore.port.writes import Delete, Event, Put, Update, Write
from metastore.retry.runner import Conflict

T = TypeVar("T")


class SeenModel:
    """A model as it was read, and its versions, each read when it is needed."""

    def __init__(self, view: View, kind: Kind, model: Target) -> None:
        self._backend = view.backend
        self.record = find(View(view.backend, trusting=False), kind, model)
        self.nodes = self.record.chain
        self._names = tuple([node.name for node in self.nodes])
        self.path = format_path(self._names)
        seen = kind.entity(self.record)
        seen.read_all()
        self.doc: Doc = plain(seen.doc)  # a copy, because the edit changes it

    def number(self, number_or_alias: int | str) -> int:
        """Return the number of a version, or raise EntityNotFound for an alias that points to no version."""
        if not isinstance(number_or_alias, str):
            return positive_integer(number_or_alias, "the number of a version")
        number: int | None = self.doc["aliases"].get(clean_alias(number_or_alias))
        if number is None:
            raise self.missing(number_or_alias)
        return number

    def row(self, number: int) -> OwnedRecord | None:
        """Return the row of a version; None: no such version."""
        return self._backend.owned_by_name([self.nodes[-1].id], MODEL_VERSION.name, [str(number)])[0]

    def missing(self, number_or_alias: int | str) -> EntityNotFound:
        """Return the error for a missing version."""
        what = f"version {number_or_alias}" if isinstance(number_or_alias, int) else f"alias {shown(number_or_alias)}"
        path = format_path((*self._names, str(number_or_alias)))
        return EntityNotFound(path, f"the model {self.path} has no {what}; see models.versions()")


class ModelEdit(SeenModel):
    """A commit being prepared: the new documents of the model and of its versions."""

    def __init__(self, view: View, kind: Kind, model: Target, in_transaction: bool) -> None:
        super().__init__(view, kind, model)
        check_in_use(self.nodes[:-1])
        self._view = view
        self._in_transaction = in_transaction
        self._kind = kind
        self._changes: list[EntityChange] = []  # changes of the model itself
        self._there: dict[int, OwnedRecord] = {}
        self._docs: dict[int, Doc] = {}
        self._said: dict[int, tuple[EntityChange, ...]] = {}
        self._touched: dict[int, str] = {}  # the action on each version, by number: create, alter or drop

    def existing(self, number_or_alias: int | str) -> int:
        """Return the number of an existing version, or raise EntityNotFound."""
        number = self.number(number_or_alias)
        if isinstance(number_or_alias, str):
            self._check_alias(number, clean_alias(number_or_alias))
            return number
        if not self._read(number):
            check_standing(self._view, self.nodes)
            raise self.missing(number)
        return number

    def _read(self, number: int) -> bool:
        """Read a version, unless that was done already; return whether it exists."""
        if number not in self._docs and (row := self.row(number)) is not None:
            self._there[number], self._docs[number] = row, plain(ModelVersion(row).doc)
        return number in self._docs

    def _check_alias(self, number: int, alias: str) -> None:
        """Read the version to which the model says that an alias points.

        The commit then expects the version of that row.
        """
        # the row was read after the model, so it may no longer have the alias
        if not self._read(number) or alias not in self._docs[number]["aliases"]:
            message = f"{self.path}: the alias {alias} moved meanwhile"
            raise VersionConflict(self.path, None, None, message) if self._in_transaction else Conflict("read", message)

    def add(self, doc: Doc) -> int:
        """Add a version; return its number."""
        number: int = self.doc["latest_version"] + 1
        self._change(SetLatestVersion(number))
        self._docs[number], self._touched[number] = json.loads(json.dumps(doc)), "create"
        return number

    def alter(self, number: int, changes: Sequence[EntityChange]) -> bool:
        """Apply changes to a version; return False if the version stays equal."""
        if self._view.asking:
            self._touched[number] = "alter"
            return True
        doc = self._there[number].doc
        made = bound_changes(changes, self.nodes[-1].id, doc)
        text = altered(doc, (*self._names, str(number)), made)
        if text is None:
            return False
        self._docs[number], self._said[number], self._touched[number] = json.loads(text), made, "alter"
        return True

    def drop(self, number: int) -> None:
        """Drop a version and its aliases."""
        self._touched[number] = "drop"
        for alias in self._docs[number]["aliases"]:
            self._change(RemoveAlias(alias))

    def point(self, alias: str, number: int | None) -> bool:
        """Let an alias point to version ``number`` (None: to no version); return False if it already does."""
        before: int | None = self.doc["aliases"].get(alias)
        if before == number:
            return False
        self._change(RemoveAlias(alias) if number is None else SetAlias(alias, number))
        if before is not None:
            self._check_alias(before, alias)
            self._docs[before]["aliases"].remove(alias)
        if number is not None:
            self._docs[number]["aliases"] = sorted([*self._docs[number]["aliases"], alias])
        for touched in (before, number):
            if touched is not None:
                self._touched.setdefault(touched, "alter")
        return True

    def _change(self, change: EntityChange) -> None:
        change.apply(self.doc, ())
        self._changes.append(change)

    def propose(self, finish: Callable[[Results], T]) -> Proposal[T]:
        """Return the commit; it writes the versions first, then the model if it has changed."""
        writes: list[Write] = [self._write(number, action) for number, action in self._touched.items()]
        if self._changes:
            changes = dump_changes(tuple(self._changes), self._names)
            event = Event(self._kind.name, "alter", self.path, self.path, changes)
            writes.append(Update(self.nodes[-1].id, self.record.version, event, doc=dump(self.doc, self._names)))
        return Proposal(guards_of(self.nodes), tuple(writes), finish)

    def _write(self, number: int, action: str) -> Put | Delete:
        owner, kind, name, there = self.nodes[-1].id, MODEL_VERSION.name, str(number), self._there.get(number)
        path = format_path((*self._names, name))
        before, after = (None if action == "create" else path), (None if action == "drop" else path)
        event = Event(kind, action, before, after, dump_changes(self._said.get(number, ()), self._names))
        row_id, version = (0, 0) if there is None else (there.id, there.version)
        if after is None:
            return Delete(owner, kind, name, version, event, row_id)
        return Put(owner, kind, name, version, self._text(number), event, row_id)

    def _text(self, number: int) -> str:
        return dump(self._docs[number], (*self._names, str(number)))

    def version(self, number: int, results: Results, actor: str | None) -> ModelVersion:
        """Return a version as the commit left it. Without results, return it as it is now."""
        there = self._there.get(number)
        if not results:
            assert there is not None
            return ModelVersion(there)
        result = results[list(self._touched).index(number)]
        assert result is not None
        made = (actor, result.time) if there is None else (there.created_by, there.created_at)
        row_id = result.id if there is None else there.id
        audit = (*made, actor, result.time)
        owner = self.nodes[-1].id
        return ModelVersion(
            OwnedRecord(row_id, owner, MODEL_VERSION.name, str(number), result.version, self._text(number), *audit)
        )
