"""Remember which entities were contended lately, in bounded memory. A wrong guess costs one attempt."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import suppress
from typing import TypeVar

from metastore.clock import Clock

V = TypeVar("V")
_MOST = 1024
_STAYS_HOT = 1.0
"""How long after its last conflict an entity counts as hot (seconds)."""

_FIRST_ROUND, _LONGEST_ROUND = 0.004, 0.1
"""The assumed length of a round of helping until one is measured, and its upper bound (seconds)."""
_LONGEST_TURN = 0.5
"""The upper bound of the assumed length of a turn (seconds)."""
_SHARES = (0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5)
"""The fractions of a round after which a waiting process looks whether help came."""


class ForgetfulMap(dict[Hashable, V]):
    """A mapping that drops the oldest entries when it is full.

    It has no lock, because a forked child could inherit a lock that is held.
    """

    def set(self, key: Hashable, value: V) -> None:
        """Remember a value as the newest."""
        self.pop(key, None)
        self[key] = value
        if len(self) > _MOST:
            # if another thread removes entries at the same time, one entry too many may stay, which does no harm
            with suppress(RuntimeError, StopIteration):
                self.pop(next(iter(self)), None)


class Hot:
    """The entities on which a change lost a moment ago. Their next change is announced at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._round = _FIRST_ROUND
        self.turn = _FIRST_ROUND
        """How long a transaction's turn takes (seconds)."""
        self._leads = (0, 0.0)
        self._until: ForgetfulMap[float] = ForgetfulMap()
        self._ids: ForgetfulMap[int] = ForgetfulMap()
        self._lines: ForgetfulMap[float] = ForgetfulMap()

    def note(self, entity_id: int, address: Hashable = None) -> None:
        """Note that a change of the entity lost; ``address`` is the path that led to the entity, if there is one."""
        self._until.set(entity_id, self._clock.monotonic() + _STAYS_HOT)
        if address is not None:
            self._ids.set(address, entity_id)

    def leave(self, address: Hashable) -> None:
        """Forget which entity the path led to: it leads elsewhere now."""
        self._ids.pop(address, None)

    def cool(self, entity_id: int) -> None:
        """Note that the last change of the entity met no competition."""
        self._until.pop(entity_id, None)

    def lead(self, entity_id: int) -> None:
        """Note that this process has just helped others: it also helps with its next change, without a wait."""
        self._leads = (entity_id, self._clock.monotonic() + 2 * self._round)

    def follow(self) -> None:
        """Forget that this process has just helped: its newest help lost, or the answer was lost."""
        self._leads = (0, 0.0)

    def leads(self, entity_id: int) -> bool:
        """Whether this process helped others on the entity a moment ago."""
        return self._leads[0] == entity_id and self._leads[1] > self._clock.monotonic()

    def took(self, seconds: float) -> None:
        """Note the length of a round of helping, or of the wait for one."""
        self._round += (min(seconds, _LONGEST_ROUND) - self._round) / 8

    def saw_line(self, entity_id: int) -> None:
        """Note that transactions are in line for an entity."""
        self._lines.set(entity_id, self._clock.monotonic() + _STAYS_HOT)

    def has_line(self, entity_id: int) -> bool:
        """Whether transactions were in line a moment ago."""
        return (self._lines.get(entity_id) or 0.0) > self._clock.monotonic()

    def took_turn(self, seconds: float) -> None:
        """Note the length of a turn."""
        self.turn += (min(seconds, _LONGEST_TURN) - self.turn) / 2

    def waits(self) -> Iterator[float]:
        """Yield how long to wait before each look for help from another process (seconds)."""
        for share in _SHARES:
            yield share * self._round * self._clock.uniform(0.75, 1.25)

    def find(self, entity_id: int | None, address: Hashable) -> int | None:
        """Return the entity's id if it is hot. Without an id, the address identifies the entity."""
        if entity_id is None:
            entity_id = self._ids.get(address)
        if entity_id is None:
            return None
        until = self._until.get(entity_id)
        return entity_id if until is not None and until > self._clock.monotonic() else None
