"""Read parameters: namespaces, identifiers and pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pyiceberg.exceptions import ValidationError as InvalidMetadata
from pyiceberg.typedef import Identifier

from metastore.serve.web import BadRequest, Call

__all__ = [
    "REGISTER",
    "RENAME",
    "Name",
    "Register",
    "Rename",
    "body",
    "flag",
    "namespace",
    "page_size",
    "read_from",
    "table",
    "token",
    "view",
    "with_token",
]

T = TypeVar("T")
_ESCAPED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, InvalidMetadata)
"""The errors that PyIceberg's readers raise for a wrong value; pydantic turns only ValueError into its own."""
_DEEPEST: Final = 64
"""How deep a body may be nested. PyIceberg's readers recurse at each level, also when they read the table later."""
_SEPARATOR: Final = "\x1f"
_LARGEST_PAGE: Final = 1000
"""The largest page, and the size of a page if the client names none."""


class Name(BaseModel):
    """A table or a view, as bodies name it."""

    namespace: list[str] = Field(min_length=1)
    name: str = Field(min_length=1)

    @property
    def names(self) -> Identifier:
        """The names of the namespace, and the name of the table or view."""
        return (*self.namespace, self.name)


class Register(BaseModel):
    """The body that creates a table or a view from a metadata file."""

    name: str = Field(min_length=1)
    metadata_location: str = Field(alias="metadata-location", min_length=1)
    overwrite: bool = False


class Rename(BaseModel):
    """The body that renames a table or a view."""

    source: Name
    destination: Name


REGISTER: Final = TypeAdapter(Register)
RENAME: Final = TypeAdapter(Rename)


def namespace(text: str) -> Identifier:
    """Return the namespace of a parameter: names between unit separators. Some clients encode it twice."""
    if _SEPARATOR not in text and "%1f" in text.lower():
        text = unquote(text)
    return tuple(text.split(_SEPARATOR))


def table(call: Call) -> Identifier:
    """Return the table that the path names."""
    return (*namespace(call.names["namespace"]), call.names["table"])


def view(call: Call) -> Identifier:
    """Return the view that the path names."""
    return (*namespace(call.names["namespace"]), call.names["view"])


def body(call: Call, shape: TypeAdapter[T]) -> T:
    """Return the body as ``shape``. Raises pydantic's ValidationError, which names the field."""
    if not isinstance(call.body, dict):
        raise BadRequest("the request needs a JSON object as its body")
    _check_depth(call.body)
    try:
        return shape.validate_python(call.body)
    except _ESCAPED as error:
        field = next((key for key, value in call.body.items() if _escapes(shape, {key: value})), "body")
        raise BadRequest(f"{field}: a value does not fit its type: {error}") from None


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        parts = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for part in parts for one in part if isinstance(one, dict | list)]
        if not level:
            return
    raise BadRequest(f"the body is nested more than {_DEEPEST} levels deep; use a flatter schema")


def _escapes(shape: TypeAdapter[T], part: dict[str, Any]) -> bool:
    try:
        shape.validate_python(part)
    except ValidationError:
        return False
    except _ESCAPED:
        return True
    return False


@contextmanager
def read_from(location: str) -> Iterator[None]:
    """Read a metadata file that the client names.

    If a local file cannot be read, raise BadRequest: the name is wrong.
    """
    try:
        yield
    except OSError as error:
        if urlsplit(location).scheme not in ("", "file"):
            raise  # the object storage does not answer now
        raise BadRequest(f"metadata-location: the file cannot be read: {error}") from None


def flag(call: Call, name: str) -> bool:
    """Return whether a parameter of the query is true; without it: False."""
    text = call.query.get(name, "false")
    if text.lower() not in ("true", "false"):
        raise BadRequest(f"{name} is true or false, not {text[:20]!r}")
    return text.lower() == "true"


def page_size(call: Call) -> int | None:
    """Return the requested size of a page; None: all at once."""
    text = call.query.get("pageSize")
    if text is None:
        return None if call.query.get("pageToken") is None else _LARGEST_PAGE
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise BadRequest(f"pageSize is a positive integer, not {text[:20]!r}")
    return min(int(text), _LARGEST_PAGE)


def token(call: Call) -> str | None:
    """Return the token of the requested page; None: the first one. An empty token means the first one too."""
    return call.query.get("pageToken") or None


def with_token(answer: dict[str, Any], next_token: str | None) -> dict[str, Any]:
    """Return the answer with the token of the next page."""
    return answer if next_token is None else {**answer, "next-page-token": next_token}
