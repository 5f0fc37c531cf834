"""Find out whether a missing entity, or the entity with a taken name, is being dropped in steps.

A call that succeeds runs no code of this module: an entity in a drop is not live, so every read and guard treats it as
a dropped entity. Only a call that failed asks these questions.

The two questions are asked at two instants. If a rollback of the drop makes the entity live between them, both answers
miss it, although it was always live or in the drop. So the second answer counts only if one snapshot shows that the
name is neither live nor in a drop, below the same parents. Otherwise :class:`LookAgain` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from metastore.errors import DropPending, EntityAlreadyExists
from metastore.kinds.registry import KINDS, kind_named
from metastore.names import format_path
from metastore.operation.guards import key_under
from metastore.port.backend import Guards, Reads
from metastore.port.commit import Commit
from metastore.port.conditions import DROPPING, LIVE
from metastore.port.records import Child, Lookup, Node, RowPage, all_pages, path_of
from metastore.port.writes import Insert, Update
from metastore.retry.runner import Conflict

_PAGE = 1000

_Children = Callable[[int, str, str, int, tuple[str, int], int, Guards], RowPage[Child]]


class LookAgain(Conflict):
    """A missing entity exists now, or its parents have changed. A read follows the path again; a write runs again.

    Each repetition means that another commit has succeeded, so a repeated read does not wait.
    """

    def __init__(self, path: str) -> None:
        super().__init__("ancestor", f"{path} was dropped, restored, renamed or moved meanwhile", 0.0)
        self.path = path


def pending_at(backend: Reads, where: Lookup, nodes: Sequence[Node]) -> DropPending | None:
    """Return the error for a path that ends after ``nodes``, if the next entity on the path is being dropped.

    Raises LookAgain if a live entity has the name by now, or the path has changed since ``nodes`` were read.
    """
    at = len(nodes)
    if at >= len(where.names):
        return None
    above = nodes[-1] if nodes else where.start
    path = format_path(([n.name for n in nodes] if nodes else []) + [where.names[at]])
    guards = [(node.id, node.scope_version) for node in nodes]
    page = backend.named(above.id, where.families[at], key_under(above, where.names[at]), guards)
    if not page.held or any(row.state == LIVE for row in page.rows):
        raise LookAgain(path)
    return _first(backend, page.rows, path)


def dropping_named(children: _Children, parent_id: int, family: str, key: str) -> RowPage[Child]:
    """Return the entity that is being dropped under a name, for reads of one instant that found no live one there."""
    for kind in [kind for kind in KINDS.values() if kind.family == family]:
        rows = children(parent_id, kind.name, family, DROPPING, (key, 0), 1, ()).rows
        if rows and rows[0].key == key:
            return RowPage(True, rows)
    return RowPage(True, [])


def keys_dropping(backend: Reads, parent_id: int, family: str) -> set[str]:
    """Return the keys of all children of a family that are being dropped."""
    keys = set[str]()
    for kind in [kind for kind in KINDS.values() if kind.family == family]:
        read = partial(_dropping_after, backend, parent_id, kind.name, family)
        keys.update(row.key for row in all_pages(read, ("", 0), lambda row: (row.key, row.node.id), _PAGE))
    return keys


def _dropping_after(backend: Reads, parent_id: int, kind: str, family: str, after: tuple[str, int]) -> list[Child]:
    return list(backend.children(parent_id, kind, family, DROPPING, after, _PAGE, ()).rows)


def pending_above(backend: Reads, chain: Sequence[Node]) -> DropPending | None:
    """Return the error for an entity that is not live, if it or an ancestor is being dropped.

    Raises LookAgain if the entity is live by now.
    """
    known = backend.by_id([node.id for node in chain])
    for at, one in enumerate(known):
        if one is not None and one.state == DROPPING:
            path = path_of(chain[: at + 1])
            return _error(backend, chain[at].id, one.record.version, path)
    if known[-1] is not None and known[-1].live:
        raise LookAgain(path_of(chain))
    return None


def pending_name(backend: Reads, behind: Reads | None, commit: Commit) -> DropPending | EntityAlreadyExists | None:
    """Return the error for a commit that could not take a name, if an entity that is being dropped has the name.

    ``behind``: for a user, the reads without its rights. If they alone show the entity, the error has only the path.
    """
    pending = _pending_name(backend, commit)
    if pending is not None or behind is None:
        return pending
    hidden = _pending_name(behind, commit)
    return None if hidden is None else EntityAlreadyExists(hidden.path or "")


def _pending_name(backend: Reads, commit: Commit) -> DropPending | None:
    for write in commit.writes:
        path = write.event.path_after or ""
        if isinstance(write, Insert):
            pending = pending_named(backend, write.parent_id, write.family, write.key, path)
        elif isinstance(write, Update) and write.place is not None:
            family = kind_named(write.event.kind).family
            pending = pending_named(backend, write.place.parent_id, family, write.place.key, path)
        else:
            pending = None
        if pending is not None:
            return pending
    return None


def pending_named(backend: Reads, parent_id: int, family: str, key: str, path: str) -> DropPending | None:
    """Return the error for the name of an entity that is being dropped; the error names ``path``."""
    return _first(backend, backend.named(parent_id, family, key, ()).rows, path)


def _first(backend: Reads, rows: Sequence[Child], path: str) -> DropPending | None:
    pending = [row for row in rows if row.state == DROPPING]
    return _error(backend, pending[0].node.id, pending[0].version, path) if pending else None


def _error(backend: Reads, entity_id: int, version: int, path: str) -> DropPending | None:
    """Return the error that names the drop's operation; None: the drop was finished, and the entity is gone."""
    steps = backend.history(entity_id, version - 1, 1)
    return DropPending(steps[0].operation_id, path=path) if steps else None
