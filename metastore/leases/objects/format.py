"""The formats of lock files, ours and Hudi's: the key and the encoding of the object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from metastore.leases.objects import hudi, lock_file
from metastore.leases.objects.lock_file import LockFile

__all__ = ["FORMATS", "Format"]

_LONGEST = 180
"""The longest quoted name: S3 allows keys of 1024 bytes, file systems names of 255. A hash replaces the rest."""
_PLACE = ".metastore-place"


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    ``own``: the file has a queue, a history and its name, and every program that writes the file keeps the token.

    ``key`` returns the key of a lease's lock file, ``place`` the key of its place's id, and ``queue`` the folder of its
    waiters. ``within`` returns the second part of a lease's name in a store, after the id of the place.
    """

    own: bool
    key: Callable[[str], str]
    place: Callable[[str], str]
    queue: Callable[[str], str]
    within: Callable[[str], str]
    encode: Callable[[LockFile], bytes]
    decode: Callable[[str | None, bytes, str], LockFile]


def _file(name: str) -> str:
    quoted = quote(name, safe="")
    if len(quoted) > _LONGEST:
        quoted = f"{quoted[: _LONGEST - 42]}%%{sha256(name.encode()).hexdigest()[:40]}"
    return quoted


def _key(name: str) -> str:
    return f"{_file(name)}.json"


def _queue(name: str) -> str:
    return f"{_file(name)}.queue"


FORMATS: Mapping[str, Format] = {
    "metastore": Format(
        True,
        _key,
        lambda _: ".metastore-place",
        _queue,
        lambda name: name,
        lock_file.encode,
        lock_file.decode,
    ),
    "hudi": Format(False, hudi.key, hudi.place, hudi.place, lambda _: "table_lock", hudi.encode, hudi.decode),
}
