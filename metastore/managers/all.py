"""All managers on one session: the common part of a store and a transaction."""

from __future__ import annotations

from typing import cast

from metastore.kinds.registry import KINDS, kind_given
from metastore.kinds.relation import relation_named
from metastore.managers import builtin
from metastore.managers.declared import DeclaredManager
from metastore.managers.manager import Manager
from metastore.managers.models import Models
from metastore.managers.owned import Partitions
from metastore.managers.principals import Groups, Owners, Roles, Users
from metastore.managers.relations.manager import RelationManager
from metastore.managers.sources import Crawls, Sources
from metastore.managers.statistics import Statistics
from metastore.managers.tags_and_policies import Policies, Tags
from metastore.operation.session import ManagerSession


def plural(kind: str) -> str:
    """Return the name of a built-in kind's manager: ``tables``, ``policies``."""
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


class Managers:
    """The managers of all kinds, on one session."""

    def __init__(self, session: ManagerSession) -> None:
        self._session = session
        self.metalakes = builtin.Metalakes(session, KINDS["metalake"])
        self.catalogs = builtin.Catalogs(session, KINDS["catalog"])
        self.schemas = builtin.Schemas(session, KINDS["schema"])
        self.tables = builtin.Tables(session, KINDS["table"])
        self.views = builtin.Views(session, KINDS["view"])
        self.filesets = builtin.Filesets(session, KINDS["fileset"])
        self.topics = builtin.Topics(session, KINDS["topic"])
        self.models = Models(session, KINDS["model"])
        self.functions = builtin.Functions(session, KINDS["function"])
        self.tags = Tags(session, KINDS["tag"])
        self.policies = Policies(session, KINDS["policy"])
        self.users = Users(session, KINDS["user"])
        self.groups = Groups(session, KINDS["group"])
        self.roles = Roles(session, KINDS["role"])
        self.job_templates = builtin.JobTemplates(session, KINDS["job_template"])
        self.jobs = builtin.Jobs(session, KINDS["job"])
        self.owners = Owners(session)
        self.partitions = Partitions(session)
        self.statistics = Statistics(session)
        self.sources = Sources(session)
        self.crawls = Crawls(session)

    def relations(self, name: str) -> RelationManager:
        """Return the manager of a kind of relation, declared with ``ms.Relation`` or built in, by the kind's name.

        Raises InvalidArgument for a relation that this program does not know.
        """
        return RelationManager(self._session, relation_named(name))

    def manager(self, kind: str) -> DeclaredManager:
        """Return the manager of a kind, declared with ``ms.Kind`` or built in, by the kind's name.

        Raises InvalidArgument for a kind that this program does not know.
        """
        declared = kind_given(kind, "; declare others with ms.Kind(…)")
        own = getattr(self, plural(kind), None)
        return cast(DeclaredManager, own) if isinstance(own, Manager) else DeclaredManager(self._session, declared)
