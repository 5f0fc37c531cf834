"""All managers on one session: what a store and a transaction have in common."""

from __future__ import annotations

from metastore.kinds import KINDS
from metastore.managers.kinds import Catalogs, Filesets, Metalakes, Schemas, Tables
from metastore.managers.owned import Partitions, Statistics
from metastore.session import Session

__all__ = ["Managers"]


class Managers:
    """The managers of all kinds, on one session."""

    def __init__(self, session: Session) -> None:
        self.metalakes = Metalakes(session, KINDS["metalake"])
        self.catalogs = Catalogs(session, KINDS["catalog"])
        self.schemas = Schemas(session, KINDS["schema"])
        self.tables = Tables(session, KINDS["table"])
        self.filesets = Filesets(session, KINDS["fileset"])
        self.partitions = Partitions(session)
        self.statistics = Statistics(session)
