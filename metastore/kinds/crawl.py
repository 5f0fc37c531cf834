"""The crawl: an owned row of a catalog that records what one run of the crawler found, skipped and could not read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.kind import OwnedKind
from metastore.plain import read_only

__all__ = ["CRAWL", "CRAWL_STATES", "Crawl"]

CRAWL_STATES = ("running", "done", "failed", "interrupted")


def _clean_state(state: Any) -> str:
    if state not in CRAWL_STATES:
        raise InvalidArgument(f"a crawl's state is one of {', '.join(CRAWL_STATES)}, not {shown(state)}")
    return str(state)


def _clean_values(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise InvalidArgument("a crawl's values must be a JSON object")
    try:
        clean: dict[str, Any] = json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"a crawl's values must be a JSON object: {error}") from None
    return clean


class Crawl(Owned):
    """One run of the crawler: ``state`` is one of :data:`CRAWL_STATES`, ``values`` any JSON object."""

    state: str = doc_field(_clean_state, decode=str)
    values: Mapping[str, Any] = doc_field(_clean_values, decode=read_only)


CRAWL = OwnedKind("crawl", Crawl)
