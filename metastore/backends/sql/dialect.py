"""The parts of shared statements that PostgreSQL and SQLite write differently."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from metastore.backends.sql.comments import without_comments

Fetch = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]
"""A function that runs a statement with named parameters, and returns its rows."""


def from_named(sql: str, parameter: str) -> str:
    """Return ``sql`` with each ``:name`` replaced by a parameter of the form ``parameter``."""
    return re.sub(r"(?<!:):([a-z]\w*)", lambda m: parameter.replace("name", m[1]), sql)


@dataclass(frozen=True)
class Dialect:
    """The parts in which the statements of the two databases differ."""

    parameter: str
    """A parameter, with ``name`` in place of its name."""
    join: str
    """The join of ``{table} {alias}`` by ``{condition}``, for each row on the left."""
    left_join: str
    """The same join, which also keeps a row without a match."""
    array: str
    """The function that makes a JSON array of its arguments."""
    gathered: str
    """The function that gathers the values of all rows in a JSON array."""
    nested: str
    """The function that marks JSON from a sub-select, so that it is not read as text."""
    text: str
    """The suffix that makes a database return JSON as a text."""
    fits: str
    """Whether the text ``{}`` matches the pattern ``{}``, a parameter."""
    contains: str
    """Whether the text ``{}`` contains the text ``{}``, a parameter."""
    distinct: str
    """The word that selects distinct rows ``c``, ordered by key and id, without reading all of them first."""
    held: str
    """A sub-select of the number of guards in ``:guards…`` that hold."""
    select_ids: str
    """A sub-select of the ids in the parameter ``:ids``."""
    select_chosen: str
    """A sub-select of the ids in the parameter ``:chosen``."""
    w_ids: str
    """A table ``w`` of (id) from the parameter ``:ids``."""
    w_places: str
    """A table ``w`` of (id) from the parameter ``:places``."""
    w_names: str
    """A table ``w`` of (name) from the parameter ``:names``."""
    w_slots: str
    """A table ``w`` of (from_id, slot) from the parameters of many relations."""
    w_owned: str
    """A table ``w`` of (n, owner_id, name) from the parameters of many owned rows."""
    in_families: str
    """Whether ``g.family`` is among the parameter ``:families``."""
    in_kinds: str
    """Whether ``n.kind`` is among the parameter ``:kinds``, or that is NULL."""
    w_paths: Callable[[Sequence[str]], str]
    """A table ``w`` from the parameters of ``past.Many``: ``start`` (an id), and these columns (texts)."""

    def statement(self, sql: str) -> str:
        """Return ``sql`` without comments, each ``:name`` as a parameter of this database."""
        return from_named(without_comments(sql), self.parameter)

    def each(self, table: str, alias: str, condition: str) -> str:
        """Join ``table`` by ``condition``, for each row on the left."""
        return self.join.format(table=table, alias=alias, condition=condition)

    def maybe(self, table: str, alias: str, condition: str) -> str:
        """Do the same, but also keep a row without a match."""
        return self.left_join.format(table=table, alias=alias, condition=condition)

    def rows(self, columns: str) -> str:
        """Gather these columns of all rows in a JSON array of JSON arrays."""
        return f"{self.gathered}({self.array}({columns}))"
