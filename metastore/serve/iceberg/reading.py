"""Read parameters: namespaces, identifiers and pages."""

from __future__ import annotations

from typing import Any, Final, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, Field, TypeAdapter
from pyiceberg.typedef import Identifier

from metastore.serve.web import BadRequest, Call

__all__ = ["RENAME", "Name", "Rename", "body", "namespace", "page_size", "table", "token", "view", "with_token"]

T = TypeVar("T")
_SEPARATOR: Final = "\x1f"
_LARGEST_PAGE: Final = 1000


class Name(BaseModel):
    """A table or a view, as bodies name it."""

    namespace: list[str] = Field(min_length=1)
    name: str = Field(min_length=1)

    @property
    def names(self) -> Identifier:
        """The namespace's names and its own."""
        return (*self.namespace, self.name)


class Rename(BaseModel):
    """The body that renames a table or a view."""

    source: Name
    destination: Name


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
    return shape.validate_python(call.body)


def page_size(call: Call) -> int | None:
    """Return the size of the page that is asked for; None: all at once."""
    text = call.query.get("pageSize")
    if text is None:
        return None if call.query.get("pageToken") is None else _LARGEST_PAGE
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise BadRequest(f"pageSize is a positive integer, not {text[:20]!r}")
    return min(int(text), _LARGEST_PAGE)


def token(call: Call) -> str | None:
    """Return the token of the page that is asked for; None: the first one. An empty token means the first one too."""
    return call.query.get("pageToken") or None


def with_token(answer: dict[str, Any], next_token: str | None) -> dict[str, Any]:
    """Return the answer with the token of the next page."""
    return answer if next_token is None else {**answer, "next-page-token": next_token}
