"""Parse the lines of an export. Raises InvalidArgument for any other text.

:mod:`metastore.transfer.reader` checks the relations between lines: parents before children, counts, hashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, NoReturn
from uuid import UUID

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.transfer.lines import (
    AUDIT,
    FORMAT,
    MARKS,
    OPERATION,
    ROW,
    EntityLine,
    Footer,
    Header,
    Line,
    Numbers,
    OperationLine,
    OwnedLine,
    RelationLine,
    default_under,
)
from metastore.verify.history import time_problem

__all__ = ["parse_header", "parse_line"]

_LARGEST: Final = (1 << 63) - 1

Check = Callable[[Any], bool]


def _integer(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _time(value: Any) -> bool:
    return time_problem("", value) is None


def _string(value: Any) -> bool:
    """Whether a value is a text that can be stored, without lone surrogates."""
    return isinstance(value, str) and (value.isascii() or not _HALF.search(value))


_HALF: Final = re.compile("[\ud800-\udfff]")


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _path(value: Any) -> bool:
    return bool(value) and _strings(value)


def _uuid(value: Any) -> bool:
    try:
        return bool(str(UUID(value)) == value)
    except (ValueError, AttributeError, TypeError):
        return False


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


_WORDS: Final[Mapping[Check, str]] = {
    _integer: "an integer from 0 on",
    _time: "microseconds since 1970, before the year 10000",
    _string: "a string",
    _flag: "true or false",
    _object: "an object",
    _strings: "a list of strings",
    _path: "a list of names",
    _uuid: "a UUID",
}
_AUDITED: Final[dict[str, Check]] = {
    "created_by": _or_null(_string),
    "created_at": _time,
    "modified_by": _or_null(_string),
    "modified_at": _time,
}
_ENTITY: Final[dict[str, Check]] = {
    "path": _path,
    "family": _string,
    "kind": _string,
    "in_use": _flag,
    "doc": _object,
    **_AUDITED,
}
_ROWS: Final[dict[str, Check]] = dict.fromkeys(ROW, _integer) | {"key": _string, "fold": _flag}
_OPTIONAL: Final[dict[str, Check]] = dict.fromkeys(MARKS, _integer) | {"mark": _uuid}
_OWNED: Final[dict[str, Check]] = {"owned": _string, "name": _string, "doc": _object, **_AUDITED}
_OWNED_IDS: Final[dict[str, Check]] = {"id": _integer, "version": _integer}
_RELATION: Final[dict[str, Check]] = {
    "relation": _string,
    "to": _or_null(_path),
    "to_kind": _or_null(_string),
    "column": _or_null(_path),
    "value": _string,
    **_AUDITED,
}
_RELATION_IDS: Final[dict[str, Check]] = dict.fromkeys(("id", "version", "slot", "column_id", "to_id"), _integer)
_COLUMNS: Final = (*ROW, *MARKS)
_TEXTS: Final = (
    "kind",
    "principal",
    "path_before",
    "path_after",
    "changes",
    "doc",
    "digest",
    "result",
    "fences",
    "other_path",
)
_NAMES: Final = ("name", "family", "key")
_FLAGS: Final = ("in_use", "fold")
_STEP_NEEDED: Final[dict[str, Check]] = {
    "operation_id": _uuid,
    "ordinal": _integer,
    "action": _string,
    "time": _time,
}
_INTEGERS: Final = [name for name in OPERATION if name not in (*_STEP_NEEDED, *_TEXTS, *_NAMES, *_FLAGS)]
_STEP: Final[dict[str, Check]] = (
    dict.fromkeys(_INTEGERS, _integer) | dict.fromkeys((*_TEXTS, *_NAMES), _string) | dict.fromkeys(_FLAGS, _flag)
)
_HEADER: Final[dict[str, Check]] = {
    "root": _or_null(_path),
    "ids": _flag,
    "history": _flag,
    "position": _or_null(_string),
    "time": _string,
    "version": _string,
    "numbers": _or_null(_object),
}
_FOOTER: Final[dict[str, Check]] = {
    "entities": _integer,
    "owned": _integer,
    "operations": _integer,
    "hash": _string,
    "checksum": _string,
}
_FOOTER_LATER: Final[dict[str, Check]] = {"relations": _integer, "header": _string}
"""The fields that files of earlier releases do not have."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    """Return a number that can be written again: Python reads 1e400 as infinity, which JSON does not have."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"the number {shown(text)} is too large")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _object_of(text: bytes) -> dict[str, Any]:
    try:
        value = _decoder.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"this is not JSON: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"an export's lines are JSON objects, not {shown(value)}")
    return value


def _checked(value: dict[str, Any], fields: Mapping[str, Check], what: str) -> None:
    for name, check in fields.items():
        if name not in value:
            raise InvalidArgument(f"{what} has no {name!r}")
        if not check(value[name]):
            raise InvalidArgument(f"{what} has the {name!r} {shown(value[name])}{_expected(check)}")


def _expected(check: Check) -> str:
    return f"; it must be {_WORDS[check]}" if check in _WORDS else ""


def _optional(value: dict[str, Any], fields: Mapping[str, Check], what: str) -> None:
    _checked(value, {name: check for name, check in fields.items() if name in value}, what)


def parse_header(text: bytes) -> Header:
    """Return the header from the first line of an export."""
    try:
        value = _object_of(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"this is not an export: {error}") from None
    if value.get("metastore") != "export":
        raise InvalidArgument('this is not an export: an export begins with {"metastore": "export", …}')
    if value.get("format") != FORMAT:
        raise InvalidArgument(
            f"the export has format {shown(value.get('format'))}, and this program reads format {FORMAT}; "
            "a newer program may have written it: upgrade this one"
        )
    _checked(value, _HEADER, "the header")
    numbers = None
    if value["ids"]:
        _checked(value["numbers"] or {}, dict.fromkeys(Numbers._fields, _integer), "numbers, in the header,")
        numbers = Numbers(*[value["numbers"][name] for name in Numbers._fields])
    if value["ids"] and value["root"] is not None:
        raise InvalidArgument("the header has ids and a root; ids belong to a whole database")
    if value["history"] and not value["ids"]:
        raise InvalidArgument("the header has history without ids")
    root = None if value["root"] is None else tuple(value["root"])
    return Header(root, value["ids"], value["history"], value["position"], value["time"], value["version"], numbers)


def parse_line(text: bytes, header: Header, *, checked: bool = False) -> Line:
    """Return a line other than the first. ``checked``: an earlier reading found it valid."""
    value = _object_of(text)
    if "path" in value:
        if not checked:
            _check_entity(value, header)
        return _entity(value, header)
    if "owned" in value and "end" not in value:
        if not checked:
            _checked(value, _OWNED, "an owned row")
            _checked(value, _OWNED_IDS if header.ids else {}, "an owned row with ids")
        return _owned(value, header)
    if "relation" in value:
        if not checked:
            _checked(value, _RELATION, "a relation")
            _checked(value, _RELATION_IDS if header.ids else {}, "a relation with ids")
        return _relation(value, header)
    if "operation_id" in value:
        if not checked:
            _checked(value, _STEP_NEEDED, "an operation")
            _optional(value, _STEP, "an operation")
        return OperationLine(tuple([value.get(name) for name in OPERATION]))
    if "end" in value:
        return _footer(value)
    raise InvalidArgument("this is neither an entity, an owned row, a relation, an operation nor the end")


def _footer(value: dict[str, Any]) -> Footer:
    _checked(value, _FOOTER, "the last line")
    _optional(value, _FOOTER_LATER, "the last line")
    # an unknown name may be a changed one, whose sum would stay unchecked
    if other := value.keys() - _FOOTER.keys() - _FOOTER_LATER.keys() - {"end"}:
        raise InvalidArgument(f"the last line has {shown(min(other))}, which this program does not know")
    counts = [value[name] for name in ("entities", "owned", "operations")]
    relations = value.get("relations", 0)
    sums = value["hash"], value["checksum"]
    return Footer(counts[0], counts[1], counts[2], *sums, relations, value.get("header"))


def _check_entity(value: dict[str, Any], header: Header) -> None:
    _checked(value, _ENTITY, "an entity")
    if "under" in value:
        _checked(value, {"under": _strings}, "an entity")
        above = len(value["path"]) - 1
        if len(value["under"]) != above:
            raise InvalidArgument(f"an entity with {above + 1} names is under {above} families")
    if header.ids:
        _checked(value, _ROWS, "an entity with ids")
        _optional(value, _OPTIONAL, "an entity")


def _entity(value: dict[str, Any], header: Header) -> EntityLine:
    names = tuple(value["path"])
    under = tuple(value["under"]) if "under" in value else default_under(header.root, len(names) - 1)
    row: dict[str, Any] = {name: value[name] for name in _COLUMNS if name in value} if header.ids else {}
    audit = {name: value[name] for name in AUDIT}
    return EntityLine(names, under, value["family"], value["kind"], value["in_use"], value["doc"], audit, row)


def _owned(value: dict[str, Any], header: Header) -> OwnedLine:
    audit = {name: value[name] for name in AUDIT}
    ids = (value["id"], value["version"]) if header.ids else (None, None)
    return OwnedLine(value["owned"], value["name"], value["doc"], audit, *ids)


def _relation(value: dict[str, Any], header: Header) -> RelationLine:
    names, column = (None if value[key] is None else tuple(value[key]) for key in ("to", "column"))
    audit = {name: value[name] for name in AUDIT}
    row = {name: value[name] for name in _RELATION_IDS} if header.ids else {}
    return RelationLine(value["relation"], names, value["to_kind"], column, value["value"], audit, row)
