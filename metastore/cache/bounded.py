"""Keep the answers that are used most, up to a number and a size. Only one thread at a time may call this.

The policy W-TinyLFU (``theine_core``) decides. It estimates how often each answer is used, even after the answer was
evicted. A new answer stays if it is used more often than the one that it would replace. So a scan that reads each
entity once does not evict the entities that are read again and again. W-TinyLFU limits only the number of answers. So
this module adjusts that number, as answers arrive, to keep to the size in bytes.

A reader does not call this module. It appends the answer that it used to ``used``, at most once until ``used`` is
counted. That needs no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from theine_core import TlfuCore

from metastore.cache.entry import Entry

__all__ = ["Bounded"]

_NUMBERS: Final = (1 << 64) - 1
_BEGINS: Final = 100_000
"""The highest limit on the number of answers to begin with: the policy allocates memory for the full number."""
_FITS: Final = 0.95
"""Above the limit of bytes, keep this share of the answers that would fit, so that there is room for a while."""
_ROOMY: Final = 0.75
"""Below this share of the bytes, the number of answers may grow."""
_GROWS: Final = 1.25
_MOST_USES: Final = 8
"""How many uses of an answer a new policy may take over."""


class Bounded:
    """Answers by key, in the order of arrival."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self.all: dict[Hashable, Entry] = {}
        self.used: deque[Entry] = deque()
        """Answers that were used since the last count; each has ``used`` set."""
        self.bytes = 0
        self._keys: dict[int, Hashable] = {}
        self._may = min(most, _BEGINS)
        self._policy = TlfuCore(self._may)

    def clear(self) -> None:
        """Remove all answers."""
        self.all.clear()
        self.used.clear()
        self._keys.clear()
        self._policy = TlfuCore(self._may)
        self.bytes = 0

    def pop(self, key: Hashable) -> Entry | None:
        """Remove an answer and return it; None: it is not kept."""
        entry = self.all.pop(key, None)
        if entry is not None:
            self.bytes -= entry.size
            number = _number(key)
            del self._keys[number]
            self._policy.remove(number)
        return entry

    def put(self, key: Hashable, entry: Entry) -> list[tuple[Hashable, Entry]]:
        """Keep an answer under a new key; return the evicted answers, perhaps including this one."""
        if entry.size > self._most_bytes:
            return [(key, entry)]
        self._count_used()
        number = _number(key)
        gone = self._taken(self._keys.get(number))  # drop a key with the same hash: the policy cannot tell them apart
        self.all[key], self._keys[number] = entry, key
        self.bytes += entry.size
        gone += self._evicted(self._policy.set([(number, 0)]))
        while self.bytes > self._most_bytes:
            gone += self._resized(int(_FITS * len(self.all) * self._most_bytes / self.bytes))
        if len(self.all) >= self._may < self._most and self.bytes < _ROOMY * self._most_bytes:
            gone += self._resized(min(self._most, int(self._may * _GROWS) + 1))
        return gone

    def _count_used(self) -> None:
        used, numbers = self.used, list[int]()
        while used:
            entry = used.popleft()
            entry.used = False
            entry.uses += 1
            numbers.append(_number(entry.key))
        if numbers:
            self._policy.access(numbers)

    def _evicted(self, numbers: list[int]) -> list[tuple[Hashable, Entry]]:
        return [one for number in numbers for one in self._taken(self._keys.get(number))]

    def _taken(self, key: Hashable | None) -> list[tuple[Hashable, Entry]]:
        entry = None if key is None else self.pop(key)
        return [] if entry is None else [(key, entry)]

    def _resized(self, may: int) -> list[tuple[Hashable, Entry]]:
        """Limit the number of answers to ``may``, keep the most used ones, and return the evicted ones."""
        self._may = max(1, may)
        self._policy = TlfuCore(self._may)
        uses = {number: self.all[key].uses for number, key in self._keys.items()}
        # a new policy knows no uses: tell it the uses before the answers, because they decide which answers stay
        self._policy.access([number for number, count in uses.items() for _ in range(min(count, _MOST_USES))])
        gone = self._evicted(self._policy.set([(number, 0) for number in uses]))  # 0: it never expires
        # a use of an existing answer moves it to the protected part
        self._policy.access([number for number, count in uses.items() if count and number in self._keys])
        for entry in self.all.values():
            entry.uses //= 2  # halved, so that older uses count less at the next resize
        return gone


def _number(key: Hashable) -> int:
    return hash(key) & _NUMBERS
