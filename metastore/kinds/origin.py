"""The origin: an owned row of an entity that was imported, with what another system called it.

It is what lets an import find an entity again, whatever its name is by now. A metalake has one for each entity that an
import from PyIceberg or Spark made in it (:mod:`metastore.imports.notes`).
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
    """The row is named after the other system. ``key`` is the id there, ``values`` its version, audit and columns."""

    key: str = doc_field(partial(clean_text, what="a key"))
    values: Mapping[str, Any] = doc_field(partial(clean_json_object, what="an origin's values"), decode=read_only)


ORIGIN = OwnedKind("origin", Origin)
