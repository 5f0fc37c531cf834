"""The change in the feed that names the holder of a lease.

The event itself has the action (acquire, takeover, release, break, mirror) and the token.
"""

from __future__ import annotations

import dataclasses

from metastore.kinds.change import EntityChange

__all__ = ["LeaseHolder"]


@dataclasses.dataclass(frozen=True)
class LeaseHolder(EntityChange):
    """The holder of a lease: after *acquire*, *takeover* and *mirror*, but before *release* and *break*.

    It appears only in the feed. The event's ``entity_id`` is the lease's id, its ``version`` the token, and its path
    the name.
    """

    owner: str | None
    incarnation: str | None
