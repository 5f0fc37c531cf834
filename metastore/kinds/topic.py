"""The topic: a stream of messages below a schema."""

from __future__ import annotations

from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind

__all__ = ["TOPIC", "Topic"]


class Topic(Entity):
    """A topic. Its properties describe its messages."""


TOPIC = Kind("topic", "topic", ("schema",), Topic, since=2)
