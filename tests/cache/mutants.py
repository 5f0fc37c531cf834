"""The cache with one rule broken: each test of a rule must find the cache that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metastore.cache.entries import Entries
from metastore.cache.entry import Entry
from metastore.cache.positions import Positions
from metastore.cache.validated import Validated
from metastore.port.touched import Touch

__all__ = ["MUTANTS", "break_rule"]


def _keeps_what_is_below(patch: pytest.MonkeyPatch) -> None:
    """A rename of an ancestor evicts nothing."""
    evict = Entries.evict

    def only_itself(self: Entries, change: Touch) -> None:
        evict(self, change._replace(action="alter"))

    patch.setattr(Entries, "evict", only_itself)


def _joins_an_old_query(patch: pytest.MonkeyPatch) -> None:
    """A read takes the answer of a query that was sent before the read began."""
    sent: list[Any] = []
    query, validated = Validated._query, Validated._validated

    def noted(self: Validated) -> int:
        sent.append(self)
        try:
            return query(self)
        finally:
            sent.remove(self)

    def joined(self: Validated) -> int:
        return self._sent if self in sent else validated(self)

    patch.setattr(Validated, "_query", noted)
    patch.setattr(Validated, "_validated", joined)


def _ignores_gaps(patch: pytest.MonkeyPatch) -> None:
    """A position that is missing is not asked for again."""
    apply = Positions.apply

    def forgetful(self: Positions, *arguments: Any) -> bool:
        told = apply(self, *arguments)
        self.missing.clear()
        return told

    patch.setattr(Positions, "apply", forgetful)


def _keeps_what_changed_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """An answer is kept even if it changed while it was on its way."""

    def never(self: Entry, change: Touch) -> bool:
        return False

    patch.setattr(Entry, "rests_on", never)


def _forgets_what_appears(patch: pytest.MonkeyPatch) -> None:
    """What comes to be where nothing was evicts nothing."""
    for module in ("entries", "entry"):
        patch.setattr(f"metastore.cache.{module}.appeared", lambda change: None)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "keeps_what_is_below": _keeps_what_is_below,
    "joins_an_old_query": _joins_an_old_query,
    "ignores_gaps": _ignores_gaps,
    "keeps_what_changed_meanwhile": _keeps_what_changed_meanwhile,
    "forgets_what_appears": _forgets_what_appears,
}


def break_rule(name: str | None, patch: pytest.MonkeyPatch) -> None:
    """Break one rule of the cache; None: none."""
    if name is not None:
        MUTANTS[name](patch)
