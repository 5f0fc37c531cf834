"""The document of a view: its columns, and its query in each dialect.

    {"columns": [node, …], "last_column_id": n, "representations": {dialect: text, …},
     "default_catalog": name | null, "default_schema": name | null}

Columns are nodes of :mod:`metastore.columns.column`. A dialect is a word in lower case, and occurs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.names import clean_name, clean_text

__all__ = ["SQL", "clean_default", "clean_dialect", "decode_representations", "stored_representations"]


@dataclass(frozen=True)
class SQL:
    """A query in one dialect, such as ``SQL("spark", "SELECT …")``; dialects are kept in lower case."""

    dialect: str
    text: str

    def __post_init__(self) -> None:
        vars(self).update(dialect=clean_dialect(self.dialect))
        if not clean_text(self.text, "a query").strip():
            raise InvalidArgument(f"the query in {self.dialect} is blank")


def clean_dialect(dialect: object) -> str:
    """Return the name of a dialect in lower case."""
    return clean_name(clean_name(dialect).lower())  # cleaned again, because lower() turns some letters into two


def clean_default(name: object, what: str) -> str | None:
    """Return ``name`` if it is None or a text that is not blank: a name, or a path of names."""
    if name is None:
        return None
    text = clean_text(name, what)
    if not text.strip():
        raise InvalidArgument(f"{what} must not be blank; None means that there is none")
    return text


def decode_representations(queries: Mapping[str, str]) -> tuple[SQL, ...]:
    """Return the queries of a document, in its order."""
    return tuple([SQL(dialect, text) for dialect, text in queries.items()])


def stored_representations(representations: Iterable[SQL]) -> dict[str, str]:
    """Return the queries as a document stores them. Raises InvalidArgument if one is not SQL, or a dialect has two."""
    queries: dict[str, str] = {}
    for one in representations:
        if not isinstance(one, SQL):
            raise InvalidArgument(f"a representation is SQL(dialect, text), not {shown(one)}")
        if one.dialect in queries:
            raise InvalidArgument(f"there are two queries in {one.dialect}; a view has one in each dialect")
        queries[one.dialect] = one.text
    return queries
