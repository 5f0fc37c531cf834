"""The only place that asks the machine for time, randomness and ids.

Everything else is given a :class:`Clock`, so that tests can give another one.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from uuid import UUID

__all__ = ["SYSTEM", "Clock"]

_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux; elsewhere the other one must do


@dataclass(frozen=True)
class Clock:
    """The system's clock, sleep, random numbers and operation ids."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def boottime(self) -> float:
        """Seconds on a clock that never goes back, and goes on while the machine sleeps, where there is one."""
        return time.clock_gettime(_BOOTTIME)

    def micros(self) -> int:
        """The wall clock in microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        """A random number between ``low`` and ``high``."""
        return random.uniform(low, high)

    def operation_id(self) -> UUID:
        """A new UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, then 74 random ones."""
        random_bits = int.from_bytes(os.urandom(10), "big")
        value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80
        value |= 0x7 << 76 | (random_bits >> 68) << 64 | 0b10 << 62 | random_bits & (1 << 62) - 1
        return UUID(int=value)


SYSTEM = Clock()
