"""Check whether all clients read a path of a location as the same folder. Pure.

Clients differ: some cut a location at ``?`` or ``#``, some decode ``%2F``, and a store or a proxy may resolve ``..``. A
key for a path that they read differently could open another folder than the table's.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_plain"]

_READ_DIFFERENTLY: Final = re.compile(r"[\x00-\x1f\x7f?#]|%[0-9A-Fa-f]{2}")


def is_plain(path: str) -> bool:
    """Whether the path has no empty part, ``.`` or ``..``, no encoded or control character, ``?`` or ``#``."""
    return not {"", ".", ".."}.intersection(path.split("/")) and _READ_DIFFERENTLY.search(path) is None
