"""Give a job a folder, which is removed when the job ends. If its server is killed, the next server removes it.

A server holds a lock on each folder that it uses. The system releases the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["job_folder", "sweep"]

_PREFIX: Final = "metastore-job-"


@contextmanager
def job_folder() -> Iterator[Path]:
    """Give an empty folder, and remove it afterwards, whatever the job has done to it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # None: a starting server has removed the folder, because it seemed to be a dead server's
        if (lock := _locked(folder)) is not None:
            break
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def sweep() -> None:
    """Remove the folders of jobs whose server was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if (lock := _locked(folder)) is not None:
            _remove(folder)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return a descriptor that locks a folder of this user; None if another process has locked it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened = os.fstat(descriptor)
        if opened.st_uid == os.geteuid() and os.path.samestat(opened, folder.stat()):
            return descriptor
    os.close(descriptor)
    return None


def _remove(folder: Path) -> None:
    if not folder.is_symlink():  # the job may have replaced the folder with a link
        with suppress(OSError):
            folder.chmod(0o700)  # the job may have removed the folder's permissions
        with suppress(OSError):
            # not shutil.rmtree: it recurses and opens a descriptor for each level of folders, and a job may make many
            # levels
            subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)
