"""Parse the values of options: ``key=value``, ``name:type``, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from metastore.columns.column import Column
from metastore.errors import InvalidArgument
from metastore.kinds.change import EntityChange
from metastore.kinds.read_changes import changes_from_list
from metastore.names import parse_path

__all__ = ["column", "json_changes", "json_value", "pair", "pairs", "typed"]


def pair(text: str, option: str, shape: str = "KEY=VALUE") -> tuple[str, str]:
    """Return the texts before and after the separator of ``shape``. Raises InvalidArgument without it or the first."""
    left, separator, right = text.partition("=" if "=" in shape else ":")
    if not separator or not left:
        raise InvalidArgument(f"{option} takes {shape}, not {text!r}")
    return left, right


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return ``key=value`` options as a mapping. Raises InvalidArgument for a key that is given twice."""
    mapping: dict[str, str] = {}
    for text in texts:
        key, value = pair(text, option)
        if key in mapping:
            raise InvalidArgument(f"{option} names {key!r} twice; give it once")
        mapping[key] = value
    return mapping


def typed(text: str, option: str) -> tuple[tuple[str, ...], str]:
    """Return the path of a column and the text after the colon, as in ``address.city:string``.

    The first colon outside back-quotes ends the path, so ``point:struct<x: int>`` has the path ``point``.
    """
    name, type_ = _split_at_colon(text)
    if not name or not type_:
        raise InvalidArgument(f"{option} takes NAME:TYPE, such as amount:decimal(10,2), not {text!r}")
    return parse_path(name), type_


def _split_at_colon(text: str) -> tuple[str, str]:
    quoted = False
    for at, char in enumerate(text):
        if char == "`":
            quoted = not quoted
        if char == ":" and not quoted:
            return text[:at], text[at + 1 :].strip()
    return text, ""


def column(text: str, option: str) -> Column:
    """Return the column for ``name:type`` or ``name:type not null``. Raises InvalidArgument."""
    path, type_ = typed(text, option)
    if len(path) != 1:
        raise InvalidArgument(f"{option} adds only top-level columns, not {text!r}; give a struct type instead")
    plain = type_.removesuffix(" not null")
    return Column(path[0], plain, nullable=plain == type_)


def json_value(text: str) -> Any:
    """Return ``text`` parsed as JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def json_changes(text: str) -> list[EntityChange]:
    """Return the changes in ``[{"change": "AddColumn", …}, …]``, or in a single object. Raises InvalidArgument."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"--changes takes JSON: {error}") from None
    return [*changes_from_list(value if isinstance(value, list) else [value])]
