"""Write text for people with rich, and JSON for programs. Names and texts of users are never interpreted as markup.

A character that could move the cursor, change colours or turn the direction of writing is shown as an escape.
On a terminal, text wraps between words. Elsewhere a line is never wrapped, so that other programs can read it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from metastore.kinds.change import EntityChange
from metastore.names import format_path
from metastore.plain import plain

__all__ = [
    "Line",
    "change_text",
    "console",
    "grid",
    "one_line",
    "safe",
    "short",
    "table",
    "tell",
    "time",
    "write",
    "write_json",
    "write_lines",
    "write_table",
]

Line = Sequence[tuple[str, str]]
"""One line of output: texts, each with its style ("": plain)."""

_WIDTH = 100
_GAP = 2
"""The blanks between two columns of a table."""
_ENDLESS = 100_000
"""A width that no text exceeds, to measure texts with."""
_BLOCK = 500
"""How many lines rich renders at once: to render each line separately takes ten times as long."""
# the characters that JSON does not escape: DEL, C1, changes of the writing direction, line ends, lone surrogates
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TURNS = {chr(c) for c in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """End the command as code without rich does: rich itself would exit with 1."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console without markup; without a terminal, it is 100 columns wide."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return _Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def write(out: Console, text: str, style: str = "") -> None:
    """Write one text, as :func:`write_lines` does."""
    write_lines(out, [[(text, style)]])


def write_lines(out: Console, lines: Iterable[Line]) -> None:
    """Write lines in blocks, as they arrive; each text is made :func:`safe`."""
    rest = iter(lines)
    width = out.width if out.is_terminal else _ENDLESS
    while block := list(islice(rest, _BLOCK)):
        segments = [segment for line in block for segment in _segments(out, line, width)]
        out.print(Segments(segments), crop=False, end="")


def _segments(out: Console, line: Line, width: int) -> Iterator[Segment]:
    texts = [(safe(text), style) for text, style in line]
    # a character is at most two columns wide, and counting columns takes longer than counting characters
    if sum([len(text) for text, _ in texts]) > width // 2 and sum(cell_len(text) for text, _ in texts) > width:
        yield from out.render(Text.assemble(*texts))
        return
    for text, style in texts:
        yield Segment(text, Style.parse(style) if style else None)
    yield Segment.line()


def write_table(out: Console, shown: Table) -> None:
    """Write a table without breaking words; if its columns do not fit side by side, write each row as a list."""
    if shown.show_header and _set_widths(out, shown) > out.width:
        headers = [str(column.header) for column in shown.columns]
        for number, row in enumerate(zip(*[column.cells for column in shown.columns], strict=True)):
            if number:
                out.print()
            _write_fitted(out, _facts((header, cell) for header, cell in zip(headers, row, strict=True) if str(cell)))
    else:
        _write_fitted(out, shown)


def _write_fitted(out: Console, shown: Table) -> None:
    """Write a table as wide as its longest words need, without blanks at the ends of lines."""
    width = max(_set_widths(out, shown), out.width)
    for line in Segment.split_lines(out.render(shown, out.options.update(width=width))):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
        out.print(Segments([*line, Segment.line()]), crop=False, end="")


def _set_widths(out: Console, shown: Table) -> int:
    """Give each column the width of its longest word, and share the remaining width; return the width of the table."""
    wide = out.options.update(width=_ENDLESS)
    sizes = [[Measurement.get(out, wide, cell) for cell in (column.header, *column.cells)] for column in shown.columns]
    wanted = [max(size.maximum for size in column) for column in sizes]
    least = [max(size.minimum for size in column) for column in sizes]
    least = [most if column.no_wrap else word for column, most, word in zip(shown.columns, wanted, least, strict=True)]
    room = max(0, out.width - _GAP * (len(least) - 1) - sum(least))
    # columns that need the least get their width first, so that the others share all that is left
    for chosen, at in enumerate(sorted(range(len(least)), key=lambda at: wanted[at] - least[at])):
        more = min(wanted[at] - least[at], room // (len(least) - chosen))
        shown.columns[at].width = least[at] + more
        room -= more
    return sum(column.width or 0 for column in shown.columns) + _GAP * (len(least) - 1)


def safe(text: str) -> str:
    """Return ``text`` with an escape for each control character of terminals; line feeds stay."""
    if text.isprintable():
        return text
    return "".join(_escape(c) if c != "\n" and _obeyed(c) else c for c in text)


def _obeyed(char: str) -> bool:
    return char in _TURNS or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # Python decodes a byte that is not UTF-8 into such a character
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Return ``text`` in one line; blanks inside it stay, because they may belong to a name."""
    return re.sub(r"\s*[\t\r\n]\s*", " ", text.strip("\t\r\n"))


def tell(message: str) -> None:
    """Write one line to stderr, wrapped only on a terminal; a password in a URL is not shown."""
    hidden = re.sub(r"(://[^:/@\s]*):[^\s]*@", r"\1:***@", message)
    write(console(stderr=True), f"metastore: {one_line(hidden)}")


def short(text: str, limit: int = 60) -> str:
    """Return the beginning of ``text``, in one line."""
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def time(value: datetime) -> str:
    """Return a time in UTC, to the second."""
    return value.strftime("%Y-%m-%d %H:%M:%S")


def table(*headers: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table. The columns in ``right`` hold numbers, and align right."""
    empty = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        empty.add_column(header, overflow="fold", justify="right" if header in right else "left")
    return empty


def grid(rows: Mapping[str, object]) -> Table:
    """Return a table of facts, one per line; those that are None or empty are left out."""
    return _facts((key, Text(safe(str(value)))) for key, value in rows.items() if value is not None and value != "")


def _facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    facts = Table.grid(padding=(0, _GAP))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for key, value in rows:
        facts.add_row(key, value)
    return facts


def write_json(value: object, *, lines: bool = False) -> None:
    """Write ``value`` as a JSON document; with ``lines``, in one line."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(plain(value), ensure_ascii=ascii_only, indent=None if lines else 2)
    sys.stdout.write(_OBEYED.sub(lambda obeyed: f"\\u{ord(obeyed[0]):04x}", text) + "\n")


def change_text(change: EntityChange) -> str:
    """Return one change as text: its name, and the fields that are set."""
    fields = change.to_json()
    fields.pop("change", None)
    return f"{change.tag}({', '.join(f'{k}={_value(v)}' for k, v in fields.items() if v is not None)})"


def _value(value: object) -> str:
    return format_path(map(str, value)) if isinstance(value, list) else short(str(value))
