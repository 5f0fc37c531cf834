"""The model's world: clocks, processes that take one step at a time, what may go wrong, and what is checked."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.cache.model.database import Database, Session

__all__ = ["Blocked", "Faults", "Lease", "Member", "Process", "Setting", "Stale", "World"]

Ready = Callable[[], bool] | None
Process = Generator[Ready, None, Any]
"""It yields before each atomic step; a condition says when it can go on."""


class Stale(AssertionError):
    """A read showed what was over before it began, or less than a read that had ended."""


class Blocked(AssertionError):
    """A writer waits for members for longer than it may."""


@dataclass(frozen=True)
class Faults:
    """How often each may happen in one schedule."""

    kills: int = 0
    restarts: int = 0
    crashes: int = 0
    cuts: int = 0
    suspensions: int = 0
    jumps: int = 0


_NO_FAULTS = Faults()


@dataclass(frozen=True)
class Setting:
    """A case: who takes part, the bounds of time, and which rule is broken."""

    members: int = 1
    readers: int = 1
    reads: int = 2
    writers: int = 1
    writes: int = 1
    announce_again: bool = False
    """A writer announces twice for a write, as after a commit that lost."""
    settled: int = 99
    """How many members serve before anything else happens; the others join meanwhile."""
    ttl: float = 2.0
    drift: float = 0.0
    ticks: int = 0
    faults: Faults = field(default_factory=Faults)
    mutant: str | None = None

    @property
    def margin(self) -> float:
        """How much longer than the ttl a writer waits: its clock may be fast and the member's slow."""
        if self.mutant == "no_margin":
            return 0.0
        return self.ttl * ((1 + self.drift) / (1 - self.drift) - 1)


@dataclass(eq=False)
class Lease:
    """Until when entries may be used, by three clocks. A new one for each registration."""

    number: int
    mono: float = 0.0
    wall: float = 0.0
    wall_from: float = 0.0
    entry: int | None = None
    serving: bool = False


@dataclass(eq=False)
class Member:
    """A process that caches: what its threads share."""

    number: int
    lease: Lease | None = None
    generation: int = 0
    pending: frozenset[int] = frozenset()
    known: frozenset[tuple[int, int]] = frozenset()
    before: tuple[int, int] | None = None
    """The only announcement that is pending, and the value that was there under it."""
    incarnation: int = 0
    rate: float = 1.0
    asleep: int = 0
    """How many ticks its monotonic clock stood still."""
    wall_offset: float = 0.0
    flag: bool = False
    """Of a mutant: a timer sets it when the lease is over."""


class World:
    """See the module."""

    def __init__(self, setting: Setting, rates: random.Random | None = None) -> None:
        self.setting = setting
        self.db = Database()
        self.time = 0
        self.members = [Member(n) for n in range(setting.members)]
        self.writer_rates = [1.0] * setting.writers
        self.incarnations = self.generations = self.leases = 0
        self.written = self.shown = 0
        """The newest write that has returned; the newest value that a read has returned."""
        self.waits_since: dict[int, int] = {}
        """Since when a writer waits for members, by its number."""
        self.processes: dict[str, Process] = {}
        self.waits: dict[str, Ready] = {}
        self.sessions: dict[str, Session] = {}
        self.left = setting.faults
        self.begins: Callable[[Member], None] = lambda member: None
        """Lets the processes of a member begin."""
        if rates is not None and setting.drift:
            slow, fast = 1 - setting.drift, 1 + setting.drift
            for member in self.members:
                member.rate = rates.choice((slow, fast))
            self.writer_rates = [rates.choice((slow, fast)) for _ in self.writer_rates]

    # --- what processes use

    def monotonic(self, member: Member) -> float:
        """Return a member's monotonic clock: it drifts, and stands still while the machine is stopped."""
        return (self.time - member.asleep) * member.rate

    def wall(self, member: Member) -> float:
        """Return a member's wall clock: it drifts and jumps."""
        return self.time * member.rate + member.wall_offset

    def sent(self, name: str) -> None:
        """Send a statement, or get its answer. Raises Crashed if the session is over."""
        self.db.check(self.sessions[name])

    def connect(self, name: str) -> None:
        """Open a session."""
        self.sessions[name] = self.db.connect()

    def begin_read(self) -> int:
        """Return the oldest value that a read which begins now may show."""
        return max(self.written, self.shown)

    def end_read(self, oldest: int, value: int) -> None:
        """Check a read that returns now. Raises Stale."""
        if value < oldest:
            raise Stale(f"a read showed {value} and should show {oldest} at least")
        self.shown = max(self.shown, value)

    def check_waits(self, since: int) -> None:
        """Check that no writer has waited for too long since everybody who is not stopped had a turn. Raises Blocked.

        A member that says nothing is given up after the ttl and the margin. One renewal may have been on its way, with
        a snapshot from before the announcement: then that time begins once more. The next renewal acknowledges.
        """
        setting = self.setting
        bound = 2 * (setting.ttl + setting.margin) / (1 - setting.drift) + 2
        for number, began in self.waits_since.items():
            if self.time - max(began, since) > bound:
                raise Blocked(f"writer {number} has waited since {began}, now it is {self.time}")

    # --- what the scheduler does

    def add(self, name: str, process: Process) -> None:
        """Let a process begin."""
        self.processes[name] = process
        self.waits[name] = next(process)

    def choices(self) -> list[str]:
        """Return what can happen next."""
        able = [name for name, ready in self.waits.items() if ready is None or ready()]
        if self.time < self.setting.ticks:
            able.append("tick")
        return able if self.left == _NO_FAULTS else able + list(self._faults())

    def _faults(self) -> Iterator[str]:
        left = self.left
        for member in self.members:
            if f"member {member.number}" in self.processes:
                yield from [f"kill {member.number}"] if left.kills else []
                if left.suspensions and self.time < self.setting.ticks:
                    yield f"suspend {member.number}"
                yield from [f"{to} {member.number}" for to in ("forwards", "backwards")] if left.jumps else []
            elif left.restarts:
                yield f"restart {member.number}"
        yield from [f"cut {name}" for name in self.processes if self._connected(name)] if left.cuts else []
        yield from ["crash"] if left.crashes else []

    def _connected(self, name: str) -> bool:
        return name in self.sessions and self.sessions[name].life == self.db.life

    def happen(self, what: str) -> None:
        """Let one thing happen. Raises Stale."""
        if what in self.processes:
            try:
                self.waits[what] = next(self.processes[what])
            except StopIteration:
                del self.processes[what], self.waits[what]
            return
        if what == "tick":
            self.time += 1
            return
        kind, _, who = what.partition(" ")
        self._spend(kind)
        if kind == "crash":
            self.db.crash()
        elif kind == "cut":
            self.sessions[who] = Session(0)
        else:
            self._disturb(kind, self.members[int(who)])

    def _spend(self, kind: str) -> None:
        names = {"kill": "kills", "restart": "restarts", "crash": "crashes", "cut": "cuts", "suspend": "suspensions"}
        name = names.get(kind, "jumps")
        values = {**vars(self.left), name: getattr(self.left, name) - 1}
        self.left = Faults(**values)

    def _disturb(self, kind: str, member: Member) -> None:
        if kind == "suspend":
            member.asleep += 1
            self.time += 1
        elif kind == "forwards":
            member.wall_offset += self.setting.ttl
        elif kind == "backwards":
            member.wall_offset -= self.setting.ttl
        elif kind == "restart":  # another process, which knows nothing; the machine's clocks go on
            other = Member(member.number, rate=member.rate, asleep=member.asleep, wall_offset=member.wall_offset)
            self.members[member.number] = other
            self.begins(other)
        else:
            self._kill(member)

    def _kill(self, member: Member) -> None:
        for name in [n for n in self.processes if n.endswith(f" {member.number}") and not n.startswith("writer")]:
            del self.processes[name], self.waits[name]
        member.lease = None

    # --- what the explorer compares

    def state(self) -> object:
        """Return all that decides what can happen from here on, hashable."""
        members = [
            (
                m.generation,
                m.pending,
                m.known,
                m.before,
                m.incarnation,
                m.asleep,
                m.wall_offset,
                m.flag,
                _lease(m.lease),
            )
            for m in self.members
        ]
        frames = tuple([(name, _frames(process)) for name, process in sorted(self.processes.items())])
        sessions = tuple([(name, s.life) for name, s in sorted(self.sessions.items())])
        return (
            self.db.state(),
            (self.time, self.written, self.shown, self.left, self.generations, self.incarnations),
            (tuple(members), frames, sessions),
        )


def _lease(lease: Lease | None) -> object:
    return None if lease is None else tuple(vars(lease).values())


def _frames(process: Any) -> object:
    """Return where a generator stands, with its variables."""
    found = []
    while process is not None and getattr(process, "gi_frame", None) is not None:
        frame = process.gi_frame
        values = [(k, _plain(v)) for k, v in sorted(frame.f_locals.items()) if k not in ("world", "member", "db")]
        found.append((frame.f_code.co_name, frame.f_lasti, tuple(values)))
        process = process.gi_yieldfrom
    return tuple(found)


def _plain(value: Any) -> object:
    if isinstance(value, Lease):
        return _lease(value)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    if isinstance(value, list):
        return tuple(value)
    return None if callable(value) else value
