"""Submit a job: fill in a template, and queue the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument
from metastore.jobs.home import database_of, home_in
from metastore.kinds.job.filled import filled
from metastore.kinds.job.run import Job
from metastore.managers.target import Target

if TYPE_CHECKING:
    from metastore.store import Store
    from metastore.transaction.transaction import Transaction

__all__ = ["filled", "submit"]


def submit(store: Store, template: Target, conf: Mapping[str, str] | None = None) -> Job:
    """Queue a run of a template, and return the job. ``conf`` maps the names of placeholders to their values.

    A placeholder without a value stays as it is. The commit requires the template, so a template that is dropped at
    this moment gets no job. Raises EntityNotFound without the template (create it first), InvalidArgument for a
    ``conf`` that is not a mapping of strings, NotInUse below a disabled metalake (enable it first).
    """
    values = _values(conf or {})
    name, database = f"job-{SYSTEM.operation_id().hex}", database_of(store)

    def queue(tx: Transaction) -> Job:
        definition = tx.job_templates.load(template)
        command = filled(definition, values)
        return tx.jobs.create(
            (*definition.names[:-1], name),
            template=definition.name,
            type=definition.type,
            command=command,
            conf=values,
            home=home_in(database, definition),
        )

    return store.run(queue)


def _values(conf: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(conf, Mapping) or not all(isinstance(x, str) for pair in conf.items() for x in pair):
        raise InvalidArgument("a job's configuration maps the names of placeholders to strings")
    return dict(conf)
