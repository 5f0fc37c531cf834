"""The statistic: an owned row with figures about the data behind an entity.

It is not part of the entity's document, because it changes much more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.json_object import clean_json_object
from metastore.kinds.kind import OwnedKind
from metastore.plain import read_only

__all__ = ["STATISTIC", "Statistic"]


_clean_values = partial(clean_json_object, what="a statistic's values")


class Statistic(Owned):
    """A named set of figures: ``values`` is any JSON object."""

    values: Mapping[str, Any] = doc_field(_clean_values, decode=read_only)


STATISTIC = OwnedKind("statistic", Statistic)
