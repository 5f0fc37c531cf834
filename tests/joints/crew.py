"""The description of one process of a run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["Crew"]


@dataclass(frozen=True)
class Crew:
    """A process of clients that share a store."""

    how: str
    """``threads`` or ``tasks``."""
    roles: tuple[str, ...]
    """One for each client (:mod:`tests.joints.choosing`); the first one is the main thread."""
    cache: tuple[str, float] | None = None
    """Its mode and its time to live (seconds)."""
    pool: int = 3
    """Fewer connections than clients: then requests wait, and travel together."""
    interrupts: float = 0.0
    """The share of calls that are interrupted, or cancelled in tasks."""
    forks: float = 0.0
    """Seconds between two forks; 0: none."""
    direct: bool = False
    """It does not go through the proxy, whatever its number."""
    name: str = ""
    """New for each process of a run, also for one that takes the place of a killed one."""
    folder: str = ""
    url: str = ""
    seed: int = 0

    @property
    def clients(self) -> list[str]:
        """The names of its clients."""
        return [f"{self.name}-{n}" for n in range(len(self.roles))]

    @property
    def interrupted(self) -> int:
        """How many of its clients can be interrupted: signals come to the main thread alone."""
        return len(self.roles) if self.how == "tasks" else 1

    def forked(self, number: int) -> Crew:
        """Return what a forked child is."""
        return replace(self, name=f"{self.name}f{number}", roles=("mixed",))

    def as_started(self) -> dict[str, Any]:
        """Return what the run's record says of it before it begins."""
        return {"process": self.name, "clients": self.clients, "how": self.how}

    def as_json(self) -> str:
        """Return it for its process."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Crew:
        """Return what :meth:`as_json` wrote."""
        values = json.loads(text)
        cache = values.pop("cache")
        return cls(**{**values, "roles": tuple(values["roles"])}, cache=cache and (cache[0], cache[1]))
