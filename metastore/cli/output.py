"""How things are written: for people with rich, for programs as JSON. Names and texts of users are never markup.

What could move the cursor, change colours or turn the direction of writing is shown as an escape.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from metastore.kinds.change import EntityChange
from metastore.names import format_path
from metastore.plain import plain

__all__ = [
    "change_text",
    "console",
    "grid",
    "one_line",
    "safe",
    "short",
    "table",
    "tell",
    "time",
    "write_json",
    "write_table",
]

_WIDTH = 100
# beside what JSON escapes by itself: DEL, C1, what turns the direction of writing, line ends, lone surrogates
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TURNS = {chr(c) for c in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def console(*, stderr: bool = False) -> Console:
    """Return a console that takes every text as it is; 100 columns where no terminal says otherwise."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def write_table(out: Console, shown: Table) -> None:
    """Write a table; where no terminal shows it, without blanks at the ends of lines."""
    if out.is_terminal:
        out.print(shown)
        return
    with out.capture() as captured:
        out.print(shown)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def safe(text: str) -> str:
    """Return ``text`` without anything that a terminal would obey; line feeds stay."""
    if text.isprintable():
        return text
    return "".join(_escape(c) if c != "\n" and _obeyed(c) else c for c in text)


def _obeyed(char: str) -> bool:
    return char in _TURNS or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # how Python holds a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Return ``text`` in one line; blanks inside it stay, for they can belong to a name."""
    return re.sub(r"\s*[\t\r\n]\s*", " ", text.strip("\t\r\n"))


def tell(message: str) -> None:
    """Write one line to stderr; a password in a URL is not shown."""
    hidden = re.sub(r"(://[^:/@\s]*):[^\s]*@", r"\1:***@", message)
    sys.stderr.write(f"metastore: {safe(one_line(hidden))}\n")


def short(text: str, limit: int = 60) -> str:
    """Return the beginning of ``text``, in one line."""
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def time(value: datetime) -> str:
    """Return a time in UTC, to the second."""
    return value.strftime("%Y-%m-%d %H:%M:%S")


def table(*headers: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table; nothing in it is cut off. Columns in ``right`` hold numbers."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        found.add_column(header, overflow="fold", justify="right" if header in right else "left")
    return found


def grid(rows: Mapping[str, object]) -> Table:
    """Return facts, one per line; those that are None or empty are left out."""
    found = Table.grid(padding=(0, 2))
    found.add_column(style="bold", no_wrap=True)
    found.add_column(overflow="fold")
    for key, value in rows.items():
        if value is not None and value != "":
            found.add_row(key, Text(safe(str(value))))
    return found


def write_json(value: object, *, lines: bool = False) -> None:
    """Write ``value`` as a JSON document; with ``lines`` in one line."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(plain(value), ensure_ascii=ascii_only, indent=None if lines else 2)
    sys.stdout.write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def change_text(change: EntityChange) -> str:
    """Return one change in words of its own: its name, and the fields that are set."""
    fields = change.to_json()
    fields.pop("change", None)
    return f"{change.tag}({', '.join(f'{k}={_value(v)}' for k, v in fields.items() if v is not None)})"


def _value(value: object) -> str:
    return format_path(map(str, value)) if isinstance(value, list) else short(str(value))
