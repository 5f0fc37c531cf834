"""The policies of a crawl, which its user chooses. They are checked before the crawl begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from metastore.errors import InvalidArgument

__all__ = ["MAX_MISSING", "OnMissing", "OnTypeChange", "Policies"]

MAX_MISSING: Final = 0.2
"""The share of a lake's tables that may be gone at once. If more are gone, the lake itself seems unavailable."""

OnTypeChange = Literal["widen", "report", "fail"]
OnMissing = Literal["keep", "mark", "drop"]


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies for columns whose type has changed in the files, and for tables whose files are gone.

    Types: ``report`` keeps the catalog's type and adds a note; ``widen`` takes the type that holds both, if there is
    one; ``fail`` does not write the table. Tables: ``mark`` sets the property ``crawl.missing``; ``drop`` drops the
    tables that only the crawler has changed and marks the others; ``keep`` changes nothing. If more than
    ``max_missing`` of the tables are gone at once, no table is dropped.
    """

    on_type_change: OnTypeChange = "report"
    on_missing: OnMissing = "mark"
    max_missing: float = MAX_MISSING

    def __post_init__(self) -> None:
        _one_of("on_type_change", self.on_type_change, get_args(OnTypeChange))
        _one_of("on_missing", self.on_missing, get_args(OnMissing))
        share = self.max_missing
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InvalidArgument(f"max_missing is a share from 0 to 1, such as {MAX_MISSING}, not {share!r}")


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"{what} is one of {', '.join(allowed)}, not {value!r}")
