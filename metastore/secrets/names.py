"""Names under which catalog services keep secrets in plain text; servers with their API mask these properties.

Gravitino's catalogs mark such properties as hidden, each provider its own, and its server shows a mask instead. The
names here are the ones that it marks, and similar ones: a server here does not know all providers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from metastore.kinds.secret import Secret
from metastore.secrets.declared import KEY, PATTERNS, is_plain

__all__ = ["MASK", "hidden_in", "hiding_secrets", "is_hidden", "without_secrets"]

MASK: Final = "******"
"""The text that replaces a hidden value, as in Gravitino's answers. No client can set it."""
_SECRET: Final = re.compile(r"password|passwd|secret|private-?key|account-?key|sas-?token", re.IGNORECASE)
_SETTINGS: Final = frozenset({KEY, PATTERNS})


def is_hidden(key: str) -> bool:
    """Whether a property of this name holds a secret."""
    return _SECRET.search(key) is not None and key not in _SETTINGS


def _is_plain(value: str) -> bool:
    return not isinstance(value, Secret) and is_plain(value)


def hidden_in(properties: Mapping[str, str]) -> list[str]:
    """Return the keys whose values are secrets in plain text. References and encrypted values are not hidden."""
    return [key for key, value in properties.items() if is_hidden(key) and _is_plain(value)]


def hiding_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties as any client may see them, with the mask in place of plain secrets.

    References and handles are the text that clients write, such as ``secret:env:NAME``.
    """
    texts = {key: value.stored if isinstance(value, Secret) else value for key, value in properties.items()}
    return {**texts, **dict.fromkeys(hidden_in(properties), MASK)}


def without_secrets(value: Any, key: str = "") -> Any:
    """Return a JSON value with the mask in place of plain secrets, however deep they are; ``key``: the value's name."""
    if isinstance(value, Mapping):
        return {name: without_secrets(one, key if is_hidden(key) else name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one, key) for one in value]
    return MASK if isinstance(value, str) and value and is_hidden(key) and _is_plain(value) else value
