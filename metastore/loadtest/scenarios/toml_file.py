"""A user's scenario in a TOML file; docs/loadtest.md describes the keys."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from metastore.errors import InvalidArgument
from metastore.loadtest.scenarios.mix import READS, WRITES, Mix

__all__ = ["read_scenario"]

_DEFAULTS: Final = {"schemas": 10, "tables": 1000}
_KEYS: Final = ("name", "schemas", "tables", "skew", "reads", "think", "weights")


def read_scenario(path: Path) -> Mix:
    """Return the scenario in ``path``. Raises InvalidArgument, which names the file and the problem."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"the scenario {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not TOML: {error}") from None
    try:
        mix = _mix(document, path.stem)
        mix.check()
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None
    return mix


def _mix(document: dict[str, Any], stem: str) -> Mix:
    for key in document:
        if key not in _KEYS:
            raise InvalidArgument(f"unknown key {key!r}; known are {', '.join(_KEYS)}")
    weights = document.get("weights")
    if weights is not None and not isinstance(weights, dict):
        raise InvalidArgument(f"weights is a table, [weights], of {', '.join((*READS, *WRITES))}")
    name = document.get("name", stem)
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"name is a text, not {name!r}")
    return Mix(**{**_DEFAULTS, **document, "name": name})
