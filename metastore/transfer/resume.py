"""Read the file of an export that was stopped, and decide whether the export can be continued."""

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
    """The lines that are kept: the header, the counts and sums, the last line, and its end in the file."""

    header: Header
    tally: Tally
    last: bytes | None
    """The last line; None: only the header is kept."""
    end: int


class _Useless(Exception):
    """Nothing is kept, for the reason in the message. No message: the export is complete, and a new one replaces it."""


def kept_lines(stream: BinaryIO, wanted: Header, now: str | None) -> tuple[Kept | None, str | None]:
    """Return the lines to keep, or None and the reason why an unfinished export is not kept.

    ``now`` is the position of the newest change; None: it may have changed just now. Raises InvalidArgument if the file
    is not an export.
    """
    first = stream.readline()
    if not first:
        return None, None
    try:
        if not first.endswith(b"\n") and _begins(first):
            raise _Useless("not even its first line was whole")
        kept = _read(stream, _header(first), len(first))
        _compare(kept.header, wanted, now)
    except _Useless as why:
        return None, str(why) or None
    return kept, None


def require_export(stream: BinaryIO) -> None:
    """Raise InvalidArgument unless a file is empty, or holds an export or the beginning of one."""
    first = stream.readline()
    if first and (first.endswith(b"\n") or not _begins(first)):
        _header(first)


def _begins(first: bytes) -> bool:
    return first[:21] == b'{"metastore":"export"'[: len(first)]


def _header(first: bytes) -> Header:
    try:
        return parse_header(first)
    except InvalidArgument as error:
        raise InvalidArgument(f"the file exists and is not an export; choose another name: {error}") from None


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


def _compare(header: Header, wanted: Header, now: str | None) -> None:
    if now is None or header.position != now:
        raise _Useless("the database has changed since, or was changing then")
    if replace(header, position=None, time="") != replace(wanted, position=None, time=""):
        raise _Useless("it was begun with other options, or by another version of this program")
