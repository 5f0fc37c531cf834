"""Do a model and its versions say the same of an alias? It is written down with both."""

from __future__ import annotations

import json
from collections.abc import Iterator

from metastore.verify.violations import Violation

__all__ = ["Aliases"]

Pairs = frozenset[tuple[str, int]]


class Aliases:
    """What was seen so far: of each model its path and aliases, of those with any what versions say. Tiny."""

    def __init__(self) -> None:
        self._models: dict[int, tuple[str, Pairs]] = {}
        self._versions: dict[int, list[tuple[str, int]]] = {}

    def model(self, row_id: int, path: str, doc: str) -> None:
        """Note a model; its document can be read."""
        self._models[row_id] = path, frozenset(json.loads(doc)["aliases"].items())

    def version(self, owner_id: int, name: str, doc: str) -> None:
        """Note a version; its document can be read."""
        found = [(alias, int(name)) for alias in json.loads(doc)["aliases"] if name.isdecimal()]
        if found:
            self._versions.setdefault(owner_id, []).extend(found)

    def violations(self) -> Iterator[Violation]:
        """Yield the aliases that lead to two versions, or to none that knows of it."""
        for row_id, (path, said) in self._models.items():
            known = self._versions.get(row_id, [])
            for alias, number in sorted(said ^ set(known)):
                what = "it knows nothing of that" if (alias, number) in said else "the model does not say so"
                yield Violation(3, row_id, path, f"the alias {alias!r} leads to version {number}, but {what}")
            if len(known) > len(set(known)):
                yield Violation(3, row_id, path, "an alias stands twice with one version")
