"""Find the user whom a caller means: by a name, a path, or an entity."""

import json

from metastore.errors import InvalidArgument
from metastore.governance.evidence import Who, who
from metastore.governance.users import users_named
from metastore.kinds.entity import Entity
from metastore.names import Path
from metastore.operation.request import committed
from metastore.port.backend import Backend, Reads

__all__ = ["who_is", "who_outside"]


def who_is(backend: Reads, user: Path | Entity) -> Who:
    """Return who is meant. Raises InvalidArgument, also for a user of another database."""
    if not isinstance(user, Entity):
        return who(user)
    committed(backend, user)
    if user.kind != "user":
        raise InvalidArgument(f"{user.path} is a {user.kind}, not a user")
    return Who(user.name, None, frozenset((user.id,)))


def who_outside(backend: Backend, name: str, external_id: str) -> Who:
    """Return the users of a name, in any metalake, that have this external id now. Raises InvalidArgument.

    A user that has another one, or none, is somebody else, whatever its name.
    """
    meant = who((name,))
    ids = [
        record.chain[-1].id
        for record in users_named(backend, meant.name)
        if json.loads(record.doc).get("external_id") == external_id
    ]
    return meant._replace(ids=frozenset(ids))
