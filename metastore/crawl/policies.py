"""What the user of a crawl decides: the policies, checked before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from metastore.errors import InvalidArgument

__all__ = ["OnMissing", "OnTypeChange", "Policies"]

OnTypeChange = Literal["widen", "report", "fail"]
OnMissing = Literal["keep", "mark", "drop"]


@dataclass(frozen=True, slots=True)
class Policies:
    """What happens to columns whose type in the files is another now, and to tables whose files are gone.

    Types: ``report`` keeps the catalog's and notes it; ``widen`` takes the one that holds both, where there is one;
    ``fail`` does not write the table. Tables: ``mark`` sets the property ``crawl.missing``, ``drop`` drops those that
    nobody edited and marks the others, ``keep`` leaves them alone.
    """

    on_type_change: OnTypeChange = "report"
    on_missing: OnMissing = "mark"

    def __post_init__(self) -> None:
        _one_of("on_type_change", self.on_type_change, get_args(OnTypeChange))
        _one_of("on_missing", self.on_missing, get_args(OnMissing))


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"{what} is one of {', '.join(allowed)}, not {value!r}")
