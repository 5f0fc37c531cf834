"""Read an export twice: first to check all of it before anything is written, then to write it.

Besides one line, only ``structure`` keeps something in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import BinaryIO, Final, NamedTuple

from metastore.errors import InvalidArgument
from metastore.transfer.digest import of_header
from metastore.transfer.ends import End, Ends
from metastore.transfer.lines import (
    Body,
    EntityLine,
    Footer,
    Header,
    Line,
)
from metastore.transfer.parser import parse_header, parse_line
from metastore.transfer.structure import Structure
from metastore.transfer.tally import Tally

__all__ = ["Checked", "Progress", "body", "check", "read_header"]

_LONGEST: Final = 64 << 20
"""The longest line that is read (bytes). A document has at most a megabyte."""
_TAIL: Final = 4096
"""The longest last line of a complete file (bytes)."""
_TELL: Final = 1000

Progress = Callable[[float], None]
"""A function that is called with the share of the file that was read, from 0 to 1."""


class Checked(NamedTuple):
    """An export that is complete and correct."""

    header: Header
    footer: Footer
    top: EntityLine | None
    """The line of the first entity; None: there is none."""
    families: Mapping[End, tuple[str, ...]]
    """See :class:`Ends`."""


def read_header(stream: BinaryIO) -> Header:
    """Return the header of an export, and leave the stream after it. Raises InvalidArgument."""
    if not stream.seekable():
        raise InvalidArgument(
            "an import reads its file twice, and this stream can be read only once; save it to a file first"
        )
    stream.seek(0)
    try:
        return parse_header(_line(stream))
    except InvalidArgument as error:
        raise _on(1, error) from None


def check(stream: BinaryIO, progress: Progress, *, folds: bool = False) -> Checked:
    """Read a whole export. Raises InvalidArgument, with the number of the line, if it is bad.

    It checks each line alone, the counts and the checksum. Each entity must come after its parent and be allowed below
    it, and its kind must be able to read its document. A partition must come before its statistics. No row and no
    relation may come twice, nor may two names become equal where names are folded (``folds``: above the file's first
    entity). With ids, relations must lead to entities of the file. Of an unknown kind, it checks only the fields that
    all kinds have.
    """
    header = read_header(stream)
    _require_end(stream, header)
    first = _first(stream)
    tally, structure = Tally(), Structure(header, folds=folds)
    for number, raw, line in _lines(stream, header, progress):
        if isinstance(line, Footer):
            _finish(structure, number)
            if stream.read(1):
                raise InvalidArgument(
                    f"line {number}: the export ends here, but the file continues; import each export alone"
                )
            _compare(number, line, replace(tally.footer(), header=line.header and of_header(first)))
            _find_ends(stream, header, structure.ends)
            return Checked(header, line, structure.top, structure.ends.families)
        try:
            structure.check(line, raw)
        except InvalidArgument as error:
            raise _on(number, error) from None
        tally.add(line, raw)
    raise InvalidArgument("the file is not whole: its last line is missing")


def _finish(structure: Structure, number: int) -> None:
    try:
        structure.finish()
    except InvalidArgument as error:
        raise _on(number, error) from None


def _find_ends(stream: BinaryIO, header: Header, ends: Ends) -> None:
    """Find the entities that relations lead to. It reads the file again, because they may come before the relations."""
    if ends.wanted:
        for _, line in body(stream, header, lambda _: None):
            if isinstance(line, EntityLine):
                ends.entity(line)
        ends.finish()


def _first(stream: BinaryIO) -> bytes:
    """Return the first line, and leave the stream after it."""
    stream.seek(0)
    return _line(stream)


def body(stream: BinaryIO, header: Header, progress: Progress) -> Iterator[tuple[int, Body]]:
    """Yield the lines after the header of a checked file, with their numbers."""
    read_header(stream)
    for number, _, line in _lines(stream, header, progress, checked=True):
        if isinstance(line, Footer):
            return
        yield number, line


def _on(number: int, error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument(f"line {number}: {error}")


def _line(stream: BinaryIO) -> bytes:
    raw = stream.readline(_LONGEST)
    if raw and not raw.endswith(b"\n"):
        if len(raw) == _LONGEST:
            raise InvalidArgument(f"it is longer than {_LONGEST} bytes, so this is not an export")
        raise InvalidArgument("the file ends inside this line; export again, or copy the file again")
    return raw


def _lines(
    stream: BinaryIO, header: Header, progress: Progress, *, checked: bool = False
) -> Iterator[tuple[int, bytes, Line]]:
    at = stream.tell()
    size = max(1, stream.seek(0, os.SEEK_END))
    stream.seek(at)
    number = 1
    while True:
        number += 1
        try:
            raw = _line(stream)
            if not raw:
                return
            yield number, raw, parse_line(raw, header, checked=checked)
        except InvalidArgument as error:
            raise _on(number, error) from None
        at += len(raw)
        if number % _TELL == 0:
            progress(at / size)


def _require_end(stream: BinaryIO, header: Header) -> None:
    """Read the last line first, so that a large file that was cut off is refused at once."""
    at = stream.tell()
    stream.seek(max(at, stream.seek(0, os.SEEK_END) - _TAIL))
    tail = stream.read()
    stream.seek(at)
    last = tail.removesuffix(b"\n").rpartition(b"\n")[2]
    try:
        whole = tail.endswith(b"\n") and isinstance(parse_line(last, header), Footer)
    except InvalidArgument:
        whole = False
    if not whole:
        raise InvalidArgument(
            "the file is not whole: its last line has no counts; export again (the same command goes on where it was "
            "stopped), or copy the file again"
        )


def _compare(number: int, said: Footer, actual: Footer) -> None:
    for what in ("header", "entities", "owned", "relations", "operations", "checksum", "hash"):
        if getattr(said, what) != getattr(actual, what):
            raise InvalidArgument(
                f"line {number}: it says {what} {getattr(said, what)}, and the lines before it give "
                f"{getattr(actual, what)}; the file was changed or damaged: export again, or copy it again"
            )
