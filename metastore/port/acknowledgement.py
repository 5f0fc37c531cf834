"""Decide from the members' acknowledgements whether an announced change proceeds, waits, or fails. Pure.

docs/cache.md has the protocol.

The table comes from Apache IoTDB (pull request 17831):

============  ============================  ===========  ======================================
acknowledged  silent for its lease and more  budget left  verdict
============  ============================  ===========  ======================================
yes           either                        either       safe
no            yes                           either       safe: it has fenced itself
no            no                            yes          wait
no            no                            no           fail
error         either                        either       fail at once
============  ============================  ===========  ======================================
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, NamedTuple


class Verdict(Enum):
    """The decision about an announced change, based on one member or on all members."""

    SAFE = "safe"
    WAIT = "wait"
    FAIL = "fail"


class Answer(NamedTuple):
    """The known state of one member."""

    said: Literal["acknowledged", "nothing", "error"]
    silent: bool
    """It has not renewed its lease for its ttl plus the margin, by the clock of the process that decides."""


def verdict(answer: Answer, *, budget_left: bool) -> Verdict:
    """Return the verdict from the state of one member."""
    if answer.said == "error":
        return Verdict.FAIL
    if answer.said == "acknowledged" or answer.silent:
        return Verdict.SAFE
    return Verdict.WAIT if budget_left else Verdict.FAIL


def decide(answers: Iterable[Answer], *, budget_left: bool) -> Verdict:
    """Return the verdict from all members: safe if each of them is safe, fail if one of them fails."""
    verdicts = {verdict(answer, budget_left=budget_left) for answer in answers}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.WAIT if Verdict.WAIT in verdicts else Verdict.SAFE
