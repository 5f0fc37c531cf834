"""Type hints as a description of JSON: which fields a class has, and which values fit them.

Supported hints: ``str int float bool None Any``, ``X | Y``, ``Literal``, ``tuple[X, ...]`` and ``Sequence[X]`` (lists),
``Mapping[str, X]`` and dataclasses (objects).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from metastore.arguments import shown
from metastore.errors import InvalidArgument

__all__ = ["Hints", "check_fields", "hints_of", "is_list", "is_object", "options"]

Hints = Mapping[str, Any]
_WORDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


@cache
def hints_of(cls: type) -> Hints:
    """Return the types of a class's attributes. Raises NameError for a type not defined at the top of a module."""
    return get_type_hints(cls)


def options(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union; of any other hint, the hint alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def is_list(hint: Any) -> bool:
    """Whether a value of this type is a list in JSON."""
    return get_origin(hint) in (tuple, list, Sequence)


def is_object(hint: Any) -> bool:
    """Whether a value of this type is an object with arbitrary keys in JSON."""
    return get_origin(hint) in (dict, Mapping)


def check_fields(cls: type, given: Mapping[str, Any], where: str) -> None:
    """Raise InvalidArgument for a field of the dataclass ``cls`` that is missing, unknown, or has the wrong type.

    ``where`` precedes the field's name in the message: ``"definition."``.
    """
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in given:
        if name not in known:
            raise InvalidArgument(f"there is no field {where + str(name)!r}; the fields are {', '.join(known)}")
    hints = hints_of(cls)
    for name, field in known.items():
        if name in given:
            _check(given[name], hints[name], where + name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InvalidArgument(f"the field {where + name!r} is missing")


def _check(value: Any, hint: Any, where: str) -> None:
    for option in options(hint):
        if _looks_like(value, option):
            _check_inside(value, option, where)
            return
    raise InvalidArgument(f"the field {where!r} is {_described(hint)}, not {shown(value)}")


def _looks_like(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if is_list(hint):
        return isinstance(value, list | tuple)
    if is_object(hint) or dataclasses.is_dataclass(hint):
        return isinstance(value, Mapping)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(hint, type) and type(value) is hint


def _check_inside(value: Any, hint: Any, where: str) -> None:
    if is_list(hint):
        for at, item in enumerate(value):
            _check(item, get_args(hint)[0], f"{where}[{at}]")
    elif is_object(hint):
        for key, below in value.items():
            _check(key, str, where)
            _check(below, get_args(hint)[1], f"{where}.{key}")
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        check_fields(hint, value, f"{where}.")


def _described(hint: Any) -> str:
    return " or ".join(dict.fromkeys(word for option in options(hint) if (word := _word(option))))


def _word(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(value) for value in get_args(hint))
    if is_list(hint):
        return "a list"
    if is_object(hint) or dataclasses.is_dataclass(hint):
        return "an object"
    return _WORDS.get(hint, "")
