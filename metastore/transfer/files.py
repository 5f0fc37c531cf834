"""Open the target of an export or the source of an import: a stream of bytes, or the name of a file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from metastore.arguments import shown
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.names import exact_text
from metastore.port.parts import open_part
from metastore.transfer.resume import require_export

__all__ = ["PARTIAL", "FileOrName", "file_name", "reading", "writing"]

PARTIAL = ".partial"
"""The suffix of the name of an unfinished export."""
_PRIVATE = 0o600
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)

FileOrName = BinaryIO | str | os.PathLike[str]
"""An open binary stream, which stays open, or the name of a file."""


@contextmanager
def writing(to: FileOrName) -> Iterator[tuple[BinaryIO, bool]]:
    """Yield a stream to write to, and whether it is a file that may hold the beginning of an export.

    A new file is written beside the existing one. When the new file is on the disk, it replaces the existing one, with
    the same mode.
    """
    name = file_name(to)
    if name is None:
        yield _binary(to, "write"), False
        return
    path = Path(os.path.realpath(name))  # replace the file that a link leads to, not the link
    beside = path.parent / (path.name + PARTIAL)
    with _opening(name, "written"):
        existing = path.stat() if path.exists() else None
        is_file = existing is None or stat.S_ISREG(existing.st_mode)
        if existing is not None and is_file:
            with path.open("rb") as old:
                require_export(old)
        opened = os.fdopen(open_part(beside), "r+b") if is_file else path.open("wb")
    if not is_file:  # a pipe, or /dev/null, is written directly
        with _room(name), opened as stream:
            yield stream, False
        return
    with _room(name):  # closing the stream tries again to write, so its errors count too
        with opened as stream:
            try:
                yield stream, True
                stream.flush()
                os.fchmod(stream.fileno(), _PRIVATE if existing is None else stat.S_IMODE(existing.st_mode))
                os.fsync(stream.fileno())
                # renamed while the stream holds the lock, so that no other export can open the partial file before
                beside.replace(path)
            except BaseException:
                # keep a part that was written: the next export continues there
                if beside.exists() and not beside.stat().st_size:
                    beside.unlink()
                raise
        _sync(path.parent)


@contextmanager
def _room(name: str) -> Iterator[None]:
    """Turn an error of the disk into BackendUnavailable."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise  # another cause than the disk, such as the caller's progress bar on a broken pipe
        message = f"the file {_told(name)} cannot be written: {error.strerror}; make room there, then export again"
        raise BackendUnavailable(message) from None


def _sync(folder: Path) -> None:
    """Write the folder to disk, so that a rename survives a crash."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def reading(source: FileOrName) -> Iterator[BinaryIO]:
    """Yield a stream to read from. Raises InvalidArgument for a file that cannot be opened or read."""
    name = file_name(source)
    if name is None:
        yield cast(BinaryIO, _Source(_binary(source, "read"), "the stream"))
        return
    with _opening(name, "read"):
        opened = Path(name).open("rb")  # noqa: SIM115  (it is closed below)
    with opened as stream:
        yield cast(BinaryIO, _Source(stream, f"the file {_told(name)}"))


class _Source:
    """A stream whose errors become InvalidArgument. ``what`` begins the message."""

    def __init__(self, stream: BinaryIO, what: str) -> None:
        self._stream, self._what = stream, what

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._stream, name, None)
        if method is None:
            raise InvalidArgument(f"{self._what} has no method {name}; give a binary stream that can seek")

        def call(*args: Any) -> Any:
            try:
                return method(*args)
            except Exception as error:  # each kind of stream has its own errors, such as zlib.error
                raise InvalidArgument(f"{self._what} cannot be read: {error}; open it again, or copy it") from error

        vars(self)[name] = call  # so that Python finds the method without __getattr__ for the next line
        return call


@contextmanager
def _opening(name: str, what: str) -> Iterator[None]:
    """Turn an error of the operating system into InvalidArgument. ``what`` ends the phrase "the file cannot be …"."""
    try:
        yield
    except OSError as error:
        message = f"the file {_told(name)} cannot be {what}: {error.strerror}; check its name, and who may use it"
        raise InvalidArgument(message) from None


def _told(name: str) -> str:
    """Return the name of a file for a message. Escapes replace its bytes that are not UTF-8."""
    is_text = not any("\ud800" <= char <= "\udfff" for char in name)
    return shown(name) if is_text else repr(os.fsencode(name))[1:80]


def file_name(place: FileOrName) -> str | None:
    """Return the name of a file; None: ``place`` is a stream. Raises InvalidArgument for an impossible name."""
    if not issubclass(type(place), str | os.PathLike):  # type() decides: an object may fake __class__
        return None
    name = exact_text(os.fspath(cast(str, place)), "the name of a file")
    try:
        odd = not name or b"\x00" in os.fsencode(name)
    except UnicodeEncodeError:
        odd = True
    if odd:
        raise InvalidArgument(f"no file can have the name {shown(name)}; give another")
    return name


def _binary(stream: object, what: str) -> BinaryIO:
    if not callable(getattr(stream, what, None)) or hasattr(stream, "encoding"):
        raise InvalidArgument(f"an export is bytes; give the name of a file or a binary stream, not {shown(stream)}")
    return cast(BinaryIO, stream)
