"""What a scenario is: what is there at the start, and what each client does, one operation after the other."""

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
    """The client whose turn it is."""

    number: int
    """0, 1, 2 …"""
    clients: int
    """How many there are."""
    tag: str
    """Its own part of names; new after it was killed and began again."""
    ground: str
    """The catalog that the scenario has for itself."""
    seconds: float | None
    """How long the run is; None: until the work is done."""
    elapsed: Callable[[], float]
    """Seconds since all clients began."""
    dice: Random


@dataclass(frozen=True)
class Ended:
    """A run that is over, for :meth:`Scenario.broken`."""

    ground: str
    clients: int
    finished: bool
    """All clients came to the end of their work by themselves, and none had to begin again."""
    causes: Mapping[str, int]
    """How many attempts lost to what."""


class Scenario:
    """Subclasses are frozen dataclasses of their parameters; they travel to the clients."""

    name: str
    about: ClassVar[str]
    """One line for people."""
    seconds: ClassVar[float | None] = 10.0
    """How long a run is where nobody says; None: until the work is done."""

    def parameters(self) -> dict[str, Any]:
        """Return what the run is to be known by beside its name."""
        return {}

    def check(self) -> None:
        """Raise InvalidArgument for parameters that make no sense, before anything is written."""

    def prepare(self, store: Store, ground: str) -> None:
        """Make what is there at the start, below the catalog ``ground``."""
        raise NotImplementedError

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        """Call the store for as long as somebody asks; yield after each operation how many seconds to wait."""
        raise NotImplementedError

    def broken(self, store: Store, ended: Ended) -> list[Finding]:
        """Return what the scenario promises and did not keep."""
        return []
