"""The methods of the port that a user's view passes on, because they show nothing hidden, and those that it refuses.

Each method of the port is implemented by :mod:`metastore.governance.seen`, or named here. Any other method is refused
until somebody decides what it may show to a user.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PASSED", "REFUSED"]

_COMMITS: Final = (
    *("commit", "write_down", "pending", "scopes", "turn", "help", "forbid", "confirm", "cancel", "steps"),
    *("mark", "unmark", "marked", "clear", "queue", "line", "leave", "notices", "hold", "in_one_go"),
)
"""The calls of an operation that was allowed before, with its own entities and its own id."""

_FEED: Final = ("feed", "steps_at", "hearing", "hint", "feed_start", "unbroken", "event_at", "watermark", "decided")
"""The feed, whose reader leaves out what the user does not see: :mod:`metastore.feed.visible`."""

_PURGE: Final = ("below", "delete_relations", "delete_columns", "delete_entities", "delete_steps", "forget")
"""Deletions of a tree whose purge was allowed, and of rows of refused operation ids."""

_DATABASE: Final = (
    *("origin", "known_origin", "identify", "now", "reserve_ids", "format", "pool_use", "ping", "leases"),
    "search_sizes",
)
"""The database itself, the rows of a lease that the service gave to a call, and which way of a search is shorter."""

PASSED: Final = frozenset((*_COMMITS, *_FEED, *_PURGE, *_DATABASE))

REFUSED: Final = frozenset(
    (
        *("rights", "nodes", "resolve_rights", "resolve_holding", "by_id_holding", "children_chosen", "names_chosen"),
        *("touched", "past", "readers", "secret_keys", "snapshot", "restorer", "stats", "close"),
        *("dropped_before", "purging", "sweep_relations", "forget_tickets", "forget_pins"),
    )
)
"""Calls that no user needs: they read rights, or concern the past, whole tables, or upkeep."""
