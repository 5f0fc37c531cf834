"""The home of a job: the database, and the metalake in it, to which the job was submitted.

A copy of a database (an imported export, a copied file, a restored dump, a database made from a template) has the jobs
of the original too. The original runs them, and a second run could send the same mails again. So a copy leaves them
alone, unless its operator says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore.kinds.entity import Entity

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["database_of", "home_in"]


def database_of(store: Store) -> str:
    """Return the id of the database that a store has open. It reads the database, because a restore changes the id."""
    return store._session.backend.identify().database  # noqa: SLF001  (no caller of the library needs it)


def home_in(database: str, entity: Entity) -> str:
    """Return the home of the jobs in an entity's metalake.

    The entity must come from a load: an entity of the feed does not have its metalake's id.

    The metalake counts because an import may copy a metalake within one database.
    """
    return f"{database}/{entity.record.chain[0].id}"
