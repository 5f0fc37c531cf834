"""Find out whether a template has unfinished jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore.kinds.job.run import ENDED
from metastore.kinds.job.template import JobTemplate
from metastore.transaction.unchecked import unchecked

if TYPE_CHECKING:
    from metastore.transaction.transaction import Transaction

__all__ = ["has_unfinished"]


def has_unfinished(tx: Transaction, template: JobTemplate) -> bool:
    """Whether a template has an unfinished job, even one that the caller does not see: a job belongs to its submitter.

    If there is none, the commit of ``tx`` requires that there still is none.
    """
    lake, name = template.names
    jobs = unchecked(tx).jobs.list((lake,))
    return any(job.template == name and job.status not in ENDED for job in jobs)
