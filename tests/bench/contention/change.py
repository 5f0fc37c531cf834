"""The change that every policy makes: add one to a counter."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import metastore as ms
from metastore.kinds.change import encode
from metastore.kinds.kind import to_json

__all__ = ["COUNTER", "Add", "changed"]

COUNTER = "counter"


@dataclass(frozen=True)
class Add(ms.SetProperty):
    """Add ``value`` to a property. Applying it takes ``seconds``, for a helper too."""

    seconds: float = field(default=0.0, kw_only=True)

    def apply(self, doc: dict[str, Any], path: tuple[str, ...]) -> None:
        if self.seconds:
            time.sleep(self.seconds)
        properties = doc["properties"]
        properties[self.key] = str(int(properties[self.key]) + int(self.value))


def changed(change: Add, doc: str, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the new document and the change as history has it, made as the library makes them."""
    draft = json.loads(doc)
    change.apply(draft, names)
    return to_json(draft), to_json(encode((change,)))
