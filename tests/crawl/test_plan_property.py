"""Files that change at random, people who edit at random: no edit is lost, no column is there that was in no file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

import metastore as ms
from metastore.columns.column import Column, decode_columns
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.write.plan import StoredTable, TablePlan, TypeChanged, partitioning_of, plan_table, properties_of
from metastore.kinds.change import EntityChange
from metastore.kinds.kind import dump
from metastore.kinds.table.kind import TABLE
from metastore.operation.merge import altered

NAMES = ("l", "c", "s", "t")
TYPES = st.sampled_from(["int", "long", "double", "string", "date", "decimal(10,2)", "struct<a: int>"])
COLUMN_NAMES = st.sampled_from(["a", "b", "c", "d"])
FILES = st.dictionaries(COLUMN_NAMES, st.tuples(TYPES, st.booleans()), min_size=1)
EDITS = st.one_of(
    st.tuples(st.just("drop"), COLUMN_NAMES),
    st.tuples(st.just("rename"), COLUMN_NAMES),
    st.tuples(st.just("retype"), COLUMN_NAMES, TYPES),
    st.tuples(st.just("comment"), COLUMN_NAMES),
    st.tuples(st.just("add"), TYPES),
    st.tuples(st.just("property"), st.sampled_from(["owner", "crawl.mine"])),
)
STEPS = st.lists(st.one_of(st.tuples(st.just("files"), FILES), st.tuples(st.just("edit"), EDITS)), max_size=12)


@dataclass
class World:
    """A table, and what was done to it."""

    policy: OnTypeChange
    doc: str | None = None
    seen: Any = None
    edits: int = 0
    in_files: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    theirs: set[str] = field(default_factory=set)
    comments: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    retyped: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    @property
    def stored(self) -> StoredTable:
        assert self.doc is not None
        doc = json.loads(self.doc)
        return StoredTable(
            columns=decode_columns(doc["columns"]),
            partitioning=tuple(doc["partitioning"]),
            location=doc["location"],
            format=doc["format"],
            properties=doc["properties"],
            seen=self.seen,
        )

    def columns(self) -> dict[str, Column]:
        return {column.name: column for column in self.stored.columns}

    def apply(self, *changes: EntityChange) -> None:
        assert self.doc is not None
        self.doc = altered(self.doc, NAMES, changes) or self.doc

    # --- the crawler

    def crawl(self, files: dict[str, tuple[str, bool]]) -> None:
        columns = tuple(Column(name, kind, nullable=nullable) for name, (kind, nullable) in files.items())
        found = Dataset(NAMES, "/lake/t", "parquet", columns, signature=str(hash(columns)))
        before = None if self.doc is None else self.columns()
        try:
            made = plan_table(found, None if self.doc is None else self.stored, on_type_change=self.policy)
        except TypeChanged:
            assert self.policy == "fail"
            return
        self.write(found, made)
        self.in_files |= set(files)
        self.types = {name: kind for name, (kind, _) in files.items()}
        again = plan_table(found, self.stored, on_type_change=self.policy)
        assert (again.is_empty, again.diff) == (True, ())
        assert again.notes == made.notes
        self.check(before, found)

    def write(self, found: Dataset, made: TablePlan) -> None:
        if made.create:
            fields = {
                "columns": found.columns,
                "partitioning": partitioning_of(found),
                "location": f"file://{found.location}",
                "format": found.format,
            }
            self.doc = dump(TABLE.document(None, properties_of(found), fields), NAMES)
        else:
            self.apply(*made.changes)
        self.seen = json.loads(json.dumps(made.seen)) if made.seen is not None else self.seen

    # --- people

    def edit(self, what: str, *rest: str) -> None:
        if self.doc is None:
            return
        self.edits += 1
        mark = f"mine{self.edits}"
        if what == "add":
            self.apply(ms.AddColumn(mark, rest[0]))
            self.theirs.add(mark)
        elif what == "property":
            self.apply(ms.SetProperty(rest[0], mark))
            self.properties[rest[0]] = mark
        elif rest[0] in self.columns() and (what != "drop" or len(self.columns()) > 1):
            self.edit_column(what, mark, *rest)

    def edit_column(self, what: str, mark: str, name: str, kind: str = "") -> None:
        if what == "comment":
            self.apply(ms.SetColumnComment(name, mark))
            self.comments[name] = mark
        elif what == "retype" and self.columns()[name].type == kind:
            self.apply(ms.RetypeColumn(name, kind))  # it changes nothing: nobody can tell that it was chosen
        elif what == "retype":
            self.apply(ms.RetypeColumn(name, kind))
            if kind == self.types.get(name):
                self.retyped.pop(name, None)  # it has the files' type: nobody can tell that it was chosen
            else:
                self.retyped[name] = (kind, self.types.get(name))
        else:
            self.comments.pop(name, None)
            self.retyped.pop(name, None)
            self.gone.add(name)
            self.apply(ms.DropColumn(name) if what == "drop" else ms.RenameColumn(name, mark))
            self.theirs |= {mark} if what == "rename" else set()

    # --- what must be true

    def check(self, before: dict[str, Column] | None, found: Dataset) -> None:
        columns = self.columns()
        assert set(columns) == (self.in_files - self.gone) | self.theirs
        assert {name: columns[name].comment for name in self.comments} == self.comments
        assert self.properties.items() <= self.stored.properties.items()
        for name, column in columns.items():
            was = (before or {}).get(name)
            if was is not None and self.policy != "widen":
                assert column.type == was.type
            chosen, of_files = self.retyped.get(name, (column.type, None))
            if of_files == self.types.get(name):
                assert column.type == chosen  # the files say what they said when it was edited
            elif self.policy == "widen" and name in self.types:
                self.retyped.pop(name, None)  # they have said something else since: the type that holds both counts
        kept = {column.name for column in found.columns} - set(columns)
        assert kept <= self.gone


@settings(max_examples=150, deadline=None)
@example(
    "widen",
    {"a": ("int", False)},
    [
        ("edit", ("retype", "a", "long")),
        ("files", {"a": ("double", False)}),
        ("files", {"a": ("int", False)}),
    ],
)
@example(
    "widen",
    {"a": ("int", False)},
    [
        ("files", {"b": ("int", False)}),
        ("edit", ("retype", "a", "int")),
        ("files", {"a": ("long", False)}),
        ("files", {"b": ("int", False)}),
    ],
)
@given(st.sampled_from(["report", "widen", "fail"]), FILES, STEPS)
def test_no_edit_is_lost_and_no_column_comes_from_nowhere(policy: OnTypeChange, first: Any, steps: list[Any]) -> None:
    world = World(policy)
    world.crawl(first)
    for kind, what in steps:
        if kind == "files":
            world.crawl(what)
        else:
            world.edit(*what)


def test_the_check_sees_a_lost_edit() -> None:
    world = World("report")
    world.crawl({"a": ("int", True)})
    world.edit("comment", "a")
    assert world.doc is not None
    world.doc = world.doc.replace("mine1", "other")
    try:
        world.crawl({"a": ("int", True), "b": ("int", True)})
    except AssertionError:
        return
    raise RuntimeError("a lost comment was not seen")
