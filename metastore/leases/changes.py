"""What the change feed says of a lease, beside the action (acquire, takeover, release, break, mirror) and the token."""

from __future__ import annotations

import dataclasses

from metastore.kinds.change import EntityChange

__all__ = ["LeaseHolder"]


@dataclasses.dataclass(frozen=True)
class LeaseHolder(EntityChange):
    """Who holds a lease after *acquire*, *takeover* and *mirror*; who held it before *release* and *break*.

    It stands in the feed only. The lease is the event's ``entity_id``, its token the event's ``version``, its name the
    path.
    """

    owner: str | None
    incarnation: str | None
