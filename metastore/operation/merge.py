"""Apply changes to a document. Pure, so that any process can apply another's changes, and repeat that."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from metastore.errors import InvalidArgument, UnreadableRow
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.head import split
from metastore.kinds.kind import COMMON_CHANGES, check_depth, dump
from metastore.names import format_path
from metastore.port.unreadable import reason

_OF_THE_HEAD = frozenset(COMMON_CHANGES)


def altered(
    text: str,
    names: tuple[str, ...],
    changes: Sequence[EntityChange],
    check: Callable[[Doc, Doc], None] | None = None,
) -> str | None:
    """Return the document after ``changes``; None if they leave it equal.

    Raises the errors of the changes and of ``check``.

    ``names`` is the entity's path. ``check`` is called with the document after the changes, and the document before.
    """
    if check is None and _OF_THE_HEAD.issuperset(map(type, changes)):
        parts = split(text)
        if parts is not None:
            return _of_the_head(*parts, names, changes)
    doc = _readable(text, names)
    before = _order(doc)
    for change in changes:
        change.apply(doc, names)
    if check is not None:
        check(doc, json.loads(text))
    after = dump(doc, names)
    return None if equal(text, after, doc, same_order=_order(doc) == before) else after


def _of_the_head(head: Doc, rest: str, names: tuple[str, ...], changes: Sequence[EntityChange]) -> str | None:
    before = {**head, "properties": {**head["properties"]}}
    for change in changes:
        change.apply(head, names)
    return None if head == before else dump(head, names, rest)


def _readable(text: str, names: tuple[str, ...]) -> Doc:
    """Return a document to which changes can be applied. Raises UnreadableRow."""
    try:
        doc: Doc = json.loads(text)
        {**doc["properties"]}
        check_depth(text, doc)
    except (InvalidArgument, ValueError, TypeError, LookupError, RecursionError) as error:
        raise UnreadableRow(f"the document of {format_path(names)}", reason(error)) from error
    return doc


def equal(old: str, new: str, doc: Doc, *, same_order: bool) -> bool:
    """Whether two texts are the same document; ``doc`` is the new text's document.

    With ``same_order``, a different order of the keys makes a different document.
    """
    may_be_equal = not same_order and len(new) == len(old)
    return new == old or (may_be_equal and doc == json.loads(old))


def _order(doc: Doc) -> list[list[str]]:
    return [list(value) for value in doc.values() if isinstance(value, dict)]
