"""The protocol in a model: every schedule of small cases, random ones of larger cases, and each broken rule found."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.cache.model.explore import every_schedule, given_schedule, random_schedules, stopped_members
from tests.cache.model.protocol import MUTANTS
from tests.cache.model.world import Faults, Setting
from tests.long import long_unless

TODAY = 0 if "CI" in os.environ else 100 * datetime.now(UTC).toordinal()
"""Added to the seeds of the long tests. CI judges a change by the same schedules each time."""
SMALL = {
    "one member, one writer": Setting(reads=2),
    "two readers": Setting(readers=2, reads=1),
    "a member joins beside a writer": Setting(reads=2, settled=0),
    "announced twice": Setting(reads=2, announce_again=True),
}
LARGE = Setting(
    members=3,
    readers=2,
    reads=5,
    writers=2,
    writes=3,
    settled=0,
    ttl=4,
    drift=0.2,
    ticks=40,
    faults=Faults(kills=2, restarts=2, crashes=1, cuts=2, suspensions=2),
)
CASES = {
    "all": LARGE,
    "jumps": replace(LARGE, faults=Faults(kills=1, restarts=1, cuts=2, jumps=2), members=2),
    "crashes": replace(LARGE, members=1, settled=99, reads=10, faults=Faults(crashes=2, cuts=1)),
    "slow": Setting(reads=12, writes=2, ttl=4, drift=0.3, ticks=40),
    "joins": Setting(members=2, reads=3, writers=2, writes=2, settled=0),
    "several announce": Setting(writers=3, reads=12),
}


@pytest.mark.parametrize("case", long_unless(SMALL, lambda case: "joins" not in case))
def test_every_schedule_of_a_small_case(case: str) -> None:
    explored = every_schedule(SMALL[case])
    assert explored.found is None
    assert explored.states > 500


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CASES)
def test_random_schedules(case: str) -> None:
    assert random_schedules(CASES[case], 300, seed=1).found is None


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("case", CASES)
def test_many_random_schedules(case: str, seed: int) -> None:
    """Of each case, 40,000 in ten parts: so all cores have something to do to the end. Each day takes others."""
    assert random_schedules(CASES[case], 4_000, TODAY + seed).found is None


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [Setting(readers=2, reads=2), Setting(writers=2, reads=2), Setting(members=2, reads=1)], ids=str
)
def test_every_schedule_of_a_larger_case(case: Setting) -> None:
    assert every_schedule(case).found is None


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        Setting(members=2, reads=1, settled=0),
        Setting(reads=1, ticks=3, ttl=2),
        Setting(reads=2, faults=Faults(cuts=1)),
    ],
    ids=str,
)
def test_the_first_states_of_a_case_that_has_too_many(case: Setting) -> None:
    assert every_schedule(case, first=100_000).found is None


FINDS: dict[str, tuple[Setting, int]] = {
    # the case in which a rule decides, and how many random schedules find it; 0: every schedule is tried
    "invalidate_after_commit": (Setting(), 0),
    "fill_without_check": (Setting(), 0),
    "ack_before_evict": (Setting(), 0),
    "announce_same_id": (Setting(announce_again=True, reads=3), 0),
    "fill_before_oldest": (Setting(reads=2, settled=0), 0),
    "generation_with_insert": (Setting(reads=2, settled=0), 0),
    "members_in_lookahead": (Setting(reads=2, settled=0), 0),
    "no_gate": (Setting(reads=2, writes=2, settled=0), 0),
    "over_beside_another": (CASES["several announce"], 3000),
    "before_another": (CASES["several announce"], 3000),
    "lease_from_receipt": (Setting(reads=8, writes=2, ticks=20), 3000),
    "no_margin": (Setting(reads=12, writes=2, ttl=4, drift=0.3, ticks=40), 3000),
    "flag_by_timer": (replace(LARGE, settled=99), 3000),
    "renew_without_registration": (Setting(reads=14, writes=3, ttl=2, ticks=20), 3000),
    "reused_lease": (Setting(readers=3, reads=8, writes=3, ttl=1, ticks=24), 3000),
    "monotonic_only": (Setting(reads=12, writes=2, ttl=2, ticks=20, faults=Faults(suspensions=6)), 3000),
}
"""Rules whose breaking the suite finds in seconds. The long tests find the others."""
DEEP = ("no_gate", "flag_by_timer", "fill_before_oldest", "no_margin", "reused_lease")
"""Those of them that take five to ten seconds; ``test_lease_rules`` breaks the first rule in the real thing too."""
RARE: dict[str, Setting] = {
    "evict_whatever": Setting(reads=16, writers=2, writes=3, ttl=2, ticks=16),
    "old_snapshot": CASES["crashes"],
}


BLOCKS = ("waits_for_ever", "renewal_acknowledges_nothing")
"""Rules whose breaking lets a writer wait for ever."""
WAITS = {
    "all": replace(LARGE, settled=99),
    "joins": LARGE,
    "no faults": Setting(members=3, readers=1, reads=3, writers=2, writes=2, ttl=4, drift=0.2),
}


@pytest.mark.parametrize("case", WAITS)
def test_no_writer_is_blocked_beyond_the_bound(case: str) -> None:
    """Whatever happened before, and whichever members are stopped for good."""
    assert stopped_members(WAITS[case], 300, seed=3).found is None


@pytest.mark.long
@pytest.mark.parametrize("case", WAITS)
def test_no_writer_is_blocked_beyond_the_bound_in_many_schedules(case: str) -> None:
    assert stopped_members(WAITS[case], 20_000, seed=TODAY + 4).found is None


@pytest.mark.parametrize("mutant", BLOCKS)
def test_a_writer_that_is_blocked_is_found(mutant: str) -> None:
    found = stopped_members(replace(WAITS["no faults"], mutant=mutant), 300, seed=3).found
    assert found is not None
    assert "has waited" in found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mutant", long_unless(FINDS, lambda mutant: mutant not in DEEP))
def test_a_broken_rule_is_found(mutant: str) -> None:
    setting, schedules = FINDS[mutant]
    broken = replace(setting, mutant=mutant)
    explored = random_schedules(broken, schedules, seed=7) if schedules else every_schedule(broken)
    assert explored.found is not None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", RARE)
def test_a_broken_rule_is_found_among_many(mutant: str) -> None:
    assert random_schedules(replace(RARE[mutant], mutant=mutant), 1_000_000, seed=7).found is not None


JOINED_BESIDE = (
    ("writer 0", 6),  # it saw no members, holds the row, and is past the gate
    ("member 0", 4),
    ("writer 1", 7),  # it announces
    ("member 0", 5),  # acknowledges while it joins: writer 0 is under way still
    ("reader0 0", 3),  # reads what is there before both
    ("writer 0", 2),
    ("member 0", 5),  # serves
    ("reader0 0", 3),  # reads what writer 0 wrote: it is newer, and yet not what was announced
    ("writer 1", 8),
    ("reader0 0", 2),
)
"""One of 200,000 random schedules with cuts, kills and jumps found this. Those of a small case never do."""


@pytest.mark.parametrize("broken", [False, True])
def test_what_was_read_before_a_member_served_says_nothing_of_an_announcement(broken: bool) -> None:
    case = Setting(readers=1, reads=3, writers=2, settled=0, mutant="notes_while_joining" if broken else None)
    assert (given_schedule(case, JOINED_BESIDE).found is not None) is broken


def test_every_rule_has_a_test() -> None:
    assert {*FINDS, *RARE, *BLOCKS, "notes_while_joining"} == set(MUTANTS)
