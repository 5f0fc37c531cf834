"""The formats of lock files, ours and Hudi's: the key of the object, and how it is encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from metastore.leases.objects import hudi, lock_file
from metastore.leases.objects.lock_file import LockFile

__all__ = ["FORMATS", "Format"]

_LONGEST = 180
"""The longest quoted name. S3 allows keys of 1024 bytes, file systems names of 255; a hash replaces the rest."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``own``: the file holds a token, a queue, a history and its name."""

    own: bool
    key: Callable[[str], str]
    encode: Callable[[LockFile], bytes]
    decode: Callable[[str | None, bytes, str], LockFile]


def _key(name: str) -> str:
    quoted = quote(name, safe="")
    if len(quoted) > _LONGEST:
        quoted = f"{quoted[: _LONGEST - 42]}%%{sha256(name.encode()).hexdigest()[:40]}"
    return f"{quoted}.json"


FORMATS: Mapping[str, Format] = {
    "metastore": Format(True, _key, lock_file.encode, lock_file.decode),
    "hudi": Format(False, hudi.key, hudi.encode, hudi.decode),
}
