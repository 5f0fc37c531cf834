"""The privileges, and those that each operation on each kind needs. docs/governance.md has the same table.

The words and their meaning come from Apache Gravitino 1.x, in lower case. An owner of an object, or of anything above
it, needs none of them at the object. At each catalog and schema above the object, a user also needs ``use_catalog`` or
``use_schema``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.registry import KINDS

__all__ = [
    "OPERATIONS",
    "OWNED",
    "OWNER",
    "RELATIONS",
    "REVEAL",
    "WAY",
    "Needs",
    "check_privilege",
    "effect_of",
    "is_used_below",
    "known_privilege",
    "needs_of",
    "privileges",
]

OPERATIONS: Final = ("see", "create", "alter", "rename", "move", "drop", "restore", "purge", "enable", "disable")
"""What can be done with an entity. For ``create`` the privilege is needed at the parent, for the others at the
entity itself.
"""

WAY: Final[Mapping[str, str]] = MappingProxyType({"catalog": "use_catalog", "schema": "use_schema"})
"""By kind: the privilege that is needed at each container of this kind above an object."""

OWNER: Final = "owner"
"""The kind of the relation from an object to its owner."""

REVEAL: Final = "use_secret"
"""The privilege to reveal the secrets of an object."""

OWNERSHIP: Final = "ownership"
"""The word in place of a privilege if only owners may do something."""


@dataclass(frozen=True)
class Needs:
    """The privileges of one kind: for each operation, any one of them is enough. (): only an owner may do it."""

    see: tuple[str, ...] = ()
    create: tuple[str, ...] = ()
    alter: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The privileges to write a row that the entity owns, by the row's kind."""

    named_by_lake: bool = False
    """Whether the name is an identity: only an owner of the metalake may change it, or give it its old rights again."""

    def of(self, operation: str) -> tuple[str, ...]:
        """Return the privileges, each of which allows ``operation``; (): only an owner may do it."""
        if operation in ("rename", "restore") and self.named_by_lake:
            return ()
        if operation in ("alter", "rename"):
            return self.alter
        if operation in ("drop", "restore", "purge", "enable", "disable"):
            return self.drop
        return {"see": self.see, "create": self.create}.get(operation, ())


def _identity(word: str) -> Needs:
    """Return the privileges for operations on users, or on groups."""
    return Needs((word,), (word,), (word,), (word,), named_by_lake=True)


_MODEL_VERSION = ("link_model_version", "create_model_version")
_NEEDS: Final[Mapping[str, Needs]] = {
    "metalake": Needs(),
    "catalog": Needs(see=("use_catalog",), create=("create_catalog",)),
    "schema": Needs(see=("use_schema",), create=("create_schema",)),
    "table": Needs(
        see=("select_table", "modify_table"),
        create=("create_table",),
        alter=("modify_table",),
        own=dict.fromkeys(("partition", "partition_statistic", "statistic"), ("modify_table",)),
    ),
    "view": Needs(see=("select_view",), create=("create_view",)),
    "fileset": Needs(
        see=("read_fileset", "write_fileset"),
        create=("create_fileset",),
        alter=("write_fileset",),
        own={"statistic": ("write_fileset",)},
    ),
    "topic": Needs(see=("consume_topic", "produce_topic"), create=("create_topic",), alter=("produce_topic",)),
    "model": Needs(
        see=("use_model",),
        create=("register_model", "create_model"),
        own={"model_version": _MODEL_VERSION},
    ),
    "function": Needs(
        see=("execute_function", "modify_function"), create=("register_function",), alter=("modify_function",)
    ),
    "tag": Needs(see=("apply_tag",), create=("create_tag",)),
    "policy": Needs(see=("apply_policy",), create=("create_policy",)),
    "user": _identity("manage_users"),
    "group": _identity("manage_groups"),
    "role": Needs(see=("manage_grants",), create=("create_role",)),
    "job_template": Needs(see=("use_job_template",), create=("register_job_template",)),
    "job": Needs(create=("run_job",)),
}

OWNED: Final = ("partition", "statistic", "model_version")
"""The kinds of owned rows that a privilege allows to write. Only an owner may write rows of other kinds."""

RELATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tag_on": "apply_tag",
        "policy_on": "apply_policy",
        "membership": "manage_grants",
        "grant": "manage_grants",
        "owner": OWNERSHIP,
    }
)
"""The privilege to write a relation, by its kind. For tags and policies, it is needed at the tag or policy, and the
user must see the object. For memberships in a role it is needed at the metalake; for grants, too, unless the user owns
the object. Only an owner sets an owner. A membership in a group needs ``manage_groups`` instead.
"""

_ANYWHERE = ("metalake", "catalog", "schema")
_AT_METALAKE: Final = (
    *("create_catalog", "create_tag", "create_policy", "create_role", "manage_users", "manage_groups", "manage_grants"),
    *("register_job_template", "run_job"),
)


def needs_of(kind: str) -> Needs:
    """Return the privileges for operations on a kind. A declared kind ``x`` has select_x, create_x and modify_x."""
    known = _NEEDS.get(kind)
    if known is not None:
        return known
    return Needs((f"select_{kind}", f"modify_{kind}"), (f"create_{kind}",), (f"modify_{kind}",))


def privileges() -> Mapping[str, tuple[str, ...]]:
    """Return each privilege with the kinds of the objects on which it can be granted."""
    return _table(tuple([(kind.name, kind.parents) for kind in KINDS.values()]))


@lru_cache(maxsize=1)
def _table(_: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, tuple[str, ...]]:
    """Build the table, once for the present kinds: each grant uses it three times."""
    table: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        needs = needs_of(kind)
        for word in needs.create:
            table[word] = ("metalake",) if word in _AT_METALAKE else _above(kind)
        for word in (*needs.see, *needs.alter, *needs.drop, *[word for own in needs.own.values() for word in own]):
            table[word] = ("metalake",) if word in _AT_METALAKE else tuple(dict.fromkeys((*_above(kind), kind)))
    return MappingProxyType(dict(sorted({**table, REVEAL: tuple(KINDS)}.items())))


def _above(kind: str) -> tuple[str, ...]:
    """Return the kinds of the possible ancestors of a kind, the metalake first."""
    kinds_above = dict.fromkeys(KINDS[kind].parents)
    for parent in KINDS[kind].parents:
        kinds_above |= dict.fromkeys(() if parent == kind else _above(parent))
    return tuple(
        sorted(kinds_above, key=lambda name: (_ANYWHERE.index(name) if name in _ANYWHERE else len(_ANYWHERE), name))
    )


def is_used_below(word: str, kind: str) -> bool:
    """Whether a privilege at a container of ``kind`` is used below it, so that the container is a step of the path."""
    needs = needs_of(kind)
    return kind in WAY and word not in (*needs.see, *needs.alter, *needs.drop, REVEAL)


def effect_of(value: str) -> tuple[str, bool]:
    """Return the privilege in the value of a grant, and whether the grant allows it."""
    effect, _, word = value.partition(":")
    return word, effect == "allow"


def known_privilege(word: object) -> str:
    """Return ``word`` if it is a privilege, or raise InvalidArgument."""
    known = privileges()
    if not isinstance(word, str) or word not in known:
        raise InvalidArgument(f"there is no privilege {shown(word)}; known are {', '.join(known)}")
    return word


def check_privilege(word: object, kind: str) -> str:
    """Return ``word`` if it can be granted on an object of ``kind``, or raise InvalidArgument."""
    known, word = privileges(), known_privilege(word)
    if kind not in known[word]:
        raise InvalidArgument(f"{word} is granted on a {' or a '.join(known[word])}, not on a {kind}")
    return word
