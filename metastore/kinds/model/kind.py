"""The model: a series of versions, some of which have an alias."""

from __future__ import annotations

from collections.abc import Mapping

from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import Kind
from metastore.plain import read_only

__all__ = ["MODEL", "Model"]


class Model(Entity):
    """A model. ``latest_version`` is the number of the version that was added last; 0: no version was ever added."""

    latest_version: int = doc_field(default=0, decode=int, given=False, joined=max)
    aliases: Mapping[str, int] = doc_field(
        dict, default=(), decode=read_only, given=False, joined=lambda new, old: {**new, **old}
    )


MODEL = Kind("model", "model", ("schema",), Model, since=2)
