"""Objects as local files, replaced by a check and an atomic rename.

A read takes no lock, because a file is only ever replaced as a whole. A new file is created by linking a complete draft
to a name that must be free. A file is replaced in four steps. Open it. Lock it (flock, which does not wait: a busy file
is Unsettled). Check that the name still leads to it, and that it is the expected version. Rename the draft over it.
Only the process that has the lock of the current file may rename, so exactly one of several does. The lock lasts for
these few system calls, and ends with the process. A process that is stopped between them blocks only this lease, until
it continues or ends.

This is exact on a local POSIX file system, between processes of one kernel. It is not exact on NFS, SMB, FUSE or a file
system that several machines mount: there, renames may not be atomic, or locks may not be shared.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from metastore.clock import Clock
from metastore.errors import BackendUnavailable
from metastore.leases.objects.client import ConditionFailed, Found, Unsettled

__all__ = ["FileObjects"]

_PASSING = (errno.EINTR, errno.EAGAIN, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)


class FileObjects:
    """The files of a folder."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock

    def get(self, key: str) -> Found | None:
        try:
            with self._explained():
                data = (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None
        return Found(data, _etag(data))

    def put(self, key: str, data: bytes, etag: str | None) -> str:
        path = self._folder / key
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.parent / f"{self._clock.operation_id().hex}.draft"
            try:
                _write(draft, data)
                try:
                    if etag is None:
                        os.link(draft, path)
                    else:
                        _replace(path, draft, etag)
                except (FileExistsError, FileNotFoundError):
                    raise ConditionFailed from None
            finally:
                with suppress(FileNotFoundError):
                    draft.unlink()
            _sync(path.parent)
        return _etag(data)

    def keys(self, folder: str = "") -> Iterator[str]:
        with self._explained():
            inside = (self._folder / folder).rglob("*")
            files = [path for path in inside if path.suffix != ".draft" and path.is_file()]
        yield from (path.relative_to(self._folder).as_posix() for path in files)

    def delete(self, key: str) -> None:
        with self._explained():
            (self._folder / key).unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _PASSING:
                raise Unsettled(error.strerror) from error
            raise BackendUnavailable(f"lock files cannot be kept in {self._folder}: {error.strerror}") from error


def _etag(data: bytes) -> str:
    return sha256(data).hexdigest()  # each write has a nonce, so two versions are never equal


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, draft: Path, etag: str) -> None:
    with path.open("rb") as current:
        try:
            fcntl.flock(current, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unsettled("another process is replacing the file") from None
        try:
            if not _leads_to(path, current.fileno()):
                raise ConditionFailed
            if _etag(current.read()) != etag:
                raise ConditionFailed
            draft.replace(path)
        finally:
            fcntl.flock(current, fcntl.LOCK_UN)  # at once, because a forked child may have the descriptor too


def _leads_to(path: Path, descriptor: int) -> bool:
    return os.path.samestat(path.stat(), os.fstat(descriptor))


def _sync(folder: Path) -> None:
    """Write the folder to disk, so that the new name survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
