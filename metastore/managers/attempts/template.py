"""Check that new jobs have templates."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.errors import EntityNotFound
from metastore.kinds.change import Doc
from metastore.kinds.job.run import JOB
from metastore.kinds.job.template import JOB_TEMPLATE
from metastore.kinds.kind import Kind
from metastore.names import format_path
from metastore.operation.guards import lookup
from metastore.operation.request import View

__all__ = ["check_templates"]


def check_templates(view: View, kind: Kind, metalake: tuple[str, ...], docs: Iterable[Doc]) -> None:
    """Raise EntityNotFound unless the metalake has the template of each new job; other kinds have none."""
    if kind is not JOB:
        return
    paths = list(dict.fromkeys([(*metalake, doc["template"]) for doc in docs]))
    found = view.backend.resolve([lookup(JOB_TEMPLATE, path) for path in paths])
    for path, there in zip(paths, found, strict=True):
        if there.record is None:
            raise EntityNotFound(format_path(path))  # nothing more: a user must not learn of a hidden one
