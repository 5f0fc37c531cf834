"""Check that a model and its versions agree on each alias, which both store."""

from __future__ import annotations

import json
from collections.abc import Iterator

from metastore.verify.violations import Violation

__all__ = ["Aliases"]

Pairs = frozenset[tuple[str, int]]


class Aliases:
    """Compares the aliases of models with those of their versions. Memory: the aliases."""

    def __init__(self) -> None:
        self._models: dict[int, tuple[str, Pairs]] = {}
        self._versions: dict[int, list[tuple[str, int]]] = {}

    def model(self, row_id: int, path: str, doc: str) -> None:
        """Note the aliases of a model whose document can be read."""
        self._models[row_id] = path, frozenset(json.loads(doc)["aliases"].items())

    def version(self, owner_id: int, name: str, doc: str) -> None:
        """Note the aliases of a version whose document can be read."""
        pairs = [(alias, int(name)) for alias in json.loads(doc)["aliases"] if name.isdecimal()]
        if pairs:
            self._versions.setdefault(owner_id, []).extend(pairs)

    def violations(self) -> Iterator[Violation]:
        """Yield the aliases that lead to two versions, or that only the model or only the version stores."""
        for row_id, (path, said) in self._models.items():
            known = self._versions.get(row_id, [])
            for alias, number in sorted(said ^ set(known)):
                what = "the version does not say so" if (alias, number) in said else "the model does not say so"
                yield Violation(3, row_id, path, f"the alias {alias!r} leads to version {number}, but {what}")
            if len(known) > len(set(known)):
                yield Violation(3, row_id, path, "one version has an alias twice")
