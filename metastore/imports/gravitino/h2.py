"""Read a script of H2 (``SCRIPT TO 'file.sql'``): the export of the database of a stopped server.

The rows of its INSERT statements go into a SQLite database in memory, under the same names. H2 writes a text of more
than 4 KiB in parts, into a separate table, before the row that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from metastore.arguments import text_in
from metastore.errors import InvalidArgument

__all__ = ["load_script"]

_CREATE: Final = re.compile(
    r'CREATE (?:MEMORY |CACHED )?TABLE (?:IF NOT EXISTS )?(?:"?\w+"?\.)?"?(\w+)"?\s*\((.*)\)', re.DOTALL
)
_INSERT: Final = re.compile(r'INSERT INTO (?:"?\w+"?\.)?"?(\w+)"?\s*(?:\(([^)]*)\)\s*)?VALUES\s*(.*)', re.DOTALL)
_COLUMN: Final = re.compile(r'\s*[`"]?(\w+)[`"]?\s+\w')
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<unicode>U&'(?:[^']|'')*')|(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)"""
    r"""|(?P<word>NULL|TRUE|FALSE)|SYSTEM_COMBINE_CLOB\((?P<long>\d+)\)|(?P<sign>[(),]))""",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/|;""", re.DOTALL)
"""The end of a statement, and the texts that may contain a semicolon. A doubled quote makes two texts, side by side."""
_ESCAPE: Final = re.compile(r"\\(?:(\\)|\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4}))")
_PARTS: Final = "system_lob_stream"
"""H2's table of the parts of long texts."""
_NO_COLUMN: Final = ("PRIMARY", "UNIQUE", "KEY", "CONSTRAINT", "INDEX")


@contextmanager
def load_script(path: str) -> Iterator[Connection]:
    """Yield a connection to the script's tables. Raises InvalidArgument for a file that is not a script of H2."""
    text = text_in(Path(path), "the script of H2")
    engine = sa.create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            columns: dict[str, list[str]] = {}
            texts: dict[int, str] = {}
            for statement in _statements(text):
                if (match := _CREATE.match(statement)) is not None:
                    _create(connection, match[1].lower(), match[2], columns)
                elif (match := _INSERT.match(statement)) is None:
                    continue
                elif match[1].lower() == _PARTS:
                    _add_parts(match[3], texts)
                else:
                    _insert(connection, match[1].lower(), match[2], match[3], columns, texts)
            yield connection
    finally:
        engine.dispose()


def _statements(text: str) -> Iterator[str]:
    """Yield the statements: a semicolon or dashes inside a text, a quoted name or a comment mean nothing."""
    start = 0
    for match in _WHOLE.finditer(text):
        if match[0] == ";":
            yield _bare(text[start : match.start()])
            start = match.end()
    yield _bare(text[start:])


def _bare(statement: str) -> str:
    """Return a statement without the comments before it."""
    return re.sub(r"\A(?:\s|--[^\n]*\n|/\*.*?\*/)+", "", statement, flags=re.DOTALL)


def _create(connection: Connection, table: str, body: str, columns: dict[str, list[str]]) -> None:
    names = [m[1].lower() for line in _parts(body) if (m := _COLUMN.match(line)) and m[1].upper() not in _NO_COLUMN]
    if table not in columns and names:
        columns[table] = names
        connection.execute(sa.text(f"CREATE TABLE {table} ({', '.join(names)})"))


def _parts(body: str) -> list[str]:
    """Split a text at the commas outside of parentheses and texts; return the parts."""
    parts, depth, start, in_text = [], 0, 0, False
    for at, char in enumerate(body):
        if char == "'":
            in_text = not in_text
        elif not in_text and char in "()":
            depth += 1 if char == "(" else -1
        elif char == "," and not depth and not in_text:
            parts.append(body[start:at])
            start = at + 1
    return [*parts, body[start:]]


def _add_parts(values: str, texts: dict[int, str]) -> None:
    """Add parts of long texts, which come in order; parts of byte strings are skipped."""
    with suppress(InvalidArgument):
        for number, _, part, *_ in _rows(values, _PARTS, texts):
            texts[int(str(number))] = texts.get(int(str(number)), "") + str(part)


def _insert(
    connection: Connection,
    table: str,
    named: str | None,
    values: str,
    columns: dict[str, list[str]],
    texts: dict[int, str],
) -> None:
    if table not in columns:
        return
    names = [name.strip(' "`').lower() for name in named.split(",")] if named else columns[table]
    rows = list(_rows(values, table, texts))
    marks = ", ".join(f":{name}" for name in names)
    statement = sa.text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})")  # noqa: S608  (words of letters)
    if any(len(row) != len(names) for row in rows):
        raise InvalidArgument(f"the script of H2 has a row of {table} with fewer or more values than columns")
    if rows:
        connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows])


def _rows(text: str, table: str, texts: dict[int, str]) -> Iterator[list[object]]:
    at = 0
    row: list[object] | None = None
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or (match["long"] is not None and int(match["long"]) not in texts):
            raise InvalidArgument(
                f"the script of H2 has a value of {table} that cannot be read: {text[at : at + 30]!r}"
            )
        at = match.end()
        if match["sign"] == "(":
            row = []
        elif match["sign"] == ")":
            if row is not None:
                yield row
            row = None
        elif match["sign"] is None and row is not None:
            row.append(_value(match, texts))


def _value(match: re.Match[str], texts: dict[int, str]) -> object:
    if match["long"] is not None:  # a part may end in the middle of a character of UTF-16
        return texts.pop(int(match["long"])).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if match["unicode"] is not None:
        return _ESCAPE.sub(_character, match["unicode"][3:-1].replace("''", "'"))
    if match["text"] is not None:
        return match["text"][1:-1].replace("''", "'")
    if match["number"] is not None:
        return float(match["number"]) if "." in match["number"] else int(match["number"])
    return {"NULL": None, "TRUE": 1, "FALSE": 0}[match["word"].upper()]


def _character(match: re.Match[str]) -> str:
    return "\\" if match[1] else chr(int(match[2] or match[3], 16))
