"""Plain SQL under a tree of locks that is kept somewhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Protocol

from metastore.checker.records import Lost
from tests.bench.peers.contender import Did
from tests.bench.peers.unguarded import Unguarded

__all__ = ["Locked", "Nodes", "Tree", "above"]

Nodes = tuple[str, ...]
"""The paths of nodes, from the root down."""


class Tree(Protocol):
    """One holder's view of a tree of read-write locks. It holds one path at a time."""

    def acquire(self, nodes: Nodes, *, exclusive: bool) -> int:
        """Lock all: those above shared, the last one exclusive or shared. Return how often it was in vain."""

    def release(self) -> None:
        """Give back what :meth:`acquire` got."""

    def close(self) -> None:
        """Close what is this holder's alone."""


@lru_cache(100_000)
def above(path: str) -> Nodes:
    """Return the path's prefixes, the path itself last."""
    names = path.split(".")
    return tuple(".".join(names[: n + 1]) for n in range(len(names)))


class Locked:
    """Shared locks on what is above; exclusive on the node, which for a create is the parent."""

    def __init__(self, url: str, principal: str, tree: Tree) -> None:
        self._plain, self._tree = Unguarded(url, principal), tree
        self.lost: list[Lost] = []

    @property
    def principal(self) -> str:
        return self._plain.principal

    @principal.setter
    def principal(self, principal: str) -> None:
        self._plain.principal = principal

    def load(self, path: str) -> Did:
        with self._held(above(path), exclusive=False):
            return self._plain.load(path)

    def alter(self, path: str, key: str, value: str) -> Did:
        with self._held(above(path)):
            return self._plain.alter(path, key, value)

    def create(self, path: str) -> Did:
        with self._held(above(path)[:-1]):
            return self._plain.create(path)

    def drop(self, path: str) -> Did:
        with self._held(above(path)):
            return self._plain.drop(path)

    def rename(self, path: str, to: str) -> Did:
        with self._held(above(path)):
            return self._plain.rename(path, to)

    def close(self) -> None:
        self._tree.close()
        self._plain.close()

    @contextmanager
    def _held(self, nodes: Nodes, *, exclusive: bool = True) -> Iterator[None]:
        self.lost += [Lost("locked")] * self._tree.acquire(nodes, exclusive=exclusive)
        try:
            yield
        finally:
            self._tree.release()
