"""One call, read from its client's journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["DROPS", "READS", "Call"]

READS: Final = frozenset({"changes", "exists", "load", "load_many", "names_page", "page"})
"""The actions that never write."""

DROPS: Final = ("drop", "drop_cascade")


@dataclass(slots=True)
class Call:
    """One call. ``end`` is None if it never returned: its client was killed."""

    client: str
    number: int
    action: str
    start: int
    deadline: float
    path: str | None = None
    to: str | None = None
    entity_id: int | None = None
    user: str | None = None
    after: str | None = None
    """Of the change feed: the position behind which it read on; None: from the beginning."""
    timeout: float | None = None
    """How long a freeze or a lease was waited for at most."""
    operation: str | None = None
    paths: tuple[str, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    end: int | None = None
    answer: Any = None
    error: str | None = None
    message: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    runs: int = 0
    held: tuple[int, ...] = ()

    @property
    def principal(self) -> str:
        """The principal of its writes, unless a user made it."""
        return f"{self.client}/{self.number}"

    @property
    def seconds(self) -> float:
        """How long it took; 0.0 if it never returned."""
        return 0.0 if self.end is None else (self.end - self.start) / 1e9

    def text(self, since: int) -> str:
        """Return one line for people; ``since``: the begin of the run on the clock of the calls."""
        when = f"{(self.start - since) / 1e9:.4f} … " + ("" if self.end is None else f"{(self.end - since) / 1e9:.4f}")
        what = f"{self.action} {self.path or self.paths or f'entity {self.entity_id}'}"
        what += f" → {self.to}" if self.to else ""
        what += "".join(f", {step} {path}" for step, path in self.steps)
        who = f"{self.principal} as {self.user}" if self.user else self.principal
        return f"[{when}] {who}: {what}: {self._ended()}"

    def _ended(self) -> str:
        if self.end is None:
            return "never returned"
        if self.error is not None:
            return f"{self.error}: {self.message[:120]}"
        return _short(self.answer)


def _short(answer: Any) -> str:
    if isinstance(answer, dict):
        return f"{answer['path']} (entity {answer['id']}, version {answer['version']})"
    if isinstance(answer, list):
        return f"[{', '.join(_short(one) for one in answer)}]"
    return "None" if answer is None else str(answer)
