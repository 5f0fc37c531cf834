"""What is in the file of an export that was stopped, and whether the rest can be written behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import BinaryIO

from metastore.errors import InvalidArgument
from metastore.transfer.lines import Footer, Header
from metastore.transfer.parser import parse_header, parse_line
from metastore.transfer.tally import Tally

__all__ = ["Kept", "kept_lines", "require_export"]


@dataclass(frozen=True)
class Kept:
    """The lines that stay: their header, their counts and sums, the last of them, and where it ends."""

    header: Header
    tally: Tally
    last: bytes | None
    """None: there is only the header."""
    end: int


class _Useless(Exception):
    """Why nothing is kept; without a word: it is whole, and another export takes its place."""


def kept_lines(stream: BinaryIO, wanted: Header, now: str) -> tuple[Kept | None, str | None]:
    """Return what is kept of a file, or None and, of an unfinished export, why nothing is.

    ``now`` is the feed's last position. Raises InvalidArgument for a file that is no export.
    """
    first = stream.readline()
    if not first:
        return None, None
    try:
        if not first.endswith(b"\n") and _begins(first):
            raise _Useless("not even its first line was whole")
        found = _read(stream, _header(first), len(first))
        _compare(found.header, wanted, now)
    except _Useless as why:
        return None, str(why) or None
    return found, None


def require_export(stream: BinaryIO) -> None:
    """Raise InvalidArgument for a file that holds something else than an export, or the beginning of one."""
    first = stream.readline()
    if first and (first.endswith(b"\n") or not _begins(first)):
        _header(first)


def _begins(first: bytes) -> bool:
    return first[:21] == b'{"metastore":"export"'[: len(first)]


def _header(first: bytes) -> Header:
    try:
        return parse_header(first)
    except InvalidArgument as error:
        raise InvalidArgument(f"the file is there and is no export, choose another: {error}") from None


def _read(stream: BinaryIO, header: Header, end: int) -> Kept:
    tally, last = Tally(), None
    for number, raw in enumerate(stream, 2):
        if not raw.endswith(b"\n"):
            break
        try:
            line = parse_line(raw, header)
        except InvalidArgument as error:
            raise _Useless(f"line {number} cannot be read: {error}") from None
        if isinstance(line, Footer):
            raise _Useless
        tally.add(line, raw)
        last, end = raw, end + len(raw)
    return Kept(header, tally, last, end)


def _compare(found: Header, wanted: Header, now: str) -> None:
    if found.position != now:
        raise _Useless("the database has changed since, or was changing then")
    if replace(found, position=None, time="") != replace(wanted, position=None, time=""):
        raise _Useless("it was begun with other options, or by another version of this program")
