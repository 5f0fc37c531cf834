"""Check that a model and its versions agree on each alias, which both store, and on the latest number."""

from __future__ import annotations

import json
from collections.abc import Iterator

from metastore.verify.violations import Violation

__all__ = ["Aliases"]

Pairs = frozenset[tuple[str, int]]


class Aliases:
    """Compares the aliases of models with those of their versions. Memory: the aliases, and a number for each model."""

    def __init__(self) -> None:
        self._models: dict[int, tuple[str, Pairs, int]] = {}
        self._versions: dict[int, list[tuple[str, int]]] = {}
        self._latest: dict[int, int] = {}

    def model(self, row_id: int, path: str, doc: str) -> None:
        """Note the aliases of a model whose document can be read."""
        parsed = json.loads(doc)
        self._models[row_id] = path, frozenset(parsed["aliases"].items()), parsed["latest_version"]

    def version(self, owner_id: int, name: str, doc: str) -> None:
        """Note the number and the aliases of a version whose document can be read."""
        if name.isdecimal():
            self._latest[owner_id] = max(self._latest.get(owner_id, 0), int(name))
        pairs = [(alias, int(name)) for alias in json.loads(doc)["aliases"] if name.isdecimal()]
        if pairs:
            self._versions.setdefault(owner_id, []).extend(pairs)

    def violations(self) -> Iterator[Violation]:
        """Yield the aliases that lead to two versions, or that only the model or only the version stores.

        Also yield the models that would give the number of a version again.
        """
        for row_id, (path, said, latest) in self._models.items():
            if (there := self._latest.get(row_id, 0)) > latest:
                yield Violation(3, row_id, path, f"version {there} is beyond its latest_version {latest}")
            known = self._versions.get(row_id, [])
            for alias, number in sorted(said ^ set(known)):
                what = "the version does not say so" if (alias, number) in said else "the model does not say so"
                yield Violation(3, row_id, path, f"the alias {alias!r} leads to version {number}, but {what}")
            if len(known) > len(set(known)):
                yield Violation(3, row_id, path, "one version has an alias twice")
