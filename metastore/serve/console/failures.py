"""Pages about errors, and how to continue."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import Final

from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    DropPending,
    EntityNotFound,
    HistoryGone,
    MetastoreError,
    PermissionDenied,
    StoreClosed,
)
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS
from metastore.managers.pages.dropped import dropped_at
from metastore.names import format_path, parse_path
from metastore.serve.console.asked import Asked, Several, Shown, url
from metastore.serve.console.contents import Row, lost

__all__ = ["failure", "told"]

_TITLES: Final = {
    HistoryGone: "This moment is gone",
    DropPending: "It is being dropped",
    PermissionDenied: "You may not see this",
}
_DROPPED: Final = 5

_LOG = logging.getLogger("metastore.serve")
_SIBLINGS: Final = 1000
"""How many siblings of each kind are compared with a name that does not exist."""
_AGAIN: Final = 5
"""After how many seconds the page about an unavailable database tries again."""


def failure(
    title: str, message: str, status: int, *, near: list[tuple[str, str, str]] | None = None, again: int | None = None
) -> Shown:
    """Return the page of a failure. ``near``: (kind, path, address) of entities that the user may have meant."""
    return Shown(
        "failure.html", title, {"message": message, "near": near or [], "again": again, "dropped": []}, status=status
    )


def told(asked: Asked | None, error: Exception) -> Shown:
    """Return the page about an error."""
    match error:
        case Several():
            near = [(one.kind, one.path, url("place", path=one.path, kind=one.kind)) for one in error.found]
            shown = failure("Which one?", "Several kinds share this path.", 300, near=near)
        case EntityNotFound():
            shown = _not_found(asked, error)
        case BackendUnavailable() | DeadlineExceeded() | StoreClosed():
            _LOG.warning("a page of the console failed: %s", error)
            message = "The database does not answer in time. This page tries again by itself."
            shown = failure("The database is away", message, 503, again=_AGAIN)
        case MetastoreError():
            title = next((title for of, title in _TITLES.items() if isinstance(error, of)), "This cannot be shown")
            shown = failure(title, str(error), error.http_status)
        case _:
            _LOG.error("a page of the console failed", exc_info=error)
            shown = failure("Something went wrong", "This is a bug. The server's log has the details.", 500)
    return shown


def _not_found(asked: Asked | None, error: EntityNotFound) -> Shown:
    """Return the page for a path that does not exist: entities that were dropped there, and similar names."""
    shown = failure("Not found", f"Nothing that you may see is at {error.path}.", 404, near=_near(asked))
    return Shown(shown.template, shown.title, {**shown.values, "dropped": _dropped(asked)}, status=404)


def _dropped(asked: Asked | None) -> list[Row]:
    """Return the entities that were dropped at the requested path, and can be restored: the last ones, newest first."""
    if asked is None:
        return []
    try:
        names = parse_path(asked.query.get("path", ""))
        wanted = asked.text("kind")
        found = list[Entity]()
        for kind in KINDS.values():
            if families_of(kind, len(names)) and wanted in (None, kind.name):
                found += dropped_at(asked.store.manager(kind.name), names)
        found.sort(key=lambda one: one.modified_at, reverse=True)
        return [lost(asked, one) for one in found[:_DROPPED]]
    except MetastoreError:
        return []


def _near(asked: Asked | None) -> list[tuple[str, str, str]]:
    """Return the entities with a similar name that the user may see."""
    if asked is None:
        return []
    try:
        names = parse_path(asked.query.get("path", ""))
        kinds = [kind for kind in KINDS.values() if families_of(kind, len(names))]
        found = list[tuple[str, str, str]]()
        for kind in kinds:
            siblings = asked.reader.manager(kind.name).names_page(names[:-1] or None, size=_SIBLINGS).items
            for name in get_close_matches(names[-1], siblings, n=3, cutoff=0.6):
                path = format_path((*names[:-1], name))
                found.append((kind.name, path, url("place", path=path, kind=kind.name, at=asked.at)))
    except MetastoreError:
        above = _above(asked)
        return [] if above is None else [above]
    return found[:5] or [one for one in [_above(asked)] if one is not None]


def _above(asked: Asked) -> tuple[str, str, str] | None:
    """Return the nearest existing container above the requested path."""
    try:
        names = parse_path(asked.query.get("path", ""))
    except MetastoreError:
        return None
    for depth in range(len(names) - 1, 0, -1):
        for kind in KINDS.values():
            if kind.container and families_of(kind, depth):
                try:
                    if asked.reader.manager(kind.name).exists(names[:depth]):
                        path = format_path(names[:depth])
                        return (kind.name, path, url("place", path=path, kind=kind.name, at=asked.at))
                except MetastoreError:
                    return None
    return None
