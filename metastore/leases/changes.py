"""The change in the feed that names the holder of a lease.

The event itself has the action (acquire, takeover, release, break, mirror) and the token.
"""

from __future__ import annotations

import dataclasses

from metastore.kinds.change import EntityChange

__all__ = ["LeaseHolder"]


@dataclasses.dataclass(frozen=True)
class LeaseHolder(EntityChange):
    """The holder of a lease after *acquire*, *takeover* and *mirror*, or before *release* and *break*.

    It appears in the feed only. The lease is the event's ``entity_id``, its token the event's ``version``, its name the
    path.
    """

    owner: str | None
    incarnation: str | None
