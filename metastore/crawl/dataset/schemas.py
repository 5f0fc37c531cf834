"""Find the one schema that files fit, by their columns, types and dialects. Pure.

:func:`fit_all` returns the schema if *all* files fit. :func:`fit_most` finds the schema of most files, and the reason
why each of the others does not fit. Each distinct schema is checked once, however many files have it.

If schemas disagree on the type of a column, the type in most files wins: schemas are merged in the order of how many
files agree with them. A schema that contradicts those before it does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from metastore.columns.column import Column
from metastore.crawl.files.formats import TYPED
from metastore.crawl.read.facts import FileFacts
from metastore.crawl.read.widen import known, widen, widest

__all__ = ["Columns", "Misfit", "fit_all", "fit_most", "known_columns"]

Columns = tuple[Column, ...]
_SHARED: Final = 0.7
"""Of two files, the one with fewer columns must share at least this part of its columns with the other one."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A file that does not fit. ``stranger``: it has another format or other columns, not only other types."""

    file: FileFacts
    reason: str
    stranger: bool = False


def fit_all(files: Sequence[FileFacts]) -> Columns | None:
    """Return the columns of the one table of ``files``, or None if they are not one table."""
    if len({_style(file) for file in files}) > 1:
        return None
    schemas = list(_counted(files))
    largest = _names(max(schemas, key=len))
    if any(_is_strange(schema, largest) for schema in schemas):
        return None
    merger = _Merger(_widener(files[0], schemas))
    return merger.columns(schemas) if all(merger.add(schema) is None for schema in schemas) else None


def fit_most(files: Sequence[FileFacts], *, any_columns: bool) -> tuple[Columns, list[FileFacts], list[Misfit]]:
    """Return the columns of most files, the files that fit them, and those that do not.

    ``any_columns``: files fit however few columns they share.
    """
    style = Counter(map(_style, files)).most_common(1)[0][0]
    misfits = [Misfit(f, _other_style(f, style), stranger=True) for f in files if _style(f) != style]
    alike = [file for file in files if _style(file) == style]
    schemas = _counted(alike)
    usual = _names(max(schemas, key=lambda schema: (schemas[schema], len(schema))))
    merger = _Merger(_widener(alike[0], list(schemas)))
    reasons: dict[Columns, str | None] = {}
    for schema in _by_agreement(schemas):
        strange = not any_columns and _is_strange(schema, usual)
        reasons[schema] = "has other columns than the other files of its table" if strange else merger.add(schema)
    fitting = []
    for file, reason in zip(alike, _of_each(alike, reasons), strict=True):
        if reason is None:
            fitting.append(file)
        else:
            misfits.append(Misfit(file, reason, not any_columns and _is_strange(file.columns, usual)))
    return merger.columns([schema for schema in schemas if reasons[schema] is None]), fitting, misfits


def known_columns(columns: Columns) -> Columns:
    """Return ``columns`` of a text format, with string for each column without values."""
    return tuple(replace(column, type=known(column.type)) for column in columns)


_Style = tuple[str, tuple[tuple[str, str], ...]]
_Widen = Callable[[str, str], str | None]


def _style(file: FileFacts) -> _Style:
    return file.format, file.dialect


def _other_style(file: FileFacts, usual: _Style) -> str:
    if file.format != usual[0]:
        return f"is {file.format}, the other files of its table are {usual[0]}"
    own, others = (", ".join(f"{key}={value!r}" for key, value in style) for style in (file.dialect, usual[1]))
    return f"is written with {own or 'no options'}, the other files of its table with {others or 'none'}"


def _counted(files: Iterable[FileFacts]) -> dict[Columns, int]:
    """Return the distinct schemas in the order of files, and how many files have each.

    Most files share one tuple of columns: looking at identities first saves hashing it for every file.
    """
    files = list(files)
    same = Counter(id(file.columns) for file in files)
    counted: dict[Columns, int] = {}
    for columns in {id(file.columns): file.columns for file in files}.values():
        counted[columns] = counted.get(columns, 0) + same[id(columns)]
    return counted


def _of_each(files: Iterable[FileFacts], reasons: dict[Columns, str | None]) -> list[str | None]:
    known_ids: dict[int, str | None] = {}
    of_each = []
    for file in files:
        if id(file.columns) not in known_ids:
            known_ids[id(file.columns)] = reasons[file.columns]
        of_each.append(known_ids[id(file.columns)])
    return of_each


def _by_agreement(schemas: dict[Columns, int]) -> list[Columns]:
    """Return ``schemas`` in order: first those whose types most files have."""
    votes: Counter[tuple[str, str]] = Counter()
    voters: Counter[str] = Counter()
    for schema, count in schemas.items():
        for column in schema:
            votes[column.name, column.type] += count
            voters[column.name] += count

    def agreement(schema: Columns) -> tuple[float, int]:
        share = min((votes[c.name, c.type] / voters[c.name] for c in schema), default=1.0)
        return -share, -schemas[schema]

    return sorted(schemas, key=agreement)


def _names(columns: Columns) -> frozenset[str]:
    return frozenset(column.name for column in columns)


def _is_strange(columns: Columns, others: frozenset[str]) -> bool:
    names = _names(columns)
    return len(names & others) < _SHARED * min(len(names), len(others))


def _widener(file: FileFacts, schemas: Sequence[Columns]) -> _Widen:
    guessed = file.format not in TYPED
    return widest if guessed and len({_names(schema) for schema in schemas}) == 1 else widen


class _Merger:
    """The columns of the schemas that were added so far."""

    def __init__(self, widener: _Widen) -> None:
        self.widener = widener
        self.types: dict[str, str] = {}

    def add(self, schema: Columns) -> str | None:
        """Add a schema. Return None, or the reason why it contradicts those before it."""
        types = {}
        for column in schema:
            old = self.types.get(column.name, column.type)
            kind = self.widener(old, column.type)
            if kind is None:
                return f"has the column {column.name!r} as {column.type}, other files of its table have it as {old}"
            types[column.name] = kind
        self.types |= types
        return None

    def columns(self, schemas: Sequence[Columns]) -> Columns:
        """Return the merged columns of ``schemas``, all of which were added, in the order of first appearance."""
        if len(schemas) == 1:
            return schemas[0]
        columns: dict[str, Column] = {}
        strict: Counter[str] = Counter()
        for schema in schemas:
            for column in schema:
                columns.setdefault(column.name, column)
                strict[column.name] += not column.nullable
        return tuple(
            replace(column, type=self.types[name], nullable=strict[name] < len(schemas))
            for name, column in columns.items()
        )
