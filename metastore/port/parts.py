"""Incomplete files, each of which only one process at a time writes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from metastore.errors import BackendUnavailable


def open_part(path: Path) -> int:
    """Open a file for its owner only, and lock it; create it if it is missing. Return its descriptor.

    The lock ends when the descriptor is closed, or with the process. Raises BackendUnavailable while another writes
    the file.
    """
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if _is_taken(number, path):
        os.close(number)
        raise BackendUnavailable(f"another process writes {path}; wait until it has ended, or name another file")
    return number


def _is_taken(number: int, path: Path) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    # by now the opened file may be complete, and have another name
    return not path.exists() or not os.path.samestat(os.fstat(number), path.stat())
