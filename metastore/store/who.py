"""Find the user whom a caller means: by a name, a path, or an entity."""

from metastore.errors import InvalidArgument
from metastore.governance.evidence import Who, who
from metastore.kinds.entity import Entity
from metastore.names import Path
from metastore.operation.request import committed
from metastore.port.backend import Reads

__all__ = ["who_is"]


def who_is(backend: Reads, user: Path | Entity) -> Who:
    """Return who is meant. Raises InvalidArgument, also for a user of another database."""
    if not isinstance(user, Entity):
        return who(user)
    committed(backend, user)
    if user.kind != "user":
        raise InvalidArgument(f"{user.path} is a {user.kind}, not a user")
    return Who(user.name, None, user.id)
