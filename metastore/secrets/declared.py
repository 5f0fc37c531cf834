"""Read a catalog's settings for secrets: which properties are secret, and which data key encrypts them.

These settings are two properties of the catalog. ``metastore.secret-properties`` lists patterns of property keys,
separated by blanks: ``password *.token``; ``*`` is any text, ``?`` any character. ``metastore.secret-key`` is the
number of the data key, which rotation sets. They hold for the catalog's own properties and for those of everything
below it.

A commit that changes them increments the catalog's scope version. Each write below the catalog guards that version, so
no write that rests on old settings commits after the change has returned.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from metastore.errors import InvalidArgument
from metastore.kinds.secret import REDACTED, as_secret

__all__ = ["KEY", "NOTHING", "PATTERNS", "Declared", "declared_in", "declares", "is_plain"]

PATTERNS: Final = "metastore.secret-properties"
"""The property of a catalog with the patterns of keys whose values are secret."""
KEY: Final = "metastore.secret-key"
"""The property of a catalog with the number of its data key."""
_HIGHEST: Final = 999_999_999


class Declared(NamedTuple):
    """The settings of one catalog."""

    patterns: tuple[str, ...]
    key: int

    def covers(self, name: str) -> bool:
        """Whether the property with this key is secret. The two settings themselves are never secret."""
        expression = _expression(self.patterns)
        return expression is not None and name not in (PATTERNS, KEY) and expression.fullmatch(name) is not None


NOTHING: Final = Declared((), 1)
"""No property is secret."""


@lru_cache(256)
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str] | None:
    # a bracket matches itself; fnmatch reads it as a choice of characters, on which older declarations may rely
    forms = [*patterns, *(one.replace("[", "[[]") for one in patterns)]
    return re.compile("|".join(map(fnmatch.translate, forms)), re.IGNORECASE) if patterns else None


def declared_in(properties: Mapping[str, Any]) -> Declared:
    """Return the settings among the properties of a catalog. Raises InvalidArgument for a key that is not a number."""
    patterns, number = properties.get(PATTERNS), properties.get(KEY, "1")
    if patterns is None:
        return NOTHING
    if not isinstance(number, str) or not re.fullmatch("[0-9]{1,9}", number) or int(number) == 0:
        raise InvalidArgument(f"the property {KEY} is the number of a data key, from 1 to {_HIGHEST}; rotation sets it")
    return Declared(tuple(sorted(set(str(patterns).split()))), int(number))


def declares(doc: str) -> tuple[Any, Any]:
    """Return the settings in a catalog's document as they are stored, to compare them."""
    if "metastore.secret-" not in doc:
        return None, None
    properties = json.loads(doc)["properties"]
    return properties.get(PATTERNS), properties.get(KEY)


def is_plain(value: object) -> bool:
    """Whether a stored value is the secret itself: neither a reference, a sealed value, a handle nor redacted.

    A password may begin with ``secret:`` too: only the whole form makes a reference.
    """
    return isinstance(value, str) and as_secret(value) is None and value != REDACTED
