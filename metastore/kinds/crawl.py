"""The crawl: an owned row of a catalog that says what one run of the crawler saw, skipped and failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc
from metastore.kinds.entity import Owned
from metastore.kinds.kind import OwnedKind

__all__ = ["CRAWL", "CRAWL_STATES", "Crawl"]

CRAWL_STATES = ("running", "done", "failed", "interrupted")


class Crawl(Owned):
    """A run: ``state`` is one of :data:`CRAWL_STATES`, ``values`` any JSON object."""

    state: str
    values: Mapping[str, Any]

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"state": str, "values": MappingProxyType}


def _new_doc(*, state: Any, values: Any) -> Doc:
    if state not in CRAWL_STATES:
        raise InvalidArgument(f"a crawl's state is one of {', '.join(CRAWL_STATES)}, not {state!r}")
    if not isinstance(values, Mapping):
        raise InvalidArgument("a crawl's values must be a JSON object")
    try:
        return {"state": state, "values": json.loads(json.dumps(dict(values), allow_nan=False))}
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"a crawl's values must be a JSON object: {error}") from None


CRAWL = OwnedKind("crawl", Crawl, new_doc=_new_doc)
