"""Check that new jobs have templates."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.errors import EntityNotFound
from metastore.kinds.change import Doc
from metastore.kinds.job.run import JOB
from metastore.kinds.job.template import JOB_TEMPLATE
from metastore.kinds.kind import Kind
from metastore.names import format_path, parse_path
from metastore.operation.guards import lookup
from metastore.operation.request import View
from metastore.port.conditions import Expect

__all__ = ["templates_of"]


def templates_of(view: View, kind: Kind, metalake: tuple[str, ...], docs: Iterable[Doc]) -> tuple[Expect, ...]:
    """Return what the commit of new jobs expects: their templates as they are now; other kinds have none.

    Raises EntityNotFound unless the metalake has the template of each job, InvalidArgument for what cannot be a name.
    """
    if kind is not JOB:
        return ()
    paths = list(dict.fromkeys([parse_path((*metalake, doc["template"])) for doc in docs]))
    expected = list[Expect]()
    for path, there in zip(paths, view.backend.resolve([lookup(JOB_TEMPLATE, path) for path in paths]), strict=True):
        if there.record is None:
            raise EntityNotFound(format_path(path))  # nothing more: a user must not learn of a hidden one
        expected.append(Expect(there.record.chain[-1].id, there.record.version))
    return tuple(expected)
