"""Read rows with text that is not UTF-8, which a failing disk or a manual change leaves in a SQLite file.

Python's driver raises an error for such a text, without naming its row. Here the row is returned, with a
:class:`NotUtf8` as its document or changes; the reader that decodes it raises the error that names the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from metastore.errors import UnreadableRow

Row = tuple[Any, ...]
_REFUSING = ("doc", "changes")
"""Every reader of a row decodes one of these columns."""
_JSON = (*_REFUSING, "result", "fences")


class _Undecodable(UnreadableRow, UnicodeError):
    """The error for a text that is not UTF-8.

    Readers that know its row treat it like any other text that is not JSON.
    """


class NotUtf8(bytes):
    """A text that is not UTF-8. ``json.loads`` decodes bytes, and so raises this error."""

    column = ""

    def decode(self, *_: object, **__: object) -> NoReturn:
        """Raise UnreadableRow, which is also a UnicodeError."""
        raise _Undecodable("a row", f"the text in its column {self.column} is not UTF-8")


def is_no_text(error: Exception) -> bool:
    """Return whether the driver raised this for a text that is not UTF-8. Such an error has no SQLite error code."""
    return getattr(error, "sqlite_errorcode", None) is None and str(error).startswith("Could not decode to UTF-8")


def all_rows(connection: Any, text: str, parameters: dict[str, Any]) -> list[Row]:
    """Return the rows of a statement that only reads."""
    try:
        rows: list[Row] = connection.execute(text, parameters).fetchall()
    except Exception as error:
        if not is_no_text(error):
            raise
        with lenient(connection) as reader:
            return list(reader.rows(text, parameters))
    return rows


@contextmanager
def lenient(connection: Any) -> Iterator[LenientReader]:
    """Let a connection read every text until the block ends. For reads that may be slower."""
    reader, before = LenientReader(connection), connection.text_factory
    connection.text_factory = reader.decoded
    try:
        yield reader
    finally:
        connection.text_factory = before


class LenientReader:
    """A reader of rows with any text."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._found = False

    def decoded(self, text: bytes) -> str | NotUtf8:
        """Return the driver's value for a text."""
        try:
            return text.decode()
        except UnicodeDecodeError:
            self._found = True
            return NotUtf8(text)

    def rows(self, text: str, parameters: dict[str, Any] | Sequence[Any] = ()) -> Iterator[Row]:
        """Return the rows of a statement. The statement is sent at once, but the rows are read one by one."""
        cursor = self._connection.execute(text, parameters)
        columns = [column[0] for column in cursor.description]
        return (_marked(row, columns) if self._found else row for row in cursor)


def _marked(row: Row, columns: Sequence[str]) -> Row:
    """Return a row; if one of its texts is not UTF-8, its document and changes raise an error when they are decoded.

    Names and principals show their bytes as lone surrogates.
    """
    refusing: NotUtf8 | None = None
    for column, value in zip(columns, row, strict=True):
        if isinstance(value, NotUtf8):
            refusing, value.column = value, column
    if refusing is None:
        return row

    def shown(column: str, value: Any) -> Any:
        if column in _REFUSING:
            return refusing
        return str(value, errors="surrogateescape") if isinstance(value, NotUtf8) and column not in _JSON else value

    return tuple([shown(column, value) for column, value in zip(columns, row, strict=True)])
