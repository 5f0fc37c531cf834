"""The origin: an owned row of an imported entity, with its id in another system.

By its origin, an import finds an entity again, even if the entity was renamed since. A metalake has one for each entity
that an import from PyIceberg or Spark made in it (:mod:`metastore.imports.notes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.json_object import clean_json_object
from metastore.kinds.kind import OwnedKind
from metastore.names import clean_text
from metastore.plain import read_only

__all__ = ["ORIGIN", "Origin"]


class Origin(Owned):
    """The origin of one entity; its name is the other system's.

    ``key`` is the entity's id there; ``values`` holds its version, audit and columns there.
    """

    key: str = doc_field(partial(clean_text, what="a key"))
    values: Mapping[str, Any] = doc_field(partial(clean_json_object, what="an origin's values"), decode=read_only)


ORIGIN = OwnedKind("origin", Origin)
