"""Write an export from one snapshot, so that it shows one instant while other programs write.

It keeps in memory an object for each entity that can have children, and a few hundred documents; never a whole table.
On PostgreSQL, a read-only transaction, which takes no locks, stays open meanwhile.

An export that was stopped is continued after the last complete line of its file, if the feed has no new changes.

The snapshot and the file belong to the process that began the export, even if the caller's functions fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import BinaryIO, TypeVar

from metastore.clock import Clock, process_id
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.feed.feed import newest_up_to
from metastore.kinds.entity import Entity, utc
from metastore.port.backend import Backend, Guards
from metastore.port.snapshot import TableSnapshot, Watermark
from metastore.port.unreadable import Unreadable
from metastore.transfer.content import lines_of
from metastore.transfer.digest import of_header
from metastore.transfer.lines import Body, Footer, Header, Numbers, write
from metastore.transfer.outcomes import Exported
from metastore.transfer.resume import Kept, kept_lines
from metastore.transfer.tally import Tally
from metastore.transfer.walk import GuardRow, batched, find
from metastore.version import __version__

__all__ = ["Progress", "RightsChanged", "export"]

Progress = Callable[[int], None]
"""A function that is called from time to time with the number of lines so far."""


class RightsChanged(Exception):
    """The user's right may have been taken away before the instant of the export. Nothing was written."""


T = TypeVar("T")
_PATIENCE = 1.0
"""How long to wait for running writers, so that the header can have a position (seconds)."""
_CHUNK = 500
"""How many lines are written at once."""


def export(
    backend: Backend,
    clock: Clock,
    stream: BinaryIO,
    target: Entity | None,
    *,
    ids: bool,
    history: bool,
    resume: bool = False,
    progress: Progress | None = None,
    unreadable: Unreadable | None = None,
    rests: Guards = (),
) -> Exported:
    """Write ``target`` and all below it (None: everything); see the module.

    With ``resume``, the stream may hold the beginning of an export. ``rests``: scope versions on which the right to
    export depends; they must hold at the instant of the export. Raises EntityNotFound, InvalidArgument, RightsChanged.
    """
    if target is not None and (ids or history):
        raise InvalidArgument("ids and history belong to a whole database; export without a path")
    watermark = _watermark(backend, clock)
    position = None if watermark is None else newest_up_to(backend, watermark.position)
    time = utc(backend.now()).isoformat()
    progress, unreadable = _in_one_process(progress or _silent), unreadable and _in_one_process(unreadable)
    with backend.snapshot() as snapshot:
        if rests and not _holds(snapshot, rests):
            raise RightsChanged
        root, names = (None, None) if target is None else find(snapshot, target.id, target.path)
        header = Header(
            names,
            ids or history,
            history,
            position,
            time,
            __version__,
            _numbers(snapshot) if ids or history else None,
        )
        # if writers have drawn positions since, the snapshot may show changes after ``position``
        now = position if watermark is not None and snapshot.numbers()[1] == watermark.position else None
        kept, restarted = kept_lines(stream, header, now) if resume and unreadable is None else (None, None)
        if resume:
            _cut(stream, 0 if kept is None else kept.end)
        try:
            return replace(_write(snapshot, stream, root, header, kept, progress, unreadable), restarted=restarted)
        except _Differs:
            restarted = "its content differs from the present one"
        _cut(stream, 0)
        return replace(_write(snapshot, stream, root, header, None, progress, unreadable), restarted=restarted)


def _holds(snapshot: TableSnapshot, scopes: Guards) -> bool:
    """Whether these (id, scope version) are true at the instant of the snapshot."""
    columns, ids = ("id", "scope_version"), [i for i, _ in scopes]
    return {*scopes} == {(row[0], row[1]) for row in snapshot.rows("guard", columns, ("id",), ids)}


def _cut(stream: BinaryIO, end: int) -> None:
    stream.seek(end)
    stream.truncate()


def _in_one_process(function: Callable[[T], object]) -> Callable[[T], None]:
    """Wrap a caller's function: if it forks, the child gets InvalidArgument before it reads or writes any more."""
    process = process_id()

    def call(told: T) -> None:
        function(told)
        if process != process_id():
            raise InvalidArgument(
                "a forked child has continued its parent's export; it wrote nothing; end the child inside of the "
                "function that forked it (os._exit), and let it begin an export of its own"
            )

    return call


def _silent(_: int) -> None:
    """Report no progress."""


def _write(
    snapshot: TableSnapshot,
    stream: BinaryIO,
    root: GuardRow | None,
    header: Header,
    kept: Kept | None,
    progress: Progress,
    unreadable: Unreadable | None,
) -> Exported:
    lines = 0 if kept is None else kept.tally.footer().lines - 1
    out = _Output(stream, header, kept, progress)
    out.put(lines_of(snapshot, root, header, Tally() if kept is None else kept.tally, unreadable))
    footer = out.finish()
    counts = (footer.lines, footer.entities, footer.owned, footer.operations, footer.hash, footer.checksum)
    return Exported(*counts, (header if kept is None else kept.header).position, lines, relations=footer.relations)


def _watermark(backend: Backend, clock: Clock) -> Watermark | None:
    """Return a position up to which later snapshots show all; None: writers took too long, or this is a replica."""
    try:
        watermark = backend.watermark()
        ends = clock.monotonic() + _PATIENCE
        while not backend.decided(watermark):
            if clock.monotonic() > ends:
                return None
            clock.sleep(0.005)
    except BackendUnavailable:  # a replica draws no transaction id
        return None
    return watermark


def _numbers(snapshot: TableSnapshot) -> Numbers:
    ((collected, forgotten),) = snapshot.rows("info", ("collected_seq", "forgotten"), ("id",))
    return Numbers(*snapshot.numbers(), collected, forgotten)


class _Differs(Exception):
    """The file's last line differs from the one that would be written now."""


class _Output:
    """The output stream, with the counts and sums of the lines in it."""

    def __init__(self, stream: BinaryIO, header: Header, kept: Kept | None, progress: Progress) -> None:
        self._stream, self._root, self._progress = stream, header.root, progress
        self._header = write(header if kept is None else kept.header, None)
        self._tally = Tally() if kept is None else kept.tally
        self._last = None if kept is None else kept.last
        if kept is None:
            stream.write(self._header)

    def put(self, lines: Iterable[Body]) -> None:
        """Write the lines. The first one must equal the last kept line, if there is one."""
        for chunk in batched(lines, _CHUNK):
            texts = [write(line, self._root) for line in chunk]
            if self._last is not None:
                if texts[0] != self._last:
                    raise _Differs
                del texts[0], chunk[0]
                self._last = None
            for line, text in zip(chunk, texts, strict=True):
                self._tally.add(line, text)
            self._stream.write(b"".join(texts))
            self._stream.flush()  # flushed, so that a child that is forked in the next call cannot write it again
            self._progress(self._tally.entities + self._tally.owned + self._tally.operations)

    def finish(self) -> Footer:
        """Write the last line."""
        footer = replace(self._tally.footer(), header=of_header(self._header))
        self._stream.write(write(footer, None))
        self._stream.flush()
        return footer
