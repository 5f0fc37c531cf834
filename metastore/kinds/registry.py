"""All kinds by name: :data:`KINDS` and :data:`OWNED_KINDS`.

Programs add their own kinds with :class:`metastore.kinds.declared.Kind`. A database may hold kinds that this program
does not know: for these, :func:`kind_named` and :func:`owned_kind_named` return a kind with only the common fields.
"""

from __future__ import annotations

from functools import cache

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.catalog import CATALOG
from metastore.kinds.crawl import CRAWL
from metastore.kinds.drop import DROP
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.fileset import FILESET
from metastore.kinds.function.kind import FUNCTION
from metastore.kinds.job.run import JOB
from metastore.kinds.job.template import JOB_TEMPLATE
from metastore.kinds.kind import Kind, OwnedKind
from metastore.kinds.metalake import METALAKE
from metastore.kinds.model.kind import MODEL
from metastore.kinds.model.version import MODEL_VERSION
from metastore.kinds.origin import ORIGIN
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC
from metastore.kinds.policy import POLICY
from metastore.kinds.principal import GROUP, ROLE, USER
from metastore.kinds.schema import SCHEMA
from metastore.kinds.source import SOURCE
from metastore.kinds.statistic import STATISTIC
from metastore.kinds.table.kind import TABLE
from metastore.kinds.tag import TAG
from metastore.kinds.topic import TOPIC
from metastore.kinds.view.kind import VIEW

__all__ = ["KINDS", "OWNED_KINDS", "RELATIONSHIPS", "kind_named", "owned_kind_named"]

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(METALAKE, CATALOG, SCHEMA, TABLE, VIEW, FILESET, TOPIC, MODEL, FUNCTION),
        *(TAG, POLICY, USER, GROUP, ROLE),
        *(JOB_TEMPLATE, JOB),
    )
}
OWNED_KINDS: dict[str, OwnedKind] = {
    kind.name: kind for kind in (PARTITION, PARTITION_STATISTIC, STATISTIC, MODEL_VERSION, SOURCE, CRAWL, DROP, ORIGIN)
}


RELATIONSHIPS: dict[str, OwnedKind] = {}
"""The kinds of relations as history and the feed show them, by the relation's name. Filled by metastore.kinds.relation.
"""


def kind_named(name: str) -> Kind:
    """Return the kind with this name. An unknown kind may have children, and has only the common fields."""
    return KINDS.get(name) or _unknown(name)


def kind_given(name: object, more: str = "") -> Kind:
    """Return the kind that a caller names. Raises InvalidArgument, whose message ends with ``more``."""
    if not isinstance(name, str) or name not in KINDS:
        raise InvalidArgument(f"there is no kind {shown(name)}; known are {', '.join(sorted(KINDS))}{more}")
    return KINDS[name]


def owned_kind_named(name: str) -> OwnedKind:
    """Return the kind of owned row or relation with this name. An unknown kind has only the common fields."""
    return OWNED_KINDS.get(name) or RELATIONSHIPS.get(name) or _unknown_owned(name)


@cache
def _unknown(name: str) -> Kind:
    return Kind(name, name, (), Entity, container=True)


@cache
def _unknown_owned(name: str) -> OwnedKind:
    return OwnedKind(name, Owned)
