"""The interface of a scenario: it creates the first entities, and yields each client's operations in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from metastore.checker.finding import Finding
from metastore.loadtest.calls import Calls
from metastore.store import Store

__all__ = ["Ended", "Me", "Scenario"]


@dataclass(frozen=True)
class Me:
    """The client that runs the scenario."""

    number: int
    """The client's number: 0, 1, 2 …"""
    clients: int
    """The number of all clients."""
    tag: str
    """The client's part of the names that it creates. It changes when the client is killed and started again."""
    ground: str
    """The catalog of the scenario; no other program uses it."""
    seconds: float | None
    """The length of the run; None: until the work is done."""
    elapsed: Callable[[], float]
    """Seconds since all clients began."""
    dice: Random


@dataclass(frozen=True)
class Ended:
    """The facts about a finished run, for :meth:`Scenario.broken`."""

    ground: str
    clients: int
    finished: bool
    """Whether all clients finished their work, and none was started again."""
    causes: Mapping[str, int]
    """How many attempts lost, by cause."""


class Scenario:
    """A scenario. Subclasses are frozen dataclasses of their parameters, which are sent to the clients."""

    name: str
    about: ClassVar[str]
    """One line for people."""
    seconds: ClassVar[float | None] = 10.0
    """The default length of a run in seconds; None: until the work is done."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the report shows beside the name."""
        return {}

    def check(self) -> None:
        """Raise InvalidArgument for invalid parameters, before anything is written."""

    def prepare(self, store: Store, ground: str) -> None:
        """Create the first entities below the catalog ``ground``."""
        raise NotImplementedError

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        """Call the store until the iterator is dropped. After each operation, yield how many seconds to wait."""
        raise NotImplementedError

    def broken(self, store: Store, ended: Ended) -> list[Finding]:
        """Return a finding for each promise that the scenario broke."""
        return []
