"""The protocol as processes of the model; each rule can be broken by name (``Setting.mutant``).

A ``yield`` stands before each step that is atomic in the real thing: a statement, an answer that is taken up, a look at
a clock. What happens between two yields happens at one instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cache.model.database import Crashed, Snapshot, visible
from tests.cache.model.world import Lease, Member, Process, Setting, World

__all__ = ["MUTANTS", "start"]

MUTANTS = {
    "invalidate_after_commit": "the writer announces after its commit",
    "fill_without_check": "a fill is kept whatever was announced meanwhile",
    "over_beside_another": "an answer that shows a change is kept while two changes are announced",
    "notes_while_joining": "what was read before the member served counts as what was there under an announcement",
    "before_another": "what was there before another change was announced still counts as what was there",
    "lease_from_receipt": "the lease counts from the answer, not from before the request",
    "flag_by_timer": "a timer sets a flag when the lease is over; reads look at the flag",
    "ack_before_evict": "the member acknowledges, and then evicts",
    "renew_without_registration": "a member whose row is gone goes on with what it has",
    "announce_same_id": "announcing again uses the row, and the transaction id, of before",
    "reused_lease": "a new registration uses the Lease object of before",
    "fill_before_oldest": "a joiner fills before the oldest transaction is younger than its own",
    "old_snapshot": "a snapshot that was taken before a crash is acknowledged after it",
    "generation_with_insert": "the generation is drawn in the transaction that inserts the member",
    "members_in_lookahead": "the writer looks at the members before it reads the generation",
    "no_margin": "the writer waits for the ttl only, although clocks drift",
    "evict_whatever": "the writer evicts without comparing the renewals that it saw",
    "monotonic_only": "the read looks at the monotonic clock only",
    "no_gate": "a writer that saw no members never looks again",
    "waits_for_ever": "the writer gives nobody up",
    "renewal_acknowledges_nothing": "a renewal leaves what the member has seen as it was",
}

_Seen = dict[tuple[int, int], tuple[int, float]]
"""Of each member: the renewals that a writer saw last, and since when."""
_EACH = 1.0
"""A renewal is due when so much of the ttl is over, by the member's clock."""


def start(world: World) -> None:
    """Let all processes of a case begin."""
    setting = world.setting
    for member in world.members:
        world.add(f"member {member.number}", _member(world, member))
        while member.number < setting.settled and (member.lease is None or not member.lease.serving):
            world.happen(f"member {member.number}")
    for member in world.members:
        _readers(world, member)
    for n in range(setting.writers):
        world.add(f"writer {n}", _writer(world, f"writer {n}", n))
    world.begins = lambda member: _begin(world, member)


def _begin(world: World, member: Member) -> None:
    """Let a member begin in a process that was started again."""
    world.add(f"member {member.number}", _member(world, member))
    _readers(world, member)


def _readers(world: World, member: Member) -> None:
    for n in range(world.setting.readers):
        world.add(f"reader{n} {member.number}", _reader(world, member, world.setting.reads))
    if world.setting.mutant == "flag_by_timer":
        world.add(f"timer {member.number}", _timer(world, member))


# --- a member


def _member(world: World, member: Member) -> Process:
    me = f"member {member.number}"
    while True:
        try:
            yield from _join(world, member, me)
        except Crashed:
            continue
        again = True
        while again:
            try:
                yield from _serve(world, member, me)
                again = False  # fenced: its row is gone
            except Crashed:
                yield from _reconnected(world, member, me)


def _join(world: World, member: Member, me: str) -> Process:
    setting, db = world.setting, world.db
    yield None
    world.connect(me)
    before = member.incarnation
    world.incarnations += 1
    member.incarnation = world.incarnations
    mono, wall = world.monotonic(member), world.wall(member)
    old = member.lease if setting.mutant == "reused_lease" else None
    if old is None:
        member.lease = None
    yield None
    world.sent(me)
    together = setting.mutant == "generation_with_insert"
    if together:  # a sequence does not wait for the commit
        xid = db.begin()
        db.generation = _generation(world)
        yield None
        world.sent(me)
        _insert(world, member, before)
        db.end(xid)
    else:
        xid = db.begin()
        _insert(world, member, before)
        db.end(xid)
        yield None
        world.sent(me)
        xid = db.begin()
        db.generation = _generation(world)
        db.end(xid)
    yield None
    world.sent(me)
    mine = db.begin()
    db.end(mine, durable=False)
    world.leases += 1
    lease = old or Lease(world.leases)
    _extend(lease, mono, wall, setting)
    member.known, member.pending, member.before = frozenset(), frozenset(), None
    if setting.mutant != "fill_before_oldest":
        yield from _outwait(world, member, me, mine, lease)
    yield from _look(world, member, me, renew=False, lease=lease)
    lease.serving = True
    member.lease = lease


def _outwait(world: World, member: Member, me: str, mine: int, lease: Lease) -> Process:
    """Wait until all transactions before ``mine`` are over; acknowledge what is announced meanwhile."""
    db = world.db

    def over() -> bool:
        return db.xmin() > mine or world.sessions[me].life != db.life

    while True:
        yield lambda: over() or frozenset(db.now.announcements) != member.pending
        world.sent(me)
        if over():
            return
        yield from _look(world, member, me, renew=False, lease=lease)


def _generation(world: World) -> int:
    """Return a value that was never there."""
    world.generations += 1
    return 1000 + world.generations


def _insert(world: World, member: Member, before: int) -> None:
    db = world.db
    db.now.members.pop((member.number, before), None)  # its own, of before: that lease is over
    db.now.members[member.number, member.incarnation] = (0, db.snapshot())


def _extend(lease: Lease, mono: float, wall: float, setting: Setting) -> None:
    lease.mono, lease.wall, lease.wall_from = mono + setting.ttl, wall + setting.ttl, wall


def _reconnected(world: World, member: Member, me: str) -> Process:
    """Go on with the same lease on a new connection: nothing that was known of announcements holds there."""
    yield None
    world.connect(me)
    if world.setting.mutant != "old_snapshot":
        member.known = frozenset()
        member.generation += 1
        if member.lease is not None:
            member.lease.entry = None


def _serve(world: World, member: Member, me: str) -> Process:
    """Look and renew, until the member's row is gone."""
    db, lease = world.db, member.lease
    assert lease is not None
    registered = True
    while registered:

        def due() -> bool:
            return world.monotonic(member) >= lease.mono - world.setting.ttl + _EACH

        def news() -> bool:
            there = frozenset(db.now.announcements)
            return there != member.pending or world.sessions[me].life != db.life

        yield lambda: due() or news()
        world.sent(me)
        registered = yield from _look(world, member, me, renew=due(), lease=lease)
        if not registered and world.setting.mutant == "renew_without_registration":
            xid = db.begin()
            db.now.members[member.number, member.incarnation] = (0, db.snapshot())
            db.end(xid)
            _extend(lease, world.monotonic(member), world.wall(member), world.setting)
            registered = True
    if world.setting.mutant != "reused_lease":
        lease.mono = 0.0
        member.lease = None


def _look(world: World, member: Member, me: str, *, renew: bool, lease: Lease) -> Process:
    """Look, evict, acknowledge what is new; ``renew``: the lease lasts from before the request.

    Returns whether it may go on.
    """
    db, setting = world.db, world.setting
    mono, wall = world.monotonic(member), world.wall(member)
    yield None
    world.sent(me)
    snapshot, there = db.snapshot(), frozenset(db.now.announcements.items())
    yield None
    if setting.mutant != "old_snapshot":
        world.sent(me)
    joins = lease is not member.lease
    if not (there - member.known or renew or joins):
        _evict(world, member, lease, there)  # what is gone is not pending any more
        return True
    if setting.mutant == "ack_before_evict":
        alive = yield from _acknowledge(world, member, me, snapshot, renew)
        yield None
        _evict(world, member, lease, there)
    else:
        _evict(world, member, lease, there)
        alive = yield from _acknowledge(world, member, me, snapshot, renew)
    yield None
    world.sent(me)
    if renew and alive:
        if setting.mutant == "lease_from_receipt":
            mono, wall = world.monotonic(member), world.wall(member)
        _extend(lease, mono, wall, setting)
        member.flag = False
    return alive


def _evict(world: World, member: Member, lease: Lease, there: frozenset[tuple[int, int]]) -> None:
    kept = lease.entry
    new = there - member.known
    member.known = there
    member.pending = frozenset([one for one, _ in there])
    if new:
        member.generation += 1
        lease.entry = None
        if world.setting.mutant != "before_another":
            member.before = None
        if kept is not None and len(there) == 1:
            member.before = (min(member.pending), kept)
    if member.before is not None and member.before[0] not in member.pending:
        member.before = None


def _acknowledge(world: World, member: Member, me: str, snapshot: Snapshot, renew: bool) -> Process:
    db = world.db
    yield None
    if world.setting.mutant == "old_snapshot" and world.sessions[me].life != db.life:
        world.connect(me)
    world.sent(me)
    key = (member.number, member.incarnation)
    row = db.now.members.get(key)
    if row is None:
        return False
    if renew and world.setting.mutant == "renewal_acknowledges_nothing":
        snapshot = row[1]
    xid = db.begin()
    db.now.members[key] = (row[0] + renew, snapshot)
    db.end(xid, durable=renew)
    return True


def _timer(world: World, member: Member) -> Process:
    """Of a mutant: sets the flag some time after the lease is over."""
    while True:
        yield lambda: member.lease is not None and not member.flag and world.monotonic(member) >= member.lease.mono
        member.flag = True


# --- a reader


def _reader(world: World, member: Member, reads: int) -> Process:
    for _ in range(reads):
        yield None
        oldest = world.begin_read()
        lease = member.lease
        value = None if lease is None else lease.entry
        if value is not None and lease is not None:
            yield None
            if _holds(world, member, lease):
                world.end_read(oldest, value)
                continue
        yield from _fill(world, member, oldest)


def _holds(world: World, member: Member, lease: Lease) -> bool:
    """Whether the lease holds, at the time of the read, by every clock."""
    if world.setting.mutant == "flag_by_timer":
        return not member.flag
    mono = world.monotonic(member) < lease.mono
    if world.setting.mutant == "monotonic_only":
        return mono
    return mono and lease.wall_from <= world.wall(member) < lease.wall


def _fill(world: World, member: Member, oldest: int) -> Process:
    """Ask the database, and keep its answer unless an announcement may cover it."""
    lease, generation, pending = member.lease, member.generation, member.pending
    yield None
    value = world.db.now.value
    yield None
    serves = lease is not None and lease is member.lease
    if serves or world.setting.mutant == "notes_while_joining":
        unchecked = world.setting.mutant == "fill_without_check"
        checked = generation == member.generation and (not pending or _is_over(world, member, pending, value))
        if lease is not None and (unchecked or checked):
            lease.entry = value
    world.end_read(oldest, value)


def _is_over(world: World, member: Member, pending: frozenset[int], value: int) -> bool:
    """Whether an answer shows the only change that was announced: something else was there under the announcement."""
    one = min(pending)
    if len(pending) > 1 and world.setting.mutant != "over_beside_another":
        return False
    if one not in member.pending:
        return False
    known, before = member.before or (one, value)
    if known != one:
        return False
    member.before = (one, min(before, value))
    return value > before


# --- a writer


def _writer(world: World, me: str, number: int) -> Process:
    seen: _Seen = {}
    generation = 0
    for _ in range(world.setting.writes):
        done = False
        while not done:
            try:
                if me not in world.sessions or world.sessions[me].life != world.db.life:
                    yield None
                    world.connect(me)
                if generation == 0:
                    generation = yield from _members_seen(world, me)
                if generation:
                    done = yield from _commit_alone(world, me, generation)
                    generation = generation if done or world.setting.mutant == "no_gate" else 0
                else:
                    done = yield from _announced(world, me, number, seen)
            except Crashed:
                done = True  # nobody knows whether it was applied; it has not returned


def _members_seen(world: World, me: str) -> Process:
    """Return the generation under which there are no members; 0: there are some."""
    db, mutant = world.db, world.setting.mutant
    yield None
    world.sent(me)
    generation, some = db.generation, bool(db.now.members)
    yield None
    world.sent(me)
    if mutant == "members_in_lookahead":
        generation = db.generation
    else:
        some = bool(db.now.members)  # a later snapshot
    return 0 if some else generation


@contextmanager
def _transaction(world: World) -> Iterator[int]:
    """Begin a transaction. If it does not commit, its rows are free again: a server notices that a client is gone."""
    db, life = world.db, world.db.life
    xid = db.begin()
    try:
        yield xid
    finally:
        if db.life == life and xid in db.running:
            db.end(xid, durable=False)


def _commit_alone(world: World, me: str, generation: int) -> Process:
    db = world.db
    yield None
    world.sent(me)
    with _transaction(world) as xid:
        life = db.life
        yield lambda: db.locked_by == 0 or db.life != life
        world.sent(me)
        db.locked_by = xid
        yield None
        world.sent(me)
        if db.generation != generation and world.setting.mutant != "no_gate":
            return False
        yield None
        world.sent(me)
        yield from _commit(world, me, xid)
    return True


def _commit(world: World, me: str, xid: int) -> Process:
    db = world.db
    db.now.value += 1
    value = db.now.value
    db.end(xid)
    yield None
    world.sent(me)
    world.written = max(world.written, value)


def _announced(world: World, me: str, number: int, seen: _Seen) -> Process:
    db, setting = world.db, world.setting
    if setting.mutant == "invalidate_after_commit":
        yield None
        world.sent(me)
        xid = db.begin()
        yield from _commit(world, me, xid)
        yield from _announce(world, me)
        return True
    announcement, xid = yield from _announce(world, me)
    if setting.announce_again:
        yield from _wait(world, me, number, xid, seen)
        yield None
        world.sent(me)
        db.now.announcements.pop(announcement, None)  # a commit that lost took it away
        again = db.begin()
        db.end(again, durable=False)
        yield None
        world.sent(me)
        if setting.mutant == "announce_same_id":
            db.now.announcements[announcement] = xid
        else:
            announcement, xid = yield from _announce(world, me)
    while True:
        yield from _wait(world, me, number, xid, seen)
        done = yield from _commit_announced(world, me, announcement, xid)
        if done:
            return True
        if announcement not in db.now.announcements:
            return False


def _announce(world: World, me: str) -> Process:
    db = world.db
    yield None
    world.sent(me)
    xid = db.begin()
    announcement = db.now.next_id
    db.now.next_id += 1
    db.now.announcements[announcement] = xid
    db.end(xid, durable=False)
    yield None
    world.sent(me)
    return announcement, xid


def _wait(world: World, me: str, number: int, xid: int, seen: _Seen) -> Process:
    """Wait until every member has acknowledged, or is dead by this writer's clock."""
    world.waits_since[number] = world.time
    try:
        yield from _acknowledged(world, me, number, xid, seen)
    finally:
        world.waits_since.pop(number, None)


def _acknowledged(world: World, me: str, number: int, xid: int, seen: _Seen) -> Process:
    db, setting = world.db, world.setting
    while True:
        yield None
        world.sent(me)
        rows = dict(db.now.members)
        yield None
        world.sent(me)
        now = world.time * world.writer_rates[number]
        for key, (renewals, _) in rows.items():
            if key not in seen or seen[key][0] != renewals:
                seen[key] = (renewals, now)
        silent = [key for key, (_, acknowledged) in rows.items() if not visible(xid, acknowledged)]
        if not silent:
            return
        dead = [key for key in silent if now >= seen[key][1] + setting.ttl + setting.margin]
        if setting.mutant == "waits_for_ever":
            dead = []
        for key in dead:
            yield None
            world.sent(me)
            row = db.now.members.get(key)
            if row is not None and (row[0] == seen[key][0] or setting.mutant == "evict_whatever"):
                gone = db.begin()
                del db.now.members[key]
                db.end(gone)
        if not dead:
            time = world.time
            yield lambda: db.now.members != rows or world.time > time or world.sessions[me].life != db.life  # noqa: B023


def _commit_announced(world: World, me: str, announcement: int, xid: int) -> Process:
    """Commit if the announcement is still there, and every member has acknowledged it."""
    db = world.db
    yield None
    world.sent(me)
    with _transaction(world) as own:
        life = db.life
        yield None
        world.sent(me)
        if not _fine(world, announcement, xid):
            return False
        yield lambda: db.locked_by == 0 or db.life != life
        world.sent(me)
        db.locked_by = own
        yield None
        world.sent(me)
        db.now.announcements.pop(announcement, None)
        yield from _commit(world, me, own)
    return True


def _fine(world: World, announcement: int, xid: int) -> bool:
    rows = world.db.now
    xid = rows.announcements.get(announcement, -1)
    return xid >= 0 and all(visible(xid, seen) for _, seen in rows.members.values())
